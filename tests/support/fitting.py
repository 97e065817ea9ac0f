"""SPARC or duo alone, fitted on shards in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from sparc_dist.core import Duo, DuoOptions, Floats, Mentions, Method, Scores, Sparc, fit_fusions

Shards = Callable[[], Iterable[Scores]]


def fit_sparc(shards: Shards, mentions: Mentions, method: Method) -> Sparc:
    """SPARC with the options of a method; ``shards`` returns a new iterator for each pass."""
    alone = replace(method, fusions=("sparc",))
    sparc = fit_fusions(shards, mentions, len(mentions), alone)["sparc"]
    assert isinstance(sparc, Sparc)
    return sparc


def debiased_and_final(sparc: Sparc, scores: Scores) -> tuple[Floats, Floats]:
    """The debiased singletons and SPARC's scores, both (n, N)."""
    return sparc.debias_singletons(scores), np.asarray(sparc.final(scores)[1])


def fit_duo(shards: Shards, mentions: Mentions, options: DuoOptions) -> Duo:
    """Duo; ``shards`` returns a new iterator for each pass."""
    method = Method(duo=options, fusions=("duo",))
    duo = fit_fusions(shards, mentions, len(mentions), method)["duo"]
    assert isinstance(duo, Duo)
    return duo
