"""The catalogue of experiments: the function, requirements and options of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sparc_dist.experiments.result import Result
    from sparc_dist.experiments.session import ExperimentSession

Need = Literal["labels", "embeddings", "text tower"]
#: Options that select a unit, and a class of it.
UNIT = ("dataset", "backbone")
CLASS = (*UNIT, "class")


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    function: "module:function" in this package, called with the session; imported only then,
    because some modules load Ray. needs: what it needs of a run. options: the options of
    ``sparc-dist experiment`` that apply to it.
    """

    name: str
    function: str
    needs: tuple[Need, ...] = ("labels",)
    options: tuple[str, ...] = ()

    def run(self, session: ExperimentSession) -> Result:
        """Runs the experiment."""
        module, _, name = self.function.partition(":")
        function: Callable[[ExperimentSession], Result] = getattr(
            import_module(f"sparc_dist.experiments.{module}"), name
        )
        return function(session)


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
        Experiment("few", "few:few", options=UNIT),
        Experiment("fusions", "fusions:fusions", options=UNIT),
        Experiment("features", "features:features", options=("dataset",)),
        Experiment("ensemble", "ensemble:ensemble", options=("dataset",)),
        Experiment("theory", "theory:theory", needs=()),
        Experiment("histograms", "one_class:histograms", options=CLASS),
        Experiment("examples", "one_class:examples", options=CLASS),
    )
}
