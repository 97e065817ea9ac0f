"""Ablations: what each part of SPARC adds, from the stored scores and embeddings of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from matplotlib.figure import Figure

from sparc_dist.config import DatasetConfig
from sparc_dist.core import Method, mean_average_precision
from sparc_dist.research import paper
from sparc_dist.research.result import Result, bars, difference, lines, mean, new_figure
from sparc_dist.research.score_view import (
    ALL_PAIRS,
    ALL_TEMPLATES,
    PAIRS,
    RANDOM,
    STORED,
    TEMPLATES,
    Columns,
    in_template,
    views_with,
)
from sparc_dist.research.session import ExperimentSession, FinishedRun
from sparc_dist.research.variants import (
    DEBIASED,
    SPARC,
    ZSCLIP,
    Variant,
    Variants,
    evaluate_variants,
)
from sparc_dist.runs import UnitKey
from sparc_dist.runs.tables import Cell, Table

#: The highest k of kmax and mean>=k.
HIGHEST = 10
MEAN = Method("mean", k=1)
NINE = "The paper's numbers are means over its nine backbones; ours are means over the run's."
#: The name of the average over data sets.
ALL = "average"

#: For each unit and variant, the AP of each class.
Aps = Mapping[UnitKey, Mapping[Variant, Sequence[float | None]]]


@dataclass(frozen=True)
class Condition:
    """A row of an ablation. paper: the paper's mAP by data set, if it prints one."""

    cells: tuple[str, ...]
    variant: Variant
    paper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ablation:
    """Conditions that differ in one respect."""

    name: str
    title: str
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]

    def __call__(self, session: ExperimentSession) -> Result:
        """Runs the ablation; all ablations of a session share their passes."""
        aps, remarks = session.once("ablations", partial(_evaluated, session))
        return self.result(session.run, aps, remarks)

    def result(self, run: FinishedRun, aps: Aps, remarks: Sequence[str]) -> Result:
        """Returns the table, figure and remarks for the given APs."""
        return Result(
            self.title,
            self._table(run, aps),
            self._figure(run, aps),
            [NINE, *run.remarks(), *remarks],
            self._summary(run, aps),
        )

    def _table(self, run: FinishedRun, aps: Aps) -> Table:
        """Returns one row per condition, data set and backbone, and the averages over backbones."""
        columns = (*self.columns, "data set", "backbone", "mAP (%)", "paper (%)", "difference")
        rows: list[list[Cell]] = []
        for condition in self.conditions:
            for name, paper_name in _datasets(run):
                means = self._means(run, aps, condition, name)
                if name != ALL:
                    rows += [[*condition.cells, name, *item, None, None] for item in means.items()]
                ours = self._average(run, aps, condition, name)
                pair = (ours, condition.paper.get(paper_name))
                if pair != (None, None):
                    gap = _difference(run, name, *pair)
                    rows.append([*condition.cells, name, "average", *pair, gap])
        return Table(columns, rows)

    def _summary(self, run: FinishedRun, aps: Aps) -> Table:
        """Returns one row per condition: averages over backbones, ours and the paper's."""
        columns: dict[str, list[float | None]] = {}
        for name, paper_name in _datasets(run):
            ours = [self._average(run, aps, condition, name) for condition in self.conditions]
            printed = [condition.paper.get(paper_name) for condition in self.conditions]
            pairs = zip(ours, printed, strict=True)
            columns[f"{name} (%)"], columns[f"{name}, paper (%)"] = ours, printed
            columns[f"{name}, difference"] = [_difference(run, name, *pair) for pair in pairs]
        filled = {name: values for name, values in columns.items() if set(values) != {None}}
        rows = zip(
            (c.cells for c in self.conditions), zip(*filled.values(), strict=True), strict=True
        )
        return Table((*self.columns, *filled), [[*cells, *values] for cells, values in rows])

    def _means(
        self, run: FinishedRun, aps: Aps, condition: Condition, dataset: str
    ) -> dict[str, float | None]:
        """Returns the mAP of a condition under each backbone that has it."""
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
        for name, paper_name in _datasets(run):
            if name in {data.name for data in run.datasets}:
                series[name] = [self._average(run, aps, c, name) for c in self.conditions]
            if any(paper_name in condition.paper for condition in self.conditions):
                marks[f"paper, {paper_name}"] = [c.paper.get(paper_name) for c in self.conditions]
        labels = [" / ".join(condition.cells) for condition in self.conditions]
        figure = bars(labels, series, "mAP (%)", marks)
        figure.axes[0].set_title(" / ".join(self.columns), fontsize=8, loc="left")
        return figure

    def _ranks_figure(self, run: FinishedRun, aps: Aps) -> Figure:
        """Plots mAP over k, without and with merge; other strategies as horizontal lines."""
        figure = new_figure(7.5, 3.6)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, merged in zip(panels, ("no", "yes"), strict=True):
            averages = {
                condition.cells[0]: self._average(run, aps, condition, ALL)
                for condition in self.conditions
                if condition.cells[1] == merged
            }
            ks = list(range(1, HIGHEST + 1))
            series: dict[str, tuple[list[float], list[float | None]]] = {}
            for name, form in (("kmax", "{}max"), ("mean>=k", "mean>={}")):
                series[name] = ([float(k) for k in ks], [averages[form.format(k)] for k in ks])
            for name in ("maxVariance", "singleton"):
                series[name] = ([1.0, float(HIGHEST)], [averages[name]] * 2)
            lines(axes, series)
            axes.set_title(f"{'with' if merged == 'yes' else 'without'} merge", fontsize=9)
            axes.set_xlabel("k (rank)")
        panels[0].set_ylabel("mAP (%), average")
        panels[0].get_legend().remove()
        return figure

    def _average(
        self, run: FinishedRun, aps: Aps, condition: Condition, dataset: str
    ) -> float | None:
        """Returns the mean over backbones; for ``ALL``, the mean of these over data sets.

        All conditions are averaged over the same backbones: those with every variant, if any.
        """
        if dataset == ALL:
            values = [self._average(run, aps, condition, data.name) for data in run.datasets]
            return None if None in values else mean(values)
        means = self._means(run, aps, condition, dataset)
        variants = {condition.variant for condition in self.conditions}
        complete = [name for name in means if variants <= set(aps[dataset, name])]
        return mean([means[name] for name in complete or means])


def _datasets(run: FinishedRun) -> Iterator[tuple[str, str]]:
    """Yields (our name, the paper's name): the run's data sets, the paper's others, the average.

    The paper's name is empty for other data sets, and for an average over other data sets.
    """
    names = {data.name: paper.dataset_name(data) or "" for data in run.datasets}
    yield from names.items()
    yield from ((name, name) for name in paper.DATASETS.values() if name not in names.values())
    if len(names) > 1:
        same = sorted(names.values()) == sorted(paper.DATASETS.values())
        yield ALL, ALL if same else ""


def _difference(
    run: FinishedRun, dataset: str, ours: float | None, printed: float | None
) -> float | None:
    """Returns ours minus the paper's; None unless both are means over the paper's backbones."""
    names = [data.name for data in run.datasets if dataset in (data.name, ALL)]
    return difference(ours, printed) if names and all(map(run.has_all_nine, names)) else None


def _evaluated(session: ExperimentSession) -> tuple[Aps, list[str]]:
    """Returns the APs of all variants of the session's ablations, and remarks."""
    ablations = [ABLATIONS[name] for name in session.names if name in ABLATIONS]
    conditions = [condition for ablation in ablations for condition in ablation.conditions]
    variants = list(dict.fromkeys(condition.variant for condition in conditions))
    work: dict[UnitKey, partial[dict[Variant, list[float | None]]]] = {}
    remarks: list[str] = []
    for dataset in session.run.datasets:
        units = [unit for key, unit in session.units.items() if key[0] == dataset.name]
        columns = Columns(units[0].data.bank)
        possible = [v for v in variants if columns.is_available(v.prompts)]
        remarks += _prompt_remarks(dataset, len(possible) < len(variants))
        sets = dict.fromkeys(variant.prompts for variant in possible)
        mentions = {name: columns.mentions(name) for name in sets}
        views, failures = views_with(units, columns.extra)
        for unit in units:
            usable = possible
            if reason := failures.get(unit.key[1]):
                usable = [v for v in possible if columns.is_stored(v.prompts)]
                remarks.append(
                    f"{' × '.join(unit.key)}: prompts that are not the run's own could not be "
                    f"scored: {reason}"
                )
            used = Variants(tuple(usable), mentions)
            work[unit.key] = partial(evaluate_variants, variants=used, view=views[unit.key[1]])
    aps, failed = session.for_each(session.units.values(), lambda unit: work[unit.key](unit))
    return aps, remarks + failed


def _prompt_remarks(dataset: DatasetConfig, lacks_pairs: bool) -> Iterator[str]:
    """Yields remarks on how a data set's prompts differ from the paper's co-occurring prompts."""
    source = dataset.prompts.source
    if source in ("all-pairs", "random", "none"):
        yield f"{dataset.name}: the co-occurring prompts are the run's own, with source: {source}."
    if lacks_pairs:
        yield f"{dataset.name}: the run's prompts contain no pairs, so the rows of pairs are empty."


def _debias() -> Iterator[Condition]:
    for compound, plain, full in ((False, ZSCLIP, DEBIASED), (True, Variant(debias=False), SPARC)):
        for debias, variant in ((False, plain), (True, full)):
            printed = paper.ablation_mean_aps("debias_ablation", compound=compound, debias=debias)
            cells = (_yes_or_no(compound), "full" if debias else "no debias")
            yield Condition(cells, variant, printed)
        for level in ("centre", "none"):
            strategy = "max-variance" if compound else "singleton"
            method = Method(strategy, merge=compound, image_debias=level)  # type: ignore[arg-type]
            cells = (_yes_or_no(compound), f"{level} (image), prompts")
            yield Condition(cells, Variant(method))


def _rank_fusion() -> Iterator[Condition]:
    for merge in (False, True):
        cell = _yes_or_no(merge)
        for k in range(1, HIGHEST + 1):
            yield Condition((f"{k}max", cell), Variant(Method("kmax", k, merge)))
        for k in range(1, HIGHEST + 1):
            yield Condition((f"mean>={k}", cell), Variant(Method("mean", k, merge)))
        yield Condition(("maxVariance", cell), Variant(Method(merge=merge)))
        yield Condition(("singleton", cell), DEBIASED)


def _random_prompts() -> Iterator[Condition]:
    rows = (
        (("none", "none"), DEBIASED, None, None),
        (("random", "SPARC"), Variant(prompts=RANDOM), "randomized", "sparc"),
        (("random", "mean>=1"), Variant(MEAN, RANDOM), "randomized", "mean"),
        (("co-occurring", "SPARC"), SPARC, "cooccurrence", "sparc"),
    )
    for cells, variant, compound, fusion in rows:
        printed = paper.ablation_mean_aps(
            "randomized_prompt_ablation", compound=compound, fusion=fusion
        )
        yield Condition(cells, variant, printed)


def _composition() -> Iterator[Condition]:
    table = "composition_ablation"
    yield Condition(
        ("none", "no", "none"), DEBIASED, paper.ablation_mean_aps(table, pairs=None, fusion=None)
    )
    for pairs, all_kinds, prompts in (
        ("all", False, ALL_PAIRS),
        ("cooccurrence", False, PAIRS),
        ("cooccurrence", True, STORED),
    ):
        for fusion, method in (("sparc", Method()), ("mean", MEAN)):
            row = {"pairs": pairs, "triplets_and_descriptive": all_kinds, "fusion": fusion}
            # The paper has no row for all prompts fused by their mean.
            in_paper = not (all_kinds and fusion == "mean")
            printed = paper.ablation_mean_aps(table, **row) if in_paper else {}
            pairs_cell = "all" if pairs == "all" else "co-occurring"
            cells = (pairs_cell, _yes_or_no(all_kinds), _fusion_title(fusion))
            yield Condition(cells, Variant(method, prompts), printed)


def _templates() -> Iterator[Condition]:
    def printed(template: str | None, all_kinds: bool = False) -> Mapping[str, float]:
        row = {"template": template, "triplets_and_descriptive": all_kinds}
        return paper.ablation_mean_aps("template_ablation", **row)

    yield Condition(("none", "no"), DEBIASED, printed(None))
    for word in TEMPLATES:
        title = f"A {word} B"
        yield Condition((title, "no"), Variant(prompts=in_template(word)), printed(title))
    yield Condition((ALL_TEMPLATES, "no"), Variant(prompts=ALL_TEMPLATES), printed(ALL_TEMPLATES))
    yield Condition(("A and B", "yes"), SPARC, printed("A and B", all_kinds=True))


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _fusion_title(name: str) -> str:
    return {"sparc": "SPARC", "mean": "mean>=1"}[name]


debias = Ablation("debias", "What debiasing adds", ("compound", "debias"), tuple(_debias()))
rank_fusion = Ablation(
    "rank-fusion", "Rank fusion strategies", ("strategy", "merge"), tuple(_rank_fusion())
)
random_prompts = Ablation(
    "random-prompts",
    "Compound prompts compared with random texts",
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
    "Pair templates",
    ("template", "triplets and descriptive"),
    tuple(_templates()),
)
ABLATIONS = {
    ablation.name: ablation
    for ablation in (debias, rank_fusion, random_prompts, composition, templates)
}
