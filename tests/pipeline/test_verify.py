"""Damaged files of a run: found by verify and by every reader, and made again by the next start."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparc_dist
from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.errors import UserError
from sparc_dist.pipeline.verify import verify
from tests.support.command import contents
from tests.support.running import go

UNIT = "run/scenes/tiny"
#: Files that only a backup can restore.
GIVEN = ("run/run.json", "run/scenes/dataset.json", "run/scenes/images.parquet")
#: Of every other kind of file one, and whether the command `report` makes it again.
MADE = {
    f"{UNIT}/done/00001.json": False,
    f"{UNIT}/scores/00001.parquet": False,
    f"{UNIT}/errors/00001.parquet": False,
    f"{UNIT}/final/00001.parquet": False,
    f"{UNIT}/labels/00001.parquet": False,
    f"{UNIT}/labels-wide/00001.parquet": False,
    f"{UNIT}/reduce/prompt_statistics/01.npz": False,
    f"{UNIT}/reduce/labels/01.npz": False,
    f"{UNIT}/decisions.json": False,
    f"{UNIT}/gallery.npz": False,
    f"{UNIT}/labeler.safetensors": False,
    f"{UNIT}/metrics.json": False,
    f"{UNIT}/texts.parquet": False,
    "run/report/report.json": True,
    "run/report/index.html": True,
    "run/report/tables.csv": True,
}


def flip(path: Path, seed: int = 0) -> None:
    """Flips a bit of a file, as a bad disk does."""
    content = bytearray(path.read_bytes())
    place = random.Random(f"{path.name} {seed}").randrange(len(content))
    content[place] ^= 1 << place % 8
    path.write_bytes(content)


def test_a_whole_run_is_verified(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [path for path in (finished / "run").rglob("*") if path.is_file()]
    assert main(["verify", str(finished / "run")]) == 0
    assert f"All {len(files)} files are as they were written" in capsys.readouterr().out


@pytest.mark.parametrize("name", MADE)
def test_a_damaged_file_is_named_and_made_again(
    name: str, finished: Path, original: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(finished / name)
    assert main(["verify", str(finished / "run")]) == 1
    said = capsys.readouterr().out
    assert f"{finished / name} is damaged; " in said
    assert ("sparc-dist report" if MADE[name] else "repeat the command") in said
    assert "1 of" in said
    if MADE[name]:
        assert main(["report", str(finished / "run")]) == 0
    else:
        assert not go(finished).failures
    assert not verify(str(finished / "run")).faults
    assert contents(finished / UNIT) == contents(original / UNIT)


@pytest.mark.parametrize("name", GIVEN)
def test_a_file_that_cannot_be_made_again(name: str, finished: Path) -> None:
    flip(finished / name)
    try:
        (named,) = map(str, verify(str(finished / "run")).faults)
    except UserError as error:  # without run.json it is not known which files there are
        named = str(error)
    assert Path(name).name in named
    assert "restore it from a backup" in named
    before = {path: path.read_bytes() for path in (finished / UNIT).rglob("*") if path.is_file()}
    if "images" in name:  # a finished run has no need to read it
        shutil.rmtree(finished / UNIT / "reduce")
        (finished / UNIT / "metrics.json").unlink()
        before = {path: content for path, content in before.items() if path.exists()}
    try:
        told = " ".join(go(finished).failures.values())
    except UserError as error:
        told = str(error)
    assert Path(name).name in told
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.parametrize("name", ["final", "labels", "labels-wide"])
def test_the_next_start_notices_damaged_results_by_itself(
    name: str, finished: Path, original: Path
) -> None:
    flip(finished / UNIT / name / "00001.parquet")
    assert not go(finished).nothing_to_do
    assert contents(finished / UNIT) == contents(original / UNIT)
    assert go(finished).nothing_to_do


def test_missing_files_are_named(finished: Path) -> None:
    for name in ("final/00002.parquet", "done/00003.json", "decisions.json"):
        (finished / UNIT / name).unlink()
    found = {
        Path(fault.part.url).name: fault.what for fault in verify(str(finished / "run")).faults
    }
    assert found == dict.fromkeys(("00002.parquet", "00003.json", "decisions.json"), "missing")


def _export(run: Path) -> None:
    if main(["export", str(run), "--format", "csv", "--out", str(run.parent / "x.csv")]):
        raise UserError("export failed")


READERS: dict[str, Callable[[Path], object]] = {
    "labels": lambda run: sparc_dist.open_run(str(run)).labels(),
    "final": lambda run: sparc_dist.open_run(str(run)).final(),
    "scores": lambda run: sparc_dist.open_run(str(run)).scores(),
    "errors": lambda run: sparc_dist.open_run(str(run)).errors(),
    "export": _export,
}


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        ("labels", "labels/00001.parquet"),
        ("final", "final/00001.parquet"),
        ("scores", "scores/00001.parquet"),
        ("errors", "errors/00001.parquet"),
        ("export", "labels/00001.parquet"),
        ("export", "final/00001.parquet"),
        ("export", "../images.parquet"),
    ],
)
def test_readers_never_serve_a_damaged_file(reader: str, name: str, finished: Path) -> None:
    """Fifty bits of each file, one at a time."""
    path = finished / UNIT / name
    content = path.read_bytes()
    expected = READERS[reader](finished / "run")
    for seed in range(50):
        flip(path, seed)
        (finished / "x.csv").unlink(missing_ok=True)
        try:
            found = READERS[reader](finished / "run")
        except UserError:
            continue
        finally:
            path.write_bytes(content)
        # Only a bit that nothing depends on may pass.
        assert "images.parquet" in name
        assert found == expected


def test_labels_that_somebody_rotated_are_noticed(finished: Path) -> None:
    """They changed the mAP without a word."""
    path = finished / "run" / "scenes" / "images.parquet"
    table = pq.read_table(path)
    labels = table["labels"].to_pylist()
    rotated = pa.array([*labels[1:], labels[0]], table.schema.field("labels").type)
    place = table.column_names.index("labels")
    pq.write_table(table.set_column(place, "labels", rotated), path, row_group_size=10)
    for name in (finished / UNIT / "reduce").rglob("*.npz"):
        name.unlink()
    (finished / UNIT / "metrics.json").unlink()
    (reason,) = go(finished).failures.values()
    assert "images.parquet is damaged" in reason


@pytest.mark.ray
def test_a_run_is_verified_on_ray(finished: Path, cluster: str) -> None:
    flip(finished / UNIT / "labels" / "00001.parquet")
    (fault,) = verify(str(finished / "run")).faults
    assert fault.part.url.endswith("labels/00001.parquet")


def test_a_damaged_marker_table_is_read_one_by_one(tmp_path: Path) -> None:
    url = str(tmp_path / "x.parquet")
    storage.write_table(url, pa.table({"shard": [0], "marker": ["{}"]}))
    flip(Path(url))
    with pytest.raises(storage.Damaged):
        storage.read_table(url)
