"""compare: methods × units, with paired bootstrap intervals of their differences.

It answers three questions. What does a method, or a part of one, add? Compare with SPARC and duo of
the same unit. What do local features add? Compare with the same method on global features of the
same model. What does the ensemble add? Compare with the same method of the ensemble.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sparc_dist.config import ENSEMBLE, BackboneConfig
from sparc_dist.core import FUSIONS, DuoOptions, Method
from sparc_dist.core.method import RIVAL
from sparc_dist.pipeline.executor import get, share
from sparc_dist.pipeline.unit import Unit
from sparc_dist.research import paper
from sparc_dist.research.resampling import REMARK, ResampledMean, resampled_means, stored_scores
from sparc_dist.research.result import Result, new_figure
from sparc_dist.research.score_view import STORED, ScoreView
from sparc_dist.research.session import ExperimentSession
from sparc_dist.research.variants import (
    DEBIASED,
    SPARC,
    ZSCLIP,
    Fitted,
    Variant,
    Variants,
    fitted_variants,
)
from sparc_dist.runs import UnitShards
from sparc_dist.runs.tables import Cell, Table

#: The variants of SPARC and of duo, by title.
RANKED = {
    "ZSCLIP": ZSCLIP,
    "debiased": DEBIASED,
    "SPARC": SPARC,
    "SPARC, sqrt": Variant(Method(image_debias="sqrt")),
    "SPARC, rival": Variant(Method(rival=RIVAL)),
    "SPARC, sqrt and rival": Variant(Method(image_debias="sqrt", rival=RIVAL)),
}
VIEWED = {
    "duo": DuoOptions(),
    "duo, no rival": DuoOptions(rival=0.0),
    "duo, no partners": DuoOptions(partners=False),
    "duo, scaling full": DuoOptions(scaling="full"),
    "duo, scaling none": DuoOptions(scaling="none"),
    "duo, no shrinkage": DuoOptions(shrinkage=0.0),
}
MEAN = "mean of backbones"

#: What a row is compared with, as far as there is such a row.
REFERENCES = ("SPARC", "duo", "global", ENSEMBLE)
PLACE = ("data set", "backbone", "features", "method", "mAP (%)", "published (%)")
COMPARED = (
    "`minus SPARC`, `minus duo`: the difference from that method of the same unit; `minus global`: "
    "from the same method and model with `features: global`; `minus ensemble`: from the same "
    "method of the ensemble, the mean over backbones of each class's standardised final score. "
    f"`{MEAN}`: the mean of their mAPs. Empty columns are left out."
)
VARIED = (
    f"`sqrt`: scores are divided by the root of their image's SD, as in duo; `full`: by the SD, as "
    f"in SPARC; `none`: not. `rival`: {RIVAL} of an image's highest score is taken off its scores."
)

#: The names of a data set and a backbone, and the title of a method.
Key = tuple[str, str, str]
Means = dict[Key, ResampledMean]


@dataclass(frozen=True)
class Row:
    """A method of a unit. place: as in ``PLACE``. gaps: differences from ``REFERENCES``, or None.

    A difference has the bounds of its interval.
    """

    place: list[Cell]
    gaps: Sequence[tuple[float, float, float] | None]

    def for_csv(self) -> list[Cell]:
        """Returns all numbers."""
        return [*self.place, *(value for gap in self.gaps for value in gap or (None,) * 3)]

    def for_page(self) -> list[Cell]:
        """Returns a text for each difference and its interval."""
        texts = (gap and "{:+.2f} [{:+.2f}, {:+.2f}]".format(*gap) for gap in self.gaps)
        return [*self.place, *texts]


def compare(session: ExperimentSession) -> Result:
    """Returns the mAP of each method of each unit, and its differences from others."""
    means, failures = _means(session)
    plain = _with_global_features(session.run.config.backbones)
    rows = [
        Row(_place(session, key, mean), _gaps(means, key, plain.get(key[1])))
        for key, mean in means.items()
    ]
    columns = [
        part for name in REFERENCES for part in (f"minus {name}", f"{name}, low", f"{name}, high")
    ]
    remarks = [REMARK, COMPARED, *([VARIED] if session.options.variants else [])]
    remarks += [*paper.peers(session.run.datasets), *session.run.remarks(), *failures]
    table = Table((*PLACE, *columns), [row.for_csv() for row in rows])
    return Result("Methods and units compared", table, _figure(rows), remarks, _summary(rows))


def _means(session: ExperimentSession) -> tuple[Means, list[str]]:
    """Returns the mAPs of the selected units and, unless one is named, of their ensembles."""
    units, options = session.selected_units(), session.options
    work = _variant_means if options.variants else partial(_stored_means, session)
    found, remarks = session.for_each(units, work)
    means = {(*key, title): mean for key, own in found.items() for title, mean in own.items()}
    if options.backbone is None and not options.variants:
        remarks += _add_ensembles(session, units, means)
    datasets = [dataset.name for dataset in session.run.datasets]
    return dict(sorted(means.items(), key=lambda item: datasets.index(item[0][0]))), remarks


def _add_ensembles(session: ExperimentSession, units: Sequence[Unit], means: Means) -> list[str]:
    """Adds the mean of backbones and the ensemble of each data set that has one.

    Returns remarks on failures.
    """
    metrics = session.run.results.metrics
    averaged = {unit.key[0]: unit for unit in units if (unit.key[0], ENSEMBLE) in metrics}
    work = partial(_stored_means, session, name=ENSEMBLE)
    ensembles, remarks = session.for_each(averaged.values(), work)
    for (dataset, _), own in ensembles.items():
        for title in own:
            same = [mean for key, mean in means.items() if (key[0], key[2]) == (dataset, title)]
            means[dataset, MEAN, title] = ResampledMean(
                float(np.mean([mean.observed for mean in same])),
                np.mean([mean.draws for mean in same], axis=0),
            )
        means |= {(dataset, ENSEMBLE, title): mean for title, mean in own.items()}
    return remarks


def _stored_means(
    session: ExperimentSession, unit: Unit, name: str | None = None
) -> dict[str, ResampledMean]:
    """Returns the mAP of each method from stored final scores.

    name: of another unit of the data set.
    """
    methods = session.run.results.methods
    layout = unit.layout if name is None else unit.data.layout.unit(name)
    read = partial(stored_scores, replace(unit.shards, unit=layout), methods)
    return resampled_means(unit, [FUSIONS[method].title for method in methods], read)


def _variant_means(unit: Unit) -> dict[str, ResampledMean]:
    """Returns the mAP of each variant, fitted to stored scores in two passes."""
    mentions = {STORED: unit.data.bank.mentions}
    variants = Variants(tuple(RANKED.values()), mentions, tuple(VIEWED.values()))
    passes = unit.passes()
    job = fitted_variants(unit, passes, variants, share(ScoreView()))
    fitted = get(job, passes.limit, "Fitting")
    return resampled_means(unit, [*RANKED, *VIEWED], partial(_variant_scores, unit.shards, fitted))


def _variant_scores(
    shards: UnitShards, fitted: Fitted, shard: int, classes: range
) -> tuple[list[str], NDArray[np.float32]]:
    """Computes the final scores of a shard; a rival needs those of all columns."""
    ids, scores = shards.scores(shard)
    return ids.to_pylist(), fitted.final(scores)[:, :, classes.start : classes.stop]


def _with_global_features(backbones: Sequence[BackboneConfig]) -> dict[str, str]:
    """Returns, by the name of a backbone, the one that differs in its global features alone."""
    same = {
        each.name: each.model_dump(exclude={"name", "features", "local_scale"})
        for each in backbones
    }
    plain = [each.name for each in backbones if each.features == "global"]
    return {name: other for name in same for other in plain if same[name] == same[other]}


def _gaps(means: Means, key: Key, plain: str | None) -> list[tuple[float, float, float] | None]:
    """Returns the differences of a mAP from those of ``REFERENCES``; None where there is none."""
    dataset, backbone, method = key
    others = [(dataset, backbone, name) for name in REFERENCES[:2]]
    others += [(dataset, name, method) for name in (plain or "", ENSEMBLE)]
    return [
        means[key].minus(means[other]) if other != key and other in means else None
        for other in others
    ]


def _place(session: ExperimentSession, key: Key, mean: ResampledMean) -> list[Cell]:
    """Returns the first cells of a row, with the published mAP where there is one."""
    dataset, name, title = key
    unit, features, published = session.units.get((dataset, name)), None, None
    if unit is not None:
        method = {kind.title: method for method, kind in FUSIONS.items()}.get(title, "")
        published = paper.published_mean_ap(unit.data.config, unit.backbone, method)
        features = _features(unit.backbone)
    return [dataset, name, features, title, mean.observed, published]


def _features(backbone: BackboneConfig) -> str | None:
    """Returns local features, with their scale if it is not the default; None if global."""
    if backbone.features == "global":
        return None
    usual = backbone.local_scale == BackboneConfig.model_fields["local_scale"].default
    return backbone.features + ("" if usual else f", scale {backbone.local_scale:g}")


def _summary(rows: Sequence[Row]) -> Table:
    """Returns the table for the page, without columns that are empty."""
    columns = (*PLACE, *(f"minus {name}" for name in REFERENCES))
    cells = [row.for_page() for row in rows]
    filled = [i for i in range(len(columns)) if any(row[i] is not None for row in cells)]
    return Table([columns[i] for i in filled], [[row[i] for i in filled] for row in cells], 2)


def _figure(rows: Sequence[Row]) -> Figure:
    """Plots the differences and their intervals, one panel per reference."""
    shown = [i for i in range(len(REFERENCES)) if any(row.gaps[i] for row in rows)]
    labels = [f"{row.place[0]} × {row.place[1]}: {row.place[3]}" for row in rows]
    figure = new_figure(3.0 + 2.2 * len(shown), 1.0 + 0.18 * len(labels))
    panels = figure.subplots(1, max(1, len(shown)), sharey=True, squeeze=False)[0]
    for axes, number in zip(panels, shown, strict=False):
        known = [(place, gap) for place, row in enumerate(rows) if (gap := row.gaps[number])]
        values, low, high = np.array([gap for _, gap in known]).T
        places = [place for place, _ in known]
        errors = [values - low, high - values]
        axes.errorbar(values, places, xerr=errors, fmt="o", markersize=4, color="black", capsize=2)
        axes.axvline(0.0, color="grey", linewidth=0.8)
        axes.set_xlabel(f"minus {REFERENCES[number]} (points)")
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].invert_yaxis()
    return figure
