"""Tables of markers: what they save, and when they do not count."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparc_dist import storage
from sparc_dist.runs import Marker, MarkerSummary, Provenance, UnitLayout, markers
from sparc_dist.runs.markers import begin, begin_new, compact, forget, segment_of
from sparc_dist.runs.removal import drop_images
from sparc_dist.runs.shards import write_shard

BY = Provenance("weights", "prompts", "images", "cpu")


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UnitLayout:
    """A unit with ten scored shards; segments have four."""
    monkeypatch.setattr(markers, "SEGMENT", 4)
    monkeypatch.setattr(markers, "LEAST", 2)
    unit = UnitLayout(str(tmp_path))
    for shard in range(10):
        debiased = [[0.1 * shard, 1.0], [1.0, 2.0]]
        hashes = {"scores": f"hash of {shard}", "errors": ""}
        Marker(shard, 10, 1, {"empty": 1}, hashes, BY, 0, debiased=debiased).write(unit)
    return unit


def summary(unit: UnitLayout, shards: int = 10) -> tuple[object, ...]:
    found = MarkerSummary.of(unit, shards)
    moments = None if found.debiased is None else found.debiased.mean.tolist()
    return found.images, list(found.missing), found.reasons, found.scorings, found.key, moments


def test_a_start_reads_tables_in_place_of_markers(unit: UnitLayout) -> None:
    expected = summary(unit)
    assert MarkerSummary.of(unit, 10).loose == [0, 4, 8]
    for shard in (0, 4, 8):
        compact(unit, segment_of(shard, 10))
    assert summary(unit) == expected
    assert MarkerSummary.of(unit, 10).loose == []
    for shard in range(10):
        storage.delete(unit.marker(shard))
    assert summary(unit) == expected
    # New shards follow in the last segment: their markers are read beside the table.
    Marker(10, 5, 0, {}, {"scores": "new"}, BY, 0).write(unit)
    found = MarkerSummary.of(unit, 13)
    assert found.images == [10] * 10 + [5, 0, 0]
    assert list(found.missing) == [11, 12]


def test_a_segment_with_a_gap_has_no_table(unit: UnitLayout) -> None:
    storage.delete(unit.marker(5))
    compact(unit, segment_of(5, 10))
    assert not Path(unit.marker_table(1)).exists()
    found = MarkerSummary.of(unit, 10)
    assert (list(found.missing), found.loose) == ([5], [0, 8])


@pytest.mark.parametrize("content", [b"", b"no Parquet", None])
def test_a_damaged_or_emptied_table_does_not_count(unit: UnitLayout, content: bytes | None) -> None:
    expected = summary(unit)
    compact(unit, segment_of(0, 10))
    if content is None:
        forget(unit, 3)
    else:
        storage.write_bytes(unit.marker_table(0), content)
    assert summary(unit) == expected
    assert MarkerSummary.of(unit, 10).loose == [0, 4, 8]


def test_markers_that_cannot_exist_are_not_read(unit: UnitLayout) -> None:
    begin(unit, 6, 10)
    assert list(MarkerSummary.of(unit, 10).missing) == [6, 7, 8, 9]
    storage.write_bytes(unit.begun, b"{}")
    assert not MarkerSummary.of(unit, 10).missing


def test_a_list_that_is_written_again_loses_no_markers(unit: UnitLayout) -> None:
    begin_new(unit, 10)
    assert not MarkerSummary.of(unit, 10).missing
    storage.delete(unit.marker(0))
    begin_new(unit, 10)
    assert len(MarkerSummary.of(unit, 10).missing) == 10


def test_removed_images_leave_the_table_too(unit: UnitLayout) -> None:
    scores = pa.table({"image_id": ["a", "b"]})
    write_shard(unit, 2, scores, [], BY).write(unit)
    compact(unit, segment_of(2, 10))
    drop_images(unit, 2, ["b"])
    assert MarkerSummary.of(unit, 10).images == [10, 10, 1, *[10] * 7]
