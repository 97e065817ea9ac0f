"""Segments: a run is scored in pieces that the driver can hold, with the same results."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sparc_dist import storage
from sparc_dist.config import load_config
from sparc_dist.pipeline import map_phase
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.map_phase import Todo
from sparc_dist.runner import run
from sparc_dist.runs import (
    Marker,
    MarkerSummary,
    Provenance,
    RunLayout,
    UnitLayout,
    markers,
)
from tests.support.command import outcome_hashes
from tests.support.running import go

BY = Provenance("weights", "prompts", "images", "cpu")


def test_segments_have_every_shard_once_with_its_backbones() -> None:
    todo = Todo({"a": np.array([0, 1, 5, 7]), "b": np.array([1, 2, 9])})
    segments = list(todo.segments(4))
    assert [[row["shard"] for row in rows] for rows in segments] == [[0, 1, 2, 5], [7, 9]]
    asked = {row["shard"]: row["backbones"] for rows in segments for row in rows}
    assert asked == {0: ["a"], 1: ["a", "b"], 2: ["b"], 5: ["a"], 7: ["a"], 9: ["b"]}
    assert not list(Todo({"a": np.array([], np.int64)}).segments(4))


@pytest.mark.usefixtures("cluster")
def test_several_segments_on_ray_have_the_same_bytes_as_one(
    original: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = finished / "run" / "scenes" / "tiny"
    shutil.rmtree(unit)
    monkeypatch.setattr(map_phase, "SEGMENT", 4)
    monkeypatch.setattr(map_phase, "SHARDS_PER_SCORER", 1)
    assert not go(finished).failures
    assert len(list((unit / "done").iterdir())) == 6
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Segments of four shards, and an executor that knows of it."""
    for module in (map_phase, markers):
        monkeypatch.setattr(module, "SEGMENT", 4)
    for module in (map_phase, markers):
        monkeypatch.setattr(module, "LEAST", 2)
    with using(InProcess()):
        yield


def test_complete_segments_have_a_table_and_damaged_shards_a_new_one(
    tmp_path: Path, write_config: Callable[..., str], small: None
) -> None:
    config = load_config(write_config({"classes": ["cat", "dog", "car"]}, shard_size=10))
    assert not run(config).failures
    unit = RunLayout(str(tmp_path / "run")).dataset("scenes").unit("tiny")
    tables = [Path(unit.marker_table(segment)) for segment in range(2)]
    before = [table.read_bytes() for table in tables]
    hashes = outcome_hashes(tmp_path / "run")
    for name in ("metrics", "decisions"):
        Path(getattr(unit, name)).unlink()
    shutil.rmtree(tmp_path / "run" / "scenes" / "tiny" / "reduce")
    Path(unit.scores(1)).write_bytes(b"changed")
    assert not run(config).failures
    assert outcome_hashes(tmp_path / "run") == hashes
    # Only the first segment was scored again, and it took other times.
    assert tables[0].read_bytes() != before[0]
    assert tables[1].read_bytes() == before[1]
    summary = MarkerSummary.of(unit, 6)
    assert (summary.images, list(summary.missing), summary.loose) == ([10] * 6, [], [])


def test_a_run_without_tables_is_read_and_gets_them(
    tmp_path: Path, write_config: Callable[..., str], small: None
) -> None:
    config = load_config(write_config({"classes": ["cat", "dog", "car"]}, shard_size=10))
    assert not run(config, phase="score").failures
    unit = RunLayout(str(tmp_path / "run")).dataset("scenes").unit("tiny")
    shutil.rmtree(tmp_path / "run" / "scenes" / "tiny" / "markers")
    assert MarkerSummary.of(unit, 6).loose == [0, 4]
    kept = Path(unit.scores(0)).stat().st_mtime_ns
    assert not run(config).failures
    assert Path(unit.scores(0)).stat().st_mtime_ns == kept
    assert Path(unit.marker_table(1)).exists()


def test_a_segment_is_not_compacted_before_its_damaged_shards_are_scored_again(
    tmp_path: Path, small: None
) -> None:
    unit = UnitLayout(str(tmp_path))
    for shard in range(8):
        Marker(shard, 1, 0, {}, {"scores": "old"}, BY, 0).write(unit)
    following = map_phase.Compaction(unit, MarkerSummary.of(unit, 8), np.array([1]))
    following.finish(60)
    assert [Path(unit.marker_table(segment)).exists() for segment in (0, 1)] == [False, True]
    Marker(1, 1, 0, {}, {"scores": "new"}, BY, 0).write(unit)
    following.done(1)
    following.finish(60)
    table = storage.read_table(unit.marker_table(0))
    assert ['"new"' in text for text in table["marker"].to_pylist()] == [False, True, False, False]


@pytest.mark.parametrize(
    ("scored", "begun"), [([], 0), ([0, 1], 2), ([0, 2, 5], 6), ([7], 8), (range(8), 8)]
)
def test_what_was_begun_is_known_from_the_markers(
    tmp_path: Path, small: None, scored: list[int], begun: int
) -> None:
    unit = UnitLayout(str(tmp_path))
    for shard in scored:
        Marker(shard, 1, 0, {}, {"scores": ""}, BY, 0).write(unit)
    summary = MarkerSummary.of(unit, 8)
    following = map_phase.Compaction(unit, summary, np.asarray(summary.missing))
    following.begin(begun)
    assert not Path(unit.begun).exists()
    following.begin(begun + 1)
    assert storage.read_json(unit.begun) == {"shards": begun + 1}
