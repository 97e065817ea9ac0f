"""fusions: what each part of SPARC and duo adds, with intervals, from a run's stored scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core import Duo, DuoOptions, Floats, Mentions, Method, Scores
from sparc_dist.core.duo import RIVAL
from sparc_dist.core.variants import (
    DEBIASED,
    SPARC,
    STORED,
    ZSCLIP,
    DuoVariants,
    Each,
    Variant,
    Variants,
    duo_final,
)
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import intervals
from sparc_dist.experiments.resampling import REMARK, ResampledMean, resampled_means
from sparc_dist.experiments.result import Result
from sparc_dist.experiments.session import ExperimentSession
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import ShardGroup, total
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs import UnitShards
from sparc_dist.runs.tables import Cell, Table

#: What is compared, by title. SPARC and duo are those with which the others are compared.
BASE, OTHER = "SPARC", "duo"
RANKED = {
    "ZSCLIP": ZSCLIP,
    "debiased": DEBIASED,
    BASE: SPARC,
    "SPARC, sqrt": Variant(Method(image_debias="sqrt")),
    "SPARC, rival": Variant(Method(rival=RIVAL)),
    "SPARC, sqrt and rival": Variant(Method(image_debias="sqrt", rival=RIVAL)),
}
VIEWED = {
    OTHER: DuoOptions(),
    "duo, no rival": DuoOptions(rival=0.0),
    "duo, no partners": DuoOptions(partners=False),
    "duo, scaling full": DuoOptions(scaling="full"),
    "duo, scaling none": DuoOptions(scaling="none"),
    "duo, no shrinkage": DuoOptions(shrinkage=0.0),
}
#: Those that the paper has numbers of, by their names in its table.
PRINTED = {"ZSCLIP": "zsclip", BASE: "sparc"}

COLUMNS = (
    *("data set", "backbone", "fusion", "mAP (%)", "paper (%)"),
    *(
        part
        for name in (BASE, OTHER)
        for part in (f"minus {name}", f"{name}, low", f"{name}, high")
    ),
)
SUMMARY = (*COLUMNS[:5], f"minus {BASE}", f"minus {OTHER}")
REMARKS = (
    REMARK,
    f"`sqrt`: scores are divided by the root of their image's SD, as in duo; `full`: by the SD, as "
    f"in SPARC; `none`: not. `rival`: {RIVAL} of an image's highest score is taken off its scores.",
)

Means = Mapping[str, ResampledMean]


@dataclass(frozen=True)
class Trials:
    """The fusions that are compared, not yet fitted."""

    ranked: Variants
    viewed: DuoVariants

    @classmethod
    def of(cls, mentions: Mentions) -> Trials:
        """Returns all of them, for the prompts of each column."""
        ranked = Variants(tuple(RANKED.values()), {STORED: mentions})
        return cls(ranked, DuoVariants(tuple(VIEWED.values()), mentions))

    def moments(self, scores: Scores) -> Each:
        """Pass 1: returns the state of one shard."""
        return Each({BASE: self.ranked.moments(scores), OTHER: self.viewed.moments(scores)})

    def products(self, scores: Scores, moments: Each) -> Each:
        """Pass 2: returns the state of one shard."""
        scatters = self.ranked.scatters(scores, moments[BASE])
        return Each({BASE: scatters, OTHER: self.viewed.products(scores, moments[OTHER])})


@dataclass(frozen=True)
class FittedTrials:
    """The fitted fusions: a source of final scores for ``resampled_means``."""

    shards: UnitShards
    ranked: Variants
    moments: Each
    weights: list[list[Floats]]
    viewed: list[Duo]

    @property
    def methods(self) -> Sequence[str]:
        """The titles of the fusions."""
        return (*RANKED, *VIEWED)

    def read(self, shard: int, classes: range) -> tuple[list[str], NDArray[np.float32]]:
        """Computes the final scores of a shard; a rival needs those of all columns."""
        ids, scores = self.shards.scores(shard)
        ranked = self.ranked.final(scores, self.moments, self.weights)
        every = np.concatenate([ranked, duo_final(self.viewed, scores)], axis=1)
        return ids.to_pylist(), every[:, :, classes.start : classes.stop]


def fusions(session: ExperimentSession) -> Result:
    """Returns the mAP of each fusion, and its differences from SPARC and from duo."""
    found, failures = session.for_each(session.selected_units(), _means)
    rows: list[list[Cell]] = []
    summary: list[list[Cell]] = []
    for key, means in found.items():
        for title, mean in means.items():
            gaps = {name: mean.minus(means[name]) for name in (BASE, OTHER)}
            start = [*key, title, mean.observed, _printed(session, key, title)]
            rows.append([*start, *(value for gap in gaps.values() for value in gap)])
            others = (None if title == name else _text(gap) for name, gap in gaps.items())
            summary.append([*start, *others])
    series = {
        " × ".join(key): [mean.minus(means[BASE]) for mean in means.values()]
        for key, means in found.items()
    }
    figure = intervals([*RANKED, *VIEWED], series, f"mAP minus that of {BASE} (points)")
    remarks = [*REMARKS, *session.run.remarks(), *failures]
    return Result("Fusions", Table(COLUMNS, rows), figure, remarks, _filled(summary))


def _filled(rows: Sequence[Sequence[Cell]]) -> Table:
    """Returns the table for the page, without the paper's numbers where it has none."""
    kept = [i for i in range(len(SUMMARY)) if any(row[i] is not None for row in rows)]
    return Table([SUMMARY[i] for i in kept], [[row[i] for i in kept] for row in rows], 2)


def _printed(session: ExperimentSession, key: tuple[str, str], title: str) -> float | None:
    """Returns the paper's mAP of a fusion, if it has the data set and the backbone."""
    unit = session.units[key]
    names = paper.dataset_name(unit.data.config), paper.backbone_name(unit.backbone)
    return paper.main_mean_ap(names[0], PRINTED.get(title, ""), names[1])


def _text(gap: tuple[float, float, float]) -> str:
    value, low, high = (f"{number:+.2f}" for number in gap)
    return f"{value} [{low}, {high}]"


def _means(unit: Unit) -> Means:
    """Fits all fusions in two passes; returns their mAPs."""
    passes, watch, shards = unit.passes(), unit.stages, unit.shards
    trials = share(Trials.of(unit.data.bank.mentions))
    moments = passes.merged("fusion_moments", watch, partial(_moments, shards), trials)
    products = passes.merged("fusion_products", watch, partial(_products, shards), trials, moments)
    fitted = get(submit(_fitted, trials, moments, products, shards), passes.limit, "Fitting")
    return resampled_means(unit, fitted)


def _moments(shards: UnitShards, group: ShardGroup, trials: Trials) -> Each:
    found: Each = total(trials.moments(shards.scores(shard)[1]) for shard in group.shards)
    return found


def _products(shards: UnitShards, group: ShardGroup, trials: Trials, moments: Each) -> Each:
    parts = (trials.products(shards.scores(shard)[1], moments) for shard in group.shards)
    found: Each = total(parts)
    return found


def _fitted(trials: Trials, moments: Each, products: Each, shards: UnitShards) -> FittedTrials:
    weights = trials.ranked.weights(products[BASE])
    viewed = trials.viewed.fit(moments[OTHER], products[OTHER])
    return FittedTrials(shards, trials.ranked, moments[BASE], weights, viewed)
