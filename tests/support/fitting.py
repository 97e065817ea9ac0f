"""SPARC or duo alone, fitted on shards in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sparc_dist.core import Duo, DuoOptions, Fusion, Mentions, Method, Scores, fit_fusions

Shards = Callable[[], Iterable[Scores]]


def fit_sparc(shards: Shards, mentions: Mentions, method: Method) -> Fusion:
    """SPARC with the options of a method; ``shards`` returns a new iterator for each pass."""
    return fit_fusions(shards, mentions, len(mentions), replace(method, fusions=("sparc",))).sparc


def fit_duo(shards: Shards, mentions: Mentions, options: DuoOptions) -> Duo:
    """Duo; ``shards`` returns a new iterator for each pass."""
    method = Method(duo=options, fusions=("duo",))
    duo = fit_fusions(shards, mentions, len(mentions), method).duo
    assert duo is not None
    return duo
