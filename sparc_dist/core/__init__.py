"""The mathematics of SPARC in pure NumPy, shard by shard: moments, debias, ranks, fusion, AP.

Belongs here: kernels that work on one shard; every step that looks across images is a *state* with
``+``, so the same lines serve one matrix and a thousand shards. Does not: files, Ray, messages for
people. Uses no other room.
"""

from sparc_dist.core.average_precision import (
    EmptyClass,
    Positives,
    Reached,
    mean_average_precision,
    summarise,
)
from sparc_dist.core.debias import ImageDebias, Scores
from sparc_dist.core.fusion import Fusion, Method, merge
from sparc_dist.core.moments import ROUNDING, Floats, Moments, Scatter
from sparc_dist.core.order_statistics import Mentions, mentions_of
from sparc_dist.core.sparc import PromptState, RankState, finish, fit, needs_ranks

__all__ = [
    "ROUNDING",
    "EmptyClass",
    "Floats",
    "Fusion",
    "ImageDebias",
    "Mentions",
    "Method",
    "Moments",
    "Positives",
    "PromptState",
    "RankState",
    "Reached",
    "Scatter",
    "Scores",
    "finish",
    "fit",
    "mean_average_precision",
    "mentions_of",
    "merge",
    "needs_ranks",
    "summarise",
]
