"""features: global, local and both features of the same models, with intervals.

No image is read: a run that lists a model several times has scored it with each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sparc_dist.config import BackboneConfig
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.resampling import REMARK, ResampledMean, StoredScores, resampled_means
from sparc_dist.experiments.result import Result
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import TITLES, UnitKey
from sparc_dist.runs.tables import Cell, Table

METHODS = ("zsclip", "sparc", "duo")
COLUMNS = (
    *("data set", "backbone", "features", "method", "mAP (%)", "published (%)"),
    *("minus global", "low", "high"),
)
#: mAP of SPARC on local features of RN50x64, as the paper's final version has them.
LOCAL, PUBLISHED = "RN50x64", {"COCO": 77.8, "VOC": 91.1, "NUSWIDE": 43.5}
#: mAP of PIAA (ICML 2026), another method on patches of CLIP.
PIAA = {"VOC": 92.5, "NUSWIDE": 50.6}
NOTHING = (
    "No two backbones of the run differ in `features` alone, so there is nothing to compare; list "
    "a model more than once, such as `backbones: [{name: plain, model: M, weights: W}, {name: "
    "local, model: M, weights: W, features: local}, {name: both, model: M, weights: W, features: "
    "both}]`, and run that: images are decoded once for all of them."
)

Means = Mapping[str, ResampledMean]


@dataclass(frozen=True)
class Compared:
    """A unit, and the unit of the same model with global features; itself if there is none.

    means, base_means: the resampled mAP of each method; empty if there is nothing to compare.
    """

    unit: Unit
    base: Unit
    means: Means
    base_means: Means

    @property
    def title(self) -> str:
        """Its features, with their scale if it is not the usual one."""
        backbone = self.unit.backbone
        usual = backbone.local_scale == BackboneConfig.model_fields["local_scale"].default
        return backbone.features + ("" if usual else f", scale {backbone.local_scale:g}")

    def gap(self, method: str) -> tuple[float, float, float] | None:
        """Returns a mAP minus that with global features, and the bounds of its interval."""
        known = method in self.means and method in self.base_means
        if self.unit.key == self.base.key or not known:
            return None
        return self.means[method].minus(self.base_means[method])


def features(session: ExperimentSession) -> Result:
    """Returns the mAP of each method with each kind of features, from stored final scores."""
    run = session.run
    methods = [name for name in METHODS if name in run.results.methods]
    units = session.selected_units()
    pairs = [(unit, _base(unit, units)) for unit in units]
    wanted = {each.key: each for pair in pairs if pair[0].key != pair[1].key for each in pair}
    found, failures = session.for_each(wanted.values(), partial(_means, methods=methods))
    compared = [
        Compared(unit, base, *(found.get(each.key, {}) for each in (unit, base)))
        for unit, base in pairs
    ]
    labels = [f"{_place(each)}: {each.title}" for each in compared]
    values = {TITLES[name]: [_mean_ap(run, each, name) for each in compared] for name in methods}
    remarks = [REMARK if wanted else NOTHING, *peers(run), *run.remarks(), *failures]
    return Result(
        "Local features",
        Table(COLUMNS, [row for each in compared for row in _rows(run, each, methods)]),
        bars(labels, values, "mAP (%)"),
        remarks,
        _summary(run, compared, methods),
    )


def peers(run: FinishedRun) -> list[str]:
    """Returns a remark on what another method has published for the data sets of a run."""
    names = {paper.dataset_name(dataset): dataset.name for dataset in run.datasets}
    known = [f"{names[name]} {mean_ap} %" for name, mean_ap in PIAA.items() if name in names]
    return [f"PIAA (ICML 2026), on patches too, publishes: {', '.join(known)}."] if known else []


def _base(unit: Unit, units: Iterable[Unit]) -> Unit:
    """Returns the unit with global features that differs in nothing else; itself if none does."""
    plain = _plain(unit.backbone)
    for other in units:
        same_data = other.key[0] == unit.key[0] and _plain(other.backbone) == plain
        if same_data and other.backbone.features == "global":
            return other
    return unit


def _plain(backbone: BackboneConfig) -> dict[str, object]:
    return backbone.model_dump(exclude={"name", "features", "local_scale"})


def _means(unit: Unit, methods: Iterable[str]) -> Means:
    return resampled_means(unit, StoredScores(unit.shards, tuple(methods)))


def _rows(run: FinishedRun, compared: Compared, methods: Iterable[str]) -> list[list[Cell]]:
    place = [compared.unit.key[0], compared.base.backbone.name, compared.title]
    rows: list[list[Cell]] = []
    for name in methods:
        numbers = (_mean_ap(run, compared, name), _published(compared, name))
        rows.append([*place, TITLES[name], *numbers, *(compared.gap(name) or [None] * 3)])
    return rows


def _summary(run: FinishedRun, compared: Sequence[Compared], methods: Sequence[str]) -> Table:
    """Returns a row for each kind of features; published numbers only where there are any."""
    columns: dict[str, list[Cell]] = {
        "data set": [each.unit.key[0] for each in compared],
        "backbone": [each.base.backbone.name for each in compared],
        "features": [each.title for each in compared],
    }
    for name in methods:
        columns[f"{TITLES[name]} (%)"] = [_mean_ap(run, each, name) for each in compared]
        published: list[Cell] = [_published(each, name) for each in compared]
        if set(published) != {None}:
            columns[f"{TITLES[name]}, published (%)"] = published
        columns[f"{TITLES[name]} minus global"] = [_text(each.gap(name)) for each in compared]
    return Table(tuple(columns), list(zip(*columns.values(), strict=True)), 2)


def _text(gap: tuple[float, float, float] | None) -> str | None:
    return None if gap is None else "{:+.2f} [{:+.2f}, {:+.2f}]".format(*gap)


def _place(compared: Compared) -> str:
    return f"{compared.unit.key[0]} × {compared.base.backbone.name}"


def _mean_ap(run: FinishedRun, compared: Compared, method: str) -> float | None:
    key: UnitKey = compared.unit.key
    return run.results.mean_ap(*key, method)


def _published(compared: Compared, method: str) -> float | None:
    """Returns the published mAP of this data set, backbone, features and method."""
    backbone = compared.unit.backbone
    dataset = paper.dataset_name(compared.unit.data.config)
    model = paper.backbone_name(backbone.model_copy(update={"features": "global"}))
    if backbone.features == "global":
        return paper.main_mean_ap(dataset, method, model)
    is_local = backbone.features == "local" and (model, method) == (LOCAL, "sparc")
    return PUBLISHED.get(dataset or "") if is_local else None
