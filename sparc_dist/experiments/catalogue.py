"""The catalogue: every experiment, where it is made, what it takes and what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sparc_dist.experiments.result import Result
    from sparc_dist.experiments.session import ExperimentSession

Need = Literal["labels", "embeddings", "text tower"]
#: Options that choose a unit, and a class of it.
UNIT = ("dataset", "backbone")
CLASS = (*UNIT, "class")


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    maker: "module:function" in this room, called with the session; imported only then, because
    some load Ray. needs: what of a run it needs: labels, stored embeddings, the text tower.
    options: those of ``sparc-dist experiment`` that apply to it.
    """

    name: str
    maker: str
    needs: tuple[Need, ...] = ("labels",)
    options: tuple[str, ...] = ()

    def make(self, session: ExperimentSession) -> Result:
        """Makes the experiment."""
        module, _, function = self.maker.partition(":")
        found: Callable[[ExperimentSession], Result] = getattr(
            import_module(f"sparc_dist.experiments.{module}"), function
        )
        return found(session)


_NEW_PROMPTS: tuple[Need, ...] = ("labels", "embeddings", "text tower")
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("main", "main_table:main_table"),
        Experiment("per-class", "per_class:per_class"),
        Experiment("debias", "ablations:debias"),
        Experiment("rank-fusion", "ablations:rank_fusion"),
        Experiment("random-prompts", "ablations:random_prompts", _NEW_PROMPTS),
        Experiment("composition", "ablations:composition", _NEW_PROMPTS),
        Experiment("templates", "ablations:templates", _NEW_PROMPTS),
        Experiment("plug-in", "plug_in:plug_in", options=(*UNIT, "scores", "method")),
        Experiment("noise-model", "noise_model:noise_model"),
        Experiment("theory", "theory:theory", needs=()),
        Experiment("histograms", "one_class:histograms", options=CLASS),
        Experiment("examples", "one_class:examples", options=CLASS),
    )
}
