"""Ablations: what each part of SPARC adds, from the scores and embeddings a run has stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from sparc_dist.core.average_precision import mean_average_precision
from sparc_dist.core.fusion import Method
from sparc_dist.core.variants import DEBIASED, SPARC, STORED, ZSCLIP, Variant
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars, lines, new_figure
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.prompt_sets import (
    ALL_PAIRS,
    ALL_TEMPLATES,
    PAIRS,
    RANDOM,
    TEMPLATES,
    in_template,
)
from sparc_dist.experiments.result import Result, difference, mean
from sparc_dist.runs import UnitKey
from sparc_dist.runs.tables import Cell, Table

if TYPE_CHECKING:
    from sparc_dist.experiments.session import ExperimentSession

#: The highest k of kmax and mean>=k.
HIGHEST = 10
MEAN = Method("mean", k=1)
NINE = "The paper's figures are means over its nine backbones; ours are means over the run's."
#: The average over data sets.
ALL = "average"

#: The AP of each class under each variant, of a unit.
Aps = Mapping[UnitKey, Mapping[Variant, Sequence[float | None]]]


@dataclass(frozen=True)
class Condition:
    """A row of an ablation. paper: its mAPs by data set, where the paper has them."""

    cells: tuple[str, ...]
    variant: Variant
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ablation:
    """Conditions that differ in one thing."""

    name: str
    title: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]

    def __call__(self, session: ExperimentSession) -> Result:
        """Makes the ablation; all ablations of a session share their passes."""
        return self.result(session.run, *session.ablations())

    def result(self, run: FinishedRun, aps: Aps, remarks: Sequence[str]) -> Result:
        """Returns the table and figure of what was found."""
        return Result(
            self.title,
            self._table(run, aps),
            self._figure(run, aps),
            [NINE, *run.remarks(), *remarks],
            self._summary(run, aps),
        )

    def _table(self, run: FinishedRun, aps: Aps) -> Table:
        """A row for each condition, data set and backbone, and for their averages."""
        columns = (*self.columns, "data set", "backbone", "mAP (%)", "paper (%)", "difference")
        rows: list[list[Cell]] = []
        for condition in self.conditions:
            for name, printed in _datasets(run):
                means = self._means(run, aps, condition, name)
                if name != ALL:
                    rows += [[*condition.cells, name, *own, None, None] for own in means.items()]
                ours = self._average(run, aps, condition, name)
                theirs = condition.paper.get(printed)
                if (ours, theirs) != (None, None):
                    apart = _difference(run, name, ours, theirs)
                    rows.append([*condition.cells, name, "average", ours, theirs, apart])
        return Table(columns, rows)

    def _summary(self, run: FinishedRun, aps: Aps) -> Table:
        """A row for each condition; averages over backbones, ours and the paper's."""
        columns: dict[str, list[float | None]] = {}
        for name, printed in _datasets(run):
            ours = [self._average(run, aps, condition, name) for condition in self.conditions]
            theirs = [condition.paper.get(printed) for condition in self.conditions]
            pairs = zip(ours, theirs, strict=True)
            columns[f"{name} (%)"], columns[f"{name}, paper (%)"] = ours, theirs
            columns[f"{name}, difference"] = [_difference(run, name, *pair) for pair in pairs]
        told = {name: values for name, values in columns.items() if set(values) != {None}}
        rows = zip(
            (c.cells for c in self.conditions), zip(*told.values(), strict=True), strict=True
        )
        return Table((*self.columns, *told), [[*cells, *values] for cells, values in rows])

    def _means(
        self, run: FinishedRun, aps: Aps, condition: Condition, dataset: str
    ) -> dict[str, float | None]:
        """The mAP under each backbone."""
        return {
            backbone.name: mean_average_precision(
                aps[dataset, backbone.name][condition.variant], run.config.empty_class
            )
            for backbone in run.backbones(dataset)
            if condition.variant in aps.get((dataset, backbone.name), {})
        }

    def _figure(self, run: FinishedRun, aps: Aps) -> Figure:
        if self.name == "rank-fusion":
            return self._ranks_figure(run, aps)
        series, marks = {}, {}
        for name, printed in _datasets(run):
            if name in {data.name for data in run.datasets}:
                series[name] = [self._average(run, aps, c, name) for c in self.conditions]
            if any(printed in condition.paper for condition in self.conditions):
                marks[f"paper, {printed}"] = [c.paper.get(printed) for c in self.conditions]
        labels = [" / ".join(condition.cells) for condition in self.conditions]
        figure = bars(labels, series, "mAP (%)", marks)
        figure.axes[0].set_title(" / ".join(self.columns), fontsize=8, loc="left")
        return figure

    def _ranks_figure(self, run: FinishedRun, aps: Aps) -> Figure:
        """mAP over k, without and with merge; max-variance and singleton as level lines."""
        figure = new_figure(7.5, 3.6)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, merged in zip(panels, ("no", "yes"), strict=True):
            found = {
                condition.cells[0]: self._average(run, aps, condition, ALL)
                for condition in self.conditions
                if condition.cells[1] == merged
            }
            ks = list(range(1, HIGHEST + 1))
            series: dict[str, tuple[list[float], list[float | None]]] = {}
            for name, form in (("kmax", "{}max"), ("mean>=k", "mean>={}")):
                series[name] = ([float(k) for k in ks], [found[form.format(k)] for k in ks])
            for name in ("maxVariance", "singleton"):
                series[name] = ([1.0, float(HIGHEST)], [found[name]] * 2)
            lines(axes, series)
            axes.set_title(f"{'with' if merged == 'yes' else 'without'} merge", fontsize=9)
            axes.set_xlabel("k (rank)")
        panels[0].set_ylabel("mAP (%), average")
        panels[0].get_legend().remove()
        return figure

    def _average(
        self, run: FinishedRun, aps: Aps, condition: Condition, dataset: str
    ) -> float | None:
        """The mean over backbones, or of that over data sets; the same ones for all conditions."""
        if dataset == ALL:
            each = [self._average(run, aps, condition, data.name) for data in run.datasets]
            return None if None in each else mean(each)
        means = self._means(run, aps, condition, dataset)
        variants = {condition.variant for condition in self.conditions}
        whole = [name for name in means if variants <= set(aps[dataset, name])]
        return mean([means[name] for name in whole or means])


def _datasets(run: FinishedRun) -> Iterator[tuple[str, str]]:
    """(our name, the paper's name) of the run's data sets, the paper's others, the average.

    Averages are over data sets; the paper's stands beside ours where it is of the same three.
    """
    own = {data.name: paper.dataset_name(data) or "" for data in run.datasets}
    yield from own.items()
    yield from ((name, name) for name in paper.DATASETS.values() if name not in own.values())
    if len(own) > 1:
        same = sorted(own.values()) == sorted(paper.DATASETS.values())
        yield ALL, ALL if same else ""


def _difference(
    run: FinishedRun, dataset: str, ours: float | None, theirs: float | None
) -> float | None:
    """The paper's figures are means over nine backbones: other means cannot be compared."""
    own = [data.name for data in run.datasets if dataset in (data.name, ALL)]
    return difference(ours, theirs) if own and all(map(run.has_all_nine, own)) else None


def _debias() -> Iterator[Condition]:
    for compound, plain, full in ((False, ZSCLIP, DEBIASED), (True, Variant(debias=False), SPARC)):
        for debias, variant in ((False, plain), (True, full)):
            figures = paper.ablation_figures("debias_ablation", compound=compound, debias=debias)
            yield Condition((_yes(compound), "full" if debias else "no debias"), variant, figures)
        for level in ("centre", "none"):
            strategy = "max-variance" if compound else "singleton"
            method = Method(strategy, merge=compound, image_debias=level)  # type: ignore[arg-type]
            yield Condition((_yes(compound), f"{level} (image), prompts"), Variant(method))


def _rank_fusion() -> Iterator[Condition]:
    for merged in (False, True):
        for k in range(1, HIGHEST + 1):
            yield Condition((f"{k}max", _yes(merged)), Variant(Method("kmax", k, merged)))
        for k in range(1, HIGHEST + 1):
            yield Condition((f"mean>={k}", _yes(merged)), Variant(Method("mean", k, merged)))
        yield Condition(("maxVariance", _yes(merged)), Variant(Method(merge=merged)))
        yield Condition(("singleton", _yes(merged)), DEBIASED)


def _random_prompts() -> Iterator[Condition]:
    rows = (
        (("none", "none"), DEBIASED, None, None),
        (("random", "SPARC"), Variant(prompts=RANDOM), "randomized", "sparc"),
        (("random", "mean>=1"), Variant(MEAN, RANDOM), "randomized", "mean"),
        (("co-occurring", "SPARC"), SPARC, "cooccurrence", "sparc"),
    )
    for cells, variant, compound, fusion in rows:
        figures = paper.ablation_figures(
            "randomized_prompt_ablation", compound=compound, fusion=fusion
        )
        yield Condition(cells, variant, figures)


def _composition() -> Iterator[Condition]:
    table = "composition_ablation"
    yield Condition(
        ("none", "no", "none"), DEBIASED, paper.ablation_figures(table, pairs=None, fusion=None)
    )
    for pairs, more, prompts in (
        ("all", False, ALL_PAIRS),
        ("cooccurrence", False, PAIRS),
        ("cooccurrence", True, STORED),
    ):
        for fusion, method in (("sparc", Method()), ("mean", MEAN)):
            cells = {"pairs": pairs, "triplets_and_descriptive": more, "fusion": fusion}
            # The paper has no row of all prompts under the mean.
            figures = {} if more and fusion == "mean" else paper.ablation_figures(table, **cells)
            shown = ("all" if pairs == "all" else "co-occurring", _yes(more), _fusion(fusion))
            yield Condition(shown, Variant(method, prompts), figures)


def _templates() -> Iterator[Condition]:
    def figures(template: str | None, more: bool = False) -> Mapping[str, float]:
        cells = {"template": template, "triplets_and_descriptive": more}
        return paper.ablation_figures("template_ablation", **cells)

    yield Condition(("none", "no"), DEBIASED, figures(None))
    for word in TEMPLATES:
        told = f"A {word} B"
        yield Condition((told, "no"), Variant(prompts=in_template(word)), figures(told))
    yield Condition((ALL_TEMPLATES, "no"), Variant(prompts=ALL_TEMPLATES), figures(ALL_TEMPLATES))
    yield Condition(("A and B", "yes"), SPARC, figures("A and B", more=True))


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _fusion(name: str) -> str:
    return {"sparc": "SPARC", "mean": "mean>=1"}[name]


debias = Ablation("debias", "What debiasing adds", ("compound", "debias"), tuple(_debias()))
rank_fusion = Ablation(
    "rank-fusion", "Strategies of rank fusion", ("strategy", "merge"), tuple(_rank_fusion())
)
random_prompts = Ablation(
    "random-prompts",
    "Compound prompts beside random texts",
    ("compound", "fusion"),
    tuple(_random_prompts()),
)
composition = Ablation(
    "composition",
    "What the compound prompts are made of",
    ("pairs", "triplets and descriptive", "fusion"),
    tuple(_composition()),
)
templates = Ablation(
    "templates",
    "Templates of pairs",
    ("template", "triplets and descriptive"),
    tuple(_templates()),
)
ABLATIONS = {
    each.name: each for each in (debias, rank_fusion, random_prompts, composition, templates)
}
