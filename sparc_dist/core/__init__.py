"""The mathematics of SPARC and duo in pure NumPy, shard by shard: from scores to decisions and AP.

Belongs here: kernels that work on one shard; every step that looks across images is a *state* with
``+``, so the same lines serve one matrix and a thousand shards. Does not: files, Ray, messages for
people. Uses no other room.
"""

from sparc_dist.core.answers import Answers
from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    mean_average_precision,
    summarise,
)
from sparc_dist.core.debias import ImageDebias, Scores
from sparc_dist.core.decision_metrics import Agreement, oracle
from sparc_dist.core.decisions import Decision, Knowledge, can_estimate, decide, top
from sparc_dist.core.duo import Duo, DuoOptions
from sparc_dist.core.fusion import Fusion, Method, merge
from sparc_dist.core.moments import ROUNDING, Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, mentions_of
from sparc_dist.core.reduction import (
    DECIDING,
    METHODS,
    DecisionStatistics,
    FinalScores,
    FinalStatistics,
    Fusions,
    LabelStatistics,
    PromptStatistics,
    RankStatistics,
    evaluate,
    fit_fusions,
)
from sparc_dist.core.sparc import PromptState, RankState, finish, fit, needs_ranks
from sparc_dist.core.views import Views

__all__ = [
    "DECIDING",
    "METHODS",
    "ROUNDING",
    "Agreement",
    "Answers",
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
    "ImageDebias",
    "Knowledge",
    "LabelStatistics",
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
    "Views",
    "can_estimate",
    "decide",
    "evaluate",
    "finish",
    "fit",
    "fit_fusions",
    "mean_average_precision",
    "mentions_of",
    "merge",
    "needs_ranks",
    "oracle",
    "summarise",
    "top",
]
