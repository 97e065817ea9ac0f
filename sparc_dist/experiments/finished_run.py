"""A run that lies in storage, opened for experiments: what it holds and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.core.fusion import Method
from sparc_dist.errors import UserError
from sparc_dist.experiments import paper
from sparc_dist.runs import Results, RunLayout, UnitKey, read_record


@dataclass(frozen=True)
class FinishedRun:
    """A run and the metrics of its finished units."""

    layout: RunLayout
    config: Config
    results: Results

    @property
    def keys(self) -> list[UnitKey]:
        """Its finished units, those with labels: without them nothing can be compared."""
        return [key for key, metrics in self.results.metrics.items() if metrics["labelled"]]

    @property
    def datasets(self) -> list[DatasetConfig]:
        """The data sets of which some unit is finished and labelled."""
        names = {dataset for dataset, _ in self.keys}
        return [dataset for dataset in self.config.datasets if dataset.name in names]

    def backbones(self, dataset: str) -> list[BackboneConfig]:
        """Under which a data set is finished."""
        return [b for b in self.config.backbones if (dataset, b.name) in self.keys]

    @property
    def is_sparc(self) -> bool:
        """Whether the run's own scores were fused as the paper does."""
        return self.config.method == Method()

    def has_all_nine(self, dataset: str) -> bool:
        """Whether a data set is finished under all of the paper's backbones, and no other."""
        names = [paper.backbone_name(backbone) for backbone in self.backbones(dataset)]
        return sorted(map(str, names)) == sorted(paper.BACKBONES)

    def remarks(self) -> list[str]:
        """What of the paper's, and of its own, the run lacks."""
        units = len(self.config.datasets) * len(self.config.backbones)
        finished = {backbone for _, backbone in self.keys}
        backbones = [b for b in self.config.backbones if b.name in finished]
        lacking = paper.missing(self.datasets, backbones)
        if len(self.keys) < units:
            lacking.append(
                f"{len(self.keys)} of the run's {units} units are finished and have labels; the "
                "figures are of those."
            )
        if not self.is_sparc:
            lacking.append(
                "The run has a `method` of its own; `main`, `per-class`, `histograms` and "
                "`examples` show it under the name SPARC, the other experiments use the paper's."
            )
        return lacking


def open_run(url: str, labels: bool = True) -> FinishedRun:
    """Opens the run at a URL; raises UserError if it has no labels where they are needed."""
    layout = RunLayout(url)
    record = read_record(layout)
    run = FinishedRun(layout, _config(url, record["config"]), Results.read(layout, record))
    if labels and not run.keys:
        raise UserError(
            f"No unit of the run at {url} is finished and has labels; experiments compare scores "
            "with labels. Finish the run, or take one of a labelled data set."
        )
    return run


def _config(url: str, identity: dict[str, Any]) -> Config:
    """The config that a run was started with, as far as it decides the results."""
    kept = dict(identity)
    threads = kept.pop("threads_per_scorer")
    return Config.model_validate(
        {**kept, "output": url, "resources": {"threads_per_scorer": threads}}
    )
