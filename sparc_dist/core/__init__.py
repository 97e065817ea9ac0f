"""The mathematics in pure NumPy, shard by shard: fusions, decisions, evaluation.

Belongs here: kernels that work on one shard; every step that looks across images is a *state* with
``+``, so the same lines serve one matrix and a thousand shards. Does not: files, Ray, messages for
people. Uses no other room.
"""

from sparc_dist.core.answers import Answers
from sparc_dist.core.arrays import check_finite, matrix, slices
from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    mean_average_precision,
    summarise,
)
from sparc_dist.core.baselines import PLAIN
from sparc_dist.core.class_counts import ClassCounts
from sparc_dist.core.debias import ImageDebias, Scores
from sparc_dist.core.decision_metrics import Agreement, expected_f1
from sparc_dist.core.decisions import Decision, Knowledge, can_estimate, decide
from sparc_dist.core.drift import drift
from sparc_dist.core.duo import Duo
from sparc_dist.core.ensemble import Standard, average
from sparc_dist.core.final_scores import FinalScores, Labelled, width_of
from sparc_dist.core.fusion import Fusion, Given
from sparc_dist.core.fusions import (
    FUSIONS,
    Fitting,
    Fusions,
    columns_of,
    deciding,
    fit_fusions,
    methods_of,
    stages_of,
    totals_of,
)
from sparc_dist.core.gallery import Gallery
from sparc_dist.core.method import DuoOptions, Method
from sparc_dist.core.moments import ROUNDING, Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, mentions_of
from sparc_dist.core.reduction import (
    CountedState,
    LabelledState,
    ScoredState,
    ShownState,
    agreement_of,
    evaluate,
    judged_by,
)
from sparc_dist.core.sparc import Sparc, merge
from sparc_dist.core.states import Kinds, State, States
from sparc_dist.core.views import Views

__all__ = [
    "FUSIONS",
    "PLAIN",
    "ROUNDING",
    "Agreement",
    "Answers",
    "ClassCounts",
    "CountedState",
    "Decision",
    "Duo",
    "DuoOptions",
    "EmptyClass",
    "FinalScores",
    "Fitting",
    "Floats",
    "Fusion",
    "Fusions",
    "Gallery",
    "Given",
    "ImageDebias",
    "Kinds",
    "Knowledge",
    "Labelled",
    "LabelledState",
    "Mentions",
    "Method",
    "Moments",
    "Positives",
    "Reached",
    "Scatter",
    "ScoredState",
    "Scores",
    "ShownState",
    "Sparc",
    "Standard",
    "State",
    "States",
    "Views",
    "agreement_of",
    "average",
    "can_estimate",
    "check_finite",
    "columns_of",
    "decide",
    "deciding",
    "drift",
    "evaluate",
    "expected_f1",
    "fit_fusions",
    "judged_by",
    "matrix",
    "mean_average_precision",
    "mentions_of",
    "merge",
    "methods_of",
    "slices",
    "stages_of",
    "summarise",
    "totals_of",
    "width_of",
]
