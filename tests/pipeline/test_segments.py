"""Segments: a run is scored in pieces that the driver can hold, with the same results."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from sparc_dist.pipeline import map_phase
from sparc_dist.pipeline.todo import Todo
from tests.support.command import outcome_hashes
from tests.support.running import go


def test_segments_have_every_shard_once_with_its_backbones() -> None:
    todo = Todo({"a": np.array([0, 1, 5, 7]), "b": np.array([1, 2, 9])})
    segments = list(todo.segments(4))
    assert [[row["shard"] for row in rows] for rows in segments] == [[0, 1, 2, 5], [7, 9]]
    asked = {row["shard"]: row["backbones"] for rows in segments for row in rows}
    assert asked == {0: ["a"], 1: ["a", "b"], 2: ["b"], 5: ["a"], 7: ["a"], 9: ["b"]}
    assert not list(Todo({"a": np.array([], np.int64)}).segments(4))


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
