"""The fusions of a unit: those that are listed have the results they have beside the other."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest

from sparc_dist.core import (
    DecisionStatistics,
    FinalStatistics,
    LabelStatistics,
    Method,
    PromptStatistics,
    RankStatistics,
    decide,
    evaluate,
    fit_fusions,
    methods_of,
)
from sparc_dist.core.fusion import FusionName
from tests.support.cases import cut, golden
from tests.support.golden_unit import CLASSES, golden_fusions

OTHER = {"sparc": "duo", "duo": "sparc"}


def evaluated(method: Method) -> dict[str, Any]:
    """The metrics of the golden set, through shards whose states survive as arrays."""
    scores, mentions, labels, _ = golden()
    fusions = fit_fusions(lambda: cut(scores, 3), mentions, len(CLASSES), method)
    parts = cut(scores, 3)
    cuts = np.split(labels, np.cumsum([len(part) for part in parts])[:-1])
    pairs = zip(parts, cuts, strict=True)
    shards = [(fusions.final(s), np.ones(len(s), dtype=bool), own) for s, own in pairs]
    states = [FinalStatistics.of([shard]) for shard in shards]
    statistics = reduce(add, (FinalStatistics.from_arrays(s.arrays()) for s in states))
    counted = [DecisionStatistics.of([shard], statistics) for shard in shards]
    counts = reduce(add, (DecisionStatistics.from_arrays(s.arrays()) for s in counted))
    rules = {name: decide(m, counts.counts[name], 20) for name, m in statistics.moments.items()}
    judged = [LabelStatistics.of(final, own, rules) for final, _, own in shards]
    agreement = reduce(add, (LabelStatistics.from_arrays(s.arrays()) for s in judged))
    return evaluate(statistics, counts, agreement, CLASSES, "skip")


@pytest.mark.parametrize("name", ["sparc", "duo"])
def test_a_fusion_alone_has_the_scores_and_metrics_it_has_beside_the_other(
    name: FusionName,
) -> None:
    method, (scores, mentions, _, _) = Method(fusions=(name,)), golden()
    fusions = fit_fusions(lambda: iter([scores]), mentions, len(CLASSES), method)
    both, final = golden_fusions()[1], fusions.final(scores)
    assert fusions.names == (name,)
    assert final.fusions == [name]
    for kept in ("zsclip", "debiased", name):
        assert getattr(final, kept).tobytes() == getattr(both, kept).tobytes()
    for found, expected in zip(final.columns(name), both.columns(name), strict=True):
        assert found.tobytes() == expected.tobytes()
    assert getattr(final, OTHER[name]).shape == (800, 0)
    metrics, reference = evaluated(method), evaluated(Method())
    assert [*metrics] == methods_of([name]) == ["zsclip", "debiased", name]
    assert metrics == {key: reference[key] for key in metrics}
    with pytest.raises(ValueError, match=f"choose one of zsclip, debiased, {name}"):
        fusions.transform(scores, OTHER[name])
    with pytest.raises(KeyError):
        fusions.fusion(OTHER[name])


def test_duo_alone_sorts_nothing_and_sparc_alone_has_no_views(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, mentions, _, _ = golden()

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("sparc_dist.core.order_statistics.Ranking.vectors", never)
    fusions = fit_fusions(lambda: iter([scores]), mentions, 20, Method(fusions=("duo",)))
    assert len(fusions.final(scores)) == 800
    monkeypatch.setattr("sparc_dist.core.duo.image_step", never)
    method = Method("mean", fusions=("sparc",))
    prompts = PromptStatistics.of(scores, method)
    ranks = RankStatistics.maker(prompts, mentions, method)(scores)
    assert prompts.parts[1] is ranks.parts[1] is None
    assert [a.tolist() for a in RankStatistics.from_arrays(ranks.arrays()).arrays()] == [
        a.tolist() for a in ranks.arrays()
    ]


def test_the_order_of_fusions_does_not_matter_and_the_primary_is_one_of_them() -> None:
    assert Method(fusions=("duo", "sparc")) == Method()
    assert Method().deciding("duo") == "duo"
    assert Method(fusions=("sparc",)).deciding("duo") == "sparc"
    assert Method(primary="sparc").deciding("duo") == "sparc"
    with pytest.raises(ValueError, match="primary is duo, which is not among the fusions"):
        Method(primary="duo", fusions=("sparc",))
    with pytest.raises(ValueError, match="list sparc, duo or both"):
        Method(fusions=())
