"""What a unit's markers add up to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from sparc_dist.pipeline.unit import MOST_REASONS, _facts
from sparc_dist.runs import Marker, MarkerSummary, Provenance, UnitLayout

BY = Provenance("weights", "prompts", "images", "cpu")


def test_markers_are_tallied_and_gaps_found(tmp_path: Path) -> None:
    unit = UnitLayout(str(tmp_path))
    for shard, reasons in ((0, {"empty": 2}), (2, {"empty": 1, "no image": 1}), (3, {})):
        hashes = {"scores": f"hash of {shard}", "errors": ""}
        Marker(shard, 10, sum(reasons.values()), reasons, hashes, BY, 0, retries=1).write(unit)
    (tmp_path / "done" / "00003.json").write_text('{"shard": 3}')
    tally = MarkerSummary.of(unit, 4)
    assert tally.images == [10, 0, 10, 0]
    assert list(tally.missing) == [1, 3]
    assert tally.reasons == {"empty": 3, "no image": 1}
    assert (tally.errors, tally.retries, tally.scorings) == (4, 2, {BY})
    Marker(2, 10, 0, {}, {"scores": "other scores", "errors": ""}, BY, 0).write(unit)
    assert MarkerSummary.of(unit, 4).key != tally.key


def test_the_commonest_reasons_are_told_and_the_rest_counted() -> None:
    reasons = Counter({f"reason {index:02d}": 1 + index for index in range(30)})
    tally = MarkerSummary(images=[1000], errors=reasons.total(), reasons=reasons, scorings={BY})
    errors = _facts(tally)["errors"]
    assert errors["share"] == 465 / 1465
    assert len(errors["reasons"]) == MOST_REASONS + 1
    assert next(iter(errors["reasons"].items())) == ("reason 29", 30)
    assert errors["reasons"]["other reasons"] == sum(range(1, 11))
    assert sum(errors["reasons"].values()) == 465
