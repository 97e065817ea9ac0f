"""The fusions of a unit: those that are listed have the results they have beside the other."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest

from sparc_dist.core import (
    Agreement,
    CountedState,
    Fitting,
    Kinds,
    Method,
    ScoredState,
    agreement_of,
    decide,
    evaluate,
    fit_fusions,
    judged_by,
    methods_of,
)
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
    totals = fusions.totals
    states = [ScoredState.of([shard], totals) for shard in shards]
    scored = reduce(add, (ScoredState.from_arrays(s.arrays()) for s in states))
    found = [CountedState.of([shard], scored, totals) for shard in shards]
    counted = reduce(add, (CountedState.from_arrays(s.arrays()) for s in found))
    rules = {name: decide(m, counted.counts[name], 20) for name, m in scored.moments.items()}
    judged = [agreement_of(judged_by(rules, final), own) for final, _, own in shards]
    kinds = Kinds(dict.fromkeys(rules, Agreement))
    agreement = reduce(add, (kinds.from_arrays(s.arrays()) for s in judged))
    return evaluate(scored, counted, agreement, CLASSES, "skip")


@pytest.mark.parametrize("name", ["sparc", "duo"])
def test_a_fusion_alone_has_the_scores_and_metrics_it_has_beside_the_other(
    name: str,
) -> None:
    method, (scores, mentions, _, _) = Method(fusions=(name,)), golden()
    fusions = fit_fusions(lambda: iter([scores]), mentions, len(CLASSES), method)
    both, final = golden_fusions()[1], fusions.final(scores)
    assert fusions.names == (name,)
    assert final.fusions == [name]
    for kept in ("zsclip", "debiased", name):
        assert final.methods[kept].tobytes() == both.methods[kept].tobytes()
    for found, expected in zip(final.columns(name), both.columns(name), strict=True):
        assert found.tobytes() == expected.tobytes()
    assert [*final.methods] == ["zsclip", "debiased", name]
    metrics, reference = evaluated(method), evaluated(Method())
    assert [*metrics] == methods_of([name]) == ["zsclip", "debiased", name]
    assert metrics == {key: reference[key] for key in metrics}
    with pytest.raises(ValueError, match=f"choose one of zsclip, debiased, {name}"):
        fusions.transform(scores, OTHER[name])
    with pytest.raises(KeyError):
        fusions[OTHER[name]]


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
    fitting = Fitting.start(mentions, 20, method)
    assert [stage for stage, _ in fitting.passes] == ["prompt_statistics", "rank_statistics"]
    prompts = fitting.gather()(scores)
    assert [*prompts] == ["debiased"]
    ranks = fitting.after(prompts).gather()(scores)
    assert fitting.passes[1][1].from_arrays(ranks.arrays()) == ranks == {}


def test_the_order_of_fusions_does_not_matter_and_the_primary_is_one_of_them() -> None:
    assert Method(fusions=("duo", "sparc")) == Method()
    assert Method().deciding("duo") == "duo"
    assert Method(fusions=("sparc",)).deciding("duo") == "sparc"
    assert Method(primary="sparc").deciding("duo") == "sparc"
    with pytest.raises(ValueError, match="primary is duo, which is not among the fusions"):
        Method(primary="duo", fusions=("sparc",))
    with pytest.raises(ValueError, match="list one or more of sparc, duo"):
        Method(fusions=())
