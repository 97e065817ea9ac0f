"""A run in storage, opened for experiments: its finished units and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparc_dist.config import BackboneConfig, Config, DatasetConfig
from sparc_dist.core import Method
from sparc_dist.errors import UserError
from sparc_dist.experiments import paper
from sparc_dist.runs import Results, RunLayout, UnitKey, read_record


@dataclass(frozen=True)
class FinishedRun:
    """A run and the results of its finished units."""

    layout: RunLayout
    config: Config
    results: Results

    @property
    def keys(self) -> list[UnitKey]:
        """The finished units that have labels, without ensembles; only these are compared."""
        units = self.results.metrics.items()
        return [key for key, own in units if own["labelled"] and key[1] in self.results.backbones]

    @property
    def sizes(self) -> list[int]:
        """The number of images of each of these units."""
        return [self.results.metrics[key]["images"] for key in self.keys]

    @property
    def datasets(self) -> list[DatasetConfig]:
        """The data sets with a finished and labelled unit."""
        names = {dataset for dataset, _ in self.keys}
        return [dataset for dataset in self.config.datasets if dataset.name in names]

    def backbones(self, dataset: str) -> list[BackboneConfig]:
        """Returns the backbones under which a data set is finished and labelled."""
        return [b for b in self.config.backbones if (dataset, b.name) in self.keys]

    @property
    def is_sparc(self) -> bool:
        """Whether the run used the paper's method."""
        method = self.config.method
        same = replace(Method(), duo=method.duo, primary=method.primary, fusions=method.fusions)
        return same == method

    def has_all_nine(self, dataset: str) -> bool:
        """Whether a data set is finished under the paper's nine backbones and no others."""
        names = [paper.backbone_name(backbone) for backbone in self.backbones(dataset)]
        return sorted(map(str, names)) == sorted(paper.BACKBONES)

    def remarks(self) -> list[str]:
        """Returns remarks on what differs from the paper and on missing units."""
        units = len(self.config.datasets) * len(self.config.backbones)
        finished = {backbone for _, backbone in self.keys}
        backbones = [b for b in self.config.backbones if b.name in finished]
        remarks = paper.missing(self.datasets, backbones)
        if len(self.keys) < units:
            remarks.append(
                f"{len(self.keys)} of the run's {units} units are finished and have labels; "
                "only those are shown."
            )
        if not self.is_sparc:
            remarks.append(
                "The run's `method` is not the paper's; `main`, `per-class`, `histograms` and "
                "`examples` show it as SPARC, the other experiments use the paper's method."
            )
        return remarks


def open_run(url: str, labels: bool = True) -> FinishedRun:
    """Opens the run at a URL; raises UserError if ``labels`` are needed and it has none."""
    layout = RunLayout(url)
    record = read_record(layout)
    run = FinishedRun(layout, _config(url, record["config"]), Results.read(layout, record))
    if labels and not run.keys:
        raise UserError(
            f"No unit of the run at {url} is finished and has labels; experiments compare scores "
            "with labels. Finish the run, or use a run on a labelled data set."
        )
    return run


def _config(url: str, identity: dict[str, Any]) -> Config:
    """Returns the config of a run, as far as it affects the results."""
    values = dict(identity)
    threads = values.pop("threads_per_scorer")
    return Config.model_validate(
        {**values, "output": url, "resources": {"threads_per_scorer": threads}}
    )
