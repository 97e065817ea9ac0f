"""Research: experiments, theorems, noise model, simulated runs, plug-in scores, variants.

Belongs here: whatever compares or explains methods, and no run needs. Does not: importing Ray or
torch (use ``pipeline.passes``). Uses every other room; only its commands in ``cli`` use it.
A help page lists EXPERIMENTS, so the modules of experiments are imported only when one is run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparc_dist.research.result import Result
    from sparc_dist.research.session import ExperimentSession

__all__ = ["EXPERIMENTS", "Experiment"]

#: Options that select a unit, and a class of it.
UNIT = ("dataset", "backbone")
CLASS = (*UNIT, "class")


@dataclass(frozen=True)
class Experiment:
    """An experiment.

    function: "module:function" in this package, called with the session. options: those of
    ``sparc-dist experiment`` that apply to it. needs_labels: whether the run must have labels.
    """

    name: str
    function: str
    options: tuple[str, ...] = ()
    needs_labels: bool = True

    def run(self, session: ExperimentSession) -> Result:
        """Runs the experiment."""
        module, _, name = self.function.partition(":")
        function: Callable[[ExperimentSession], Result] = getattr(
            import_module(f"sparc_dist.research.{module}"), name
        )
        return function(session)


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("main", "main_table:main_table"),
        Experiment("per-class", "main_table:per_class"),
        Experiment("debias", "ablations:debias"),
        Experiment("rank-fusion", "ablations:rank_fusion"),
        Experiment("random-prompts", "ablations:random_prompts"),
        Experiment("composition", "ablations:composition"),
        Experiment("templates", "ablations:templates"),
        Experiment("plug-in", "plug_in:plug_in", (*UNIT, "scores", "method")),
        Experiment("noise-model", "noise_model:noise_model"),
        Experiment("few", "few:few", UNIT),
        Experiment("compare", "comparison:compare", (*UNIT, "variants")),
        Experiment("theory", "theorems:theory", needs_labels=False),
        Experiment("histograms", "contrast:histograms", CLASS),
        Experiment("examples", "contrast:examples", CLASS),
    )
}
