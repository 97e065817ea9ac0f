"""The status of a run, as read from storage."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sparc_dist import storage
from sparc_dist.config import Config
from sparc_dist.core import States
from sparc_dist.errors import UserError
from sparc_dist.runs import (
    STAGES,
    Marker,
    Provenance,
    RunLayout,
    UnitLayout,
    reduce_checkpoints,
    shard_groups,
)
from sparc_dist.runs.record import FORMAT
from sparc_dist.runs.status import UnitStatus, status, to_text
from tests.support.command import sparc_dist
from tests.support.s3 import FaultProxy

BY = Provenance("weights", "prompts", "images", "cpu")
SHARDS, IMAGES = 70, 279  # two shards per group, the last shard is one image short
GROUPS = 35


def begin(
    root: str, backbones: Iterable[str], datasets: Iterable[str] = ("voc",), **changes: Any
) -> RunLayout:
    """Writes the parts of run.json that status reads; ``units`` is from an earlier start."""
    units = changes.pop("units", [])
    config = Config.model_validate(
        {
            "output": root,
            "datasets": [{"name": name, "images": "i.csv", "classes": ["a"]} for name in datasets],
            "backbones": [{"name": name, "model": "sparc-tiny"} for name in backbones],
            **changes,
        }
    )
    record = {"format": FORMAT, "config": config.identity(), "inputs": {}, "units": units}
    storage.write_json(RunLayout(root).run, record)
    return RunLayout(root)


def prepare(layout: RunLayout, labelled: int = IMAGES, shards: int = SHARDS) -> None:
    counts = {"images": IMAGES, "labelled": labelled, "shards": shards}
    storage.write_json(layout.dataset("voc").marker, {**counts, "notes": []})


def score(unit: UnitLayout, shards: int, errors: int = 0) -> UnitLayout:
    """Writes the markers of the first shards; the first shard has ``errors`` unreadable images."""
    for shard in range(shards):
        bad = 0 if shard else errors
        images = (4 if shard < SHARDS - 1 else 3) - bad
        reasons = {"empty": bad} if bad else {}
        Marker(shard, images, bad, reasons, {"scores": "s", "errors": "e"}, BY, 0).write(unit)
    return unit


def reduce(unit: UnitLayout, *groups: int) -> None:
    """Writes, for one pass after the other, the states of the first ``groups`` groups."""
    for stage, count in zip(STAGES, groups, strict=False):
        for group in range(count):
            reduce_checkpoints.save(unit.state(stage, group), "key", States())


def finish(unit: UnitLayout, zsclip: float | None = 50.0, sparc: float | None = 61.25) -> None:
    maps = {"zsclip": zsclip, "debiased": 55.0, "sparc": sparc}
    facts = {"images": IMAGES - 2, "errors": {"images": 2, "share": 0.1, "reasons": {"empty": 2}}}
    metrics: dict[str, Any] = {name: {"mAP": value, "AP": {}} for name, value in maps.items()}
    storage.write_json(unit.metrics, {**metrics, **facts})


def failed(dataset: str, backbone: str, error: str) -> dict[str, str]:
    """Returns a failed unit as run.json records it."""
    return {"dataset": dataset, "backbone": backbone, "status": "failed", "error": error}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with a unit at each stage."""
    names = ("new", "texts", "some", "scored", "ranks", "final", "counts", "last", "done", "broken")
    left = [failed("voc", "broken", "The weights\nare damaged.")]
    layout = begin(str(tmp_path_factory.mktemp("run")), names, ("voc", "later"), units=left)
    prepare(layout)
    data = layout.dataset("voc")
    storage.write_bytes(data.unit("texts").texts, b"")
    score(data.unit("some"), 30, errors=2)
    score(data.unit("broken"), 1)
    passes = {
        "scored": (),
        "ranks": (GROUPS, 12),
        "final": (GROUPS, GROUPS, GROUPS - 1),
        "counts": (GROUPS, GROUPS, GROUPS),
        "last": (GROUPS,) * 5,
    }
    for name, groups in passes.items():
        reduce(score(data.unit(name), SHARDS), *groups)
    finish(data.unit("done"))
    return layout.root


def test_each_stage_is_reported(root: str) -> None:
    units = {unit.backbone: unit for unit in status(root) if unit.dataset == "voc"}
    assert {name: unit.stage for name, unit in units.items()} == {
        "new": "not begun",
        "texts": "texts embedded",
        "some": "scoring",
        "scored": "prompt statistics, 0 of 35 groups",
        "ranks": "rank statistics, 12 of 35 groups",
        "final": "final scores, 34 of 35 groups",
        "counts": "decision statistics, 0 of 35 groups",
        "last": "finishing",
        "done": "done, mAP 50.0 ZSCLIP, 61.2 SPARC",
        "broken": "failed: The weights are damaged.",
    }
    assert units["new"] == UnitStatus("voc", "new", "not begun", IMAGES, 0, 0, SHARDS, 0)
    assert units["some"] == UnitStatus("voc", "some", "scoring", IMAGES, 118, 2, SHARDS, 30)
    done = units["done"]
    assert (done.scored, done.errors, done.shards_done, done.done) == (IMAGES - 2, 2, SHARDS, True)
    assert units["broken"].shards_done == 1


def test_a_data_set_that_is_not_prepared(root: str) -> None:
    units = [unit for unit in status(root) if unit.dataset == "later"]
    assert {unit.stage for unit in units} == {"not prepared"}
    assert {(unit.images, unit.shards) for unit in units} == {(0, 0)}


def test_a_unit_without_labels_is_done(tmp_path: Path) -> None:
    layout = begin(str(tmp_path), ["done"])
    prepare(layout, labelled=0)
    finish(layout.dataset("voc").unit("done"), None, None)
    (unit,) = status(layout.root)
    assert unit.stage == "done, without labels"


def test_a_unit_with_too_many_errors_has_failed_although_it_has_metrics(tmp_path: Path) -> None:
    left = [failed("voc", "b", "Too many images could not be read.")]
    layout = begin(str(tmp_path), ["b"], units=left)
    prepare(layout)
    finish(layout.dataset("voc").unit("b"))
    (unit,) = status(layout.root)
    assert unit.stage == "failed: Too many images could not be read."
    assert (unit.scored, unit.shards_done, unit.done) == (IMAGES - 2, SHARDS, False)


def test_the_table_is_aligned_and_summed() -> None:
    units = [
        UnitStatus("voc2007", "ViT-B-32", "scoring", 4952, 2560, 1, 20, 10),
        UnitStatus(
            "voc2007", "RN50", "done, mAP 50.0 ZSCLIP, 61.2 SPARC", 4952, 4950, 2, 20, 20, done=True
        ),
        UnitStatus("coco", "RN50", "not prepared"),
    ]
    assert to_text(units).splitlines() == [
        "data set  backbone  scored  images  errors  shards  stage",
        "voc2007   ViT-B-32   2,560   4,952       1   10/20  scoring",
        "voc2007   RN50       4,950   4,952       2   20/20  done, mAP 50.0 ZSCLIP, 61.2 SPARC",
        "coco      RN50           –       –       –       –  not prepared",
        "sum                  7,510   9,904       3   30/40  1 of 3 units done",
    ]


def test_the_command_as_typed(root: str) -> None:
    before = {path: os.stat(path).st_mtime_ns for path in Path(root).rglob("*")}
    done = sparc_dist("status", root)
    assert (done.returncode, done.stderr) == (1, "")  # a unit failed
    assert done.stdout == to_text(status(root)) + "\n"
    assert done.stdout.count("\n") == 1 + 2 * 10 + 1
    assert {path: os.stat(path).st_mtime_ns for path in Path(root).rglob("*")} == before


def test_neither_ray_nor_torch_is_imported(root: str) -> None:
    code = (
        "import sys; from sparc_dist.cli import main; main(['status', sys.argv[1]]);"
        "print({'ray', 'torch', 'open_clip'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, root], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "There is no run at {}; check the URL, or start the run."),
        ("{", "The run.json at {} is damaged; restore it from a backup."),
        ("[]", "The run.json at {} is damaged; restore it from a backup."),
    ],
)
def test_a_missing_or_damaged_run_is_an_error(
    tmp_path: Path, content: str | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError) as caught:
        status(str(tmp_path))
    assert str(caught.value) == expected.format(tmp_path)


def test_no_run_is_exit_code_2(tmp_path: Path) -> None:
    done = sparc_dist("status", tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sparc-dist: There is no run at ")
    assert done.stderr.count("\n") == 1


def test_on_s3_files_are_read_by_name_and_nothing_else(on_s3: FaultProxy) -> None:
    layout = begin("s3://runs/status", ["some", "reducing"])
    prepare(layout, shards=5)
    data = layout.dataset("voc")
    score(data.unit("some"), 3)
    reduce(score(data.unit("reducing"), 5), 2)
    on_s3.log.clear()
    for closed in (False, True):
        on_s3.behave(hide_missing=closed)  # like a store that forbids listing
        stages = [unit.stage for unit in status(layout.root)]
        assert stages == ["scoring", "prompt statistics, 2 of 5 groups"]
    assert {request.method for request in on_s3.log} == {"GET"}
    assert all(request.key for request in on_s3.log)


@pytest.mark.parametrize("shards", [1, 2, 63, 64, 65, 70, 128, 129, 4000])
def test_groups_hold_every_shard_once(shards: int) -> None:
    groups = shard_groups(shards)
    assert [shard for group in groups for shard in group] == list(range(shards))
    assert all(groups)
