"""The mathematics of SPARC and duo in pure NumPy, shard by shard: from scores to decisions and AP.

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
from sparc_dist.core.class_counts import ClassCounts
from sparc_dist.core.debias import ImageDebias, Scores
from sparc_dist.core.decision_metrics import Agreement, expected_f1
from sparc_dist.core.decisions import Decision, Knowledge, can_estimate, decide
from sparc_dist.core.drift import drift
from sparc_dist.core.duo import Duo, DuoOptions
from sparc_dist.core.ensemble import Standard, average
from sparc_dist.core.final_scores import METHODS, FinalScores, Labelled, methods_of
from sparc_dist.core.fusion import DECIDING, Fusion, Method, merge
from sparc_dist.core.gallery import Gallery
from sparc_dist.core.moments import ROUNDING, Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, mentions_of
from sparc_dist.core.reduction import (
    DecidedStatistics,
    DecisionStatistics,
    FinalStatistics,
    Fusions,
    GalleryStatistics,
    LabelStatistics,
    PromptStatistics,
    RankStatistics,
    evaluate,
    fit_fusions,
)
from sparc_dist.core.sparc import PromptState, RankState
from sparc_dist.core.views import Views

__all__ = [
    "DECIDING",
    "METHODS",
    "ROUNDING",
    "Agreement",
    "Answers",
    "ClassCounts",
    "DecidedStatistics",
    "Decision",
    "DecisionStatistics",
    "Duo",
    "DuoOptions",
    "EmptyClass",
    "FinalScores",
    "FinalStatistics",
    "Floats",
    "Fusion",
    "Fusions",
    "Gallery",
    "GalleryStatistics",
    "ImageDebias",
    "Knowledge",
    "LabelStatistics",
    "Labelled",
    "Mentions",
    "Method",
    "Moments",
    "Positives",
    "PromptState",
    "PromptStatistics",
    "RankState",
    "RankStatistics",
    "Reached",
    "Scatter",
    "Scores",
    "Standard",
    "Views",
    "average",
    "can_estimate",
    "check_finite",
    "decide",
    "drift",
    "evaluate",
    "expected_f1",
    "fit_fusions",
    "matrix",
    "mean_average_precision",
    "mentions_of",
    "merge",
    "methods_of",
    "slices",
    "summarise",
]
