"""Many bad images: each becomes one row, in the scores or in the errors, without a crash."""

from __future__ import annotations

import csv
import logging
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.config import DatasetConfig, load_config
from sparc_dist.datasets import open_source
from sparc_dist.datasets.images import in_utf8
from sparc_dist.images import HEIC, SUFFIXES
from sparc_dist.images.decoding import BadImage, decode
from sparc_dist.runner import run
from tests.support.malformed import NAMES, corpus
from tests.support.pictures import picture

SIZE = 64
#: Names that a table can store as text.
TEXTS = [name for name in NAMES if name == in_utf8(name)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return corpus(tmp_path_factory.mktemp("malformed") / "corpus")


def reason_of(path: Path) -> str:
    """Returns why a file cannot be decoded; "" if it can."""
    try:
        pixels = decode(path.read_bytes(), SIZE)
    except BadImage as error:
        return str(error)
    assert pixels.shape == (SIZE, SIZE, 3)
    assert pixels.dtype == np.uint8
    return ""


def test_the_corpus_is_large_varied_and_always_the_same(files: list[Path], tmp_path: Path) -> None:
    again = corpus(tmp_path / "corpus")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in files]
    assert len(files) >= 300
    assert {path.suffix.lower() for path in files} == {*SUFFIXES} - {*HEIC}
    groups = Counter(path.parent.name for path in files)
    assert min(groups.values()) >= 30
    assert sum(path.stat().st_size for path in files) < 20 * 2**20


def test_every_file_is_decoded_or_has_a_reason_of_one_line(
    files: list[Path], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        reasons = {path: reason_of(path) for path in files}
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    for path, reason in reasons.items():
        assert len(reason.splitlines()) <= 1, path
        assert len(reason) < 200, path
    refused = Counter(path.parent.name for path, reason in reasons.items() if reason)
    counts = Counter(path.parent.name for path in files)
    assert refused["nothing"] == counts["nothing"]
    assert refused["named"] == 0
    # A cut after the first frame or the last pixel does no harm.
    assert 0.7 * counts["truncated"] < refused["truncated"] < counts["truncated"]
    assert not [path for path in reasons if path.name.startswith("exif-") and reasons[path]]


def test_giant_sizes_are_refused_before_memory_is_taken(files: list[Path]) -> None:
    program = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from sparc_dist.images.decoding import BadImage, decode\n"
        "def peak():\n"
        "    status = Path('/proc/self/status').read_text()\n"
        "    return int(re.search(r'VmHWM:\\s+(\\d+)', status)[1])\n"
        "first, *paths = map(Path, sys.argv[1:])\n"
        "decode(first.read_bytes(), 64)\n"
        "before = peak()\n"
        "for path in paths:\n"
        "    try:\n"
        "        decode(path.read_bytes(), 64)\n"
        "    except BadImage as error:\n"
        "        print(error)\n"
        "print(peak() - before)\n"
    )
    good = next(path for path in files if path.name == "whole-lzw.tiff")
    groups = ("boastful", "metadata", "rearranged")
    paths = [path for path in files if path.parent.name in groups]
    output = subprocess.run(
        [sys.executable, "-c", program, good, *paths], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len([line for line in output if re.match("declares .* pixels, more than", line)]) >= 20
    assert int(output[-1]) < 64 * 1024  # KiB; the smallest of these images would take 600 MB


def test_postscript_is_not_executed(files: list[Path]) -> None:
    script = next(path for path in files if path.name == "script.jpg")
    assert reason_of(script) == "not an image in a known format"


def test_a_run_has_exactly_one_row_per_file(
    files: list[Path], write_config: Callable[..., str], scenes: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "images"
    shutil.copytree(files[0].parents[1], folder / "below" / "and below")
    good = sorted(scenes.iterdir())[:4]
    for path in good:
        shutil.copy(path, folder / f"good-{path.name}")
    (folder / "below" / "notes.txt").write_text("no image, so no row")
    config = load_config(write_config({"images": str(folder)}, shard_size=100, max_error_share=1.0))
    outcome = run(config)
    assert not outcome.failures

    unit = tmp_path / "run" / "scenes" / "tiny"
    scored = pq.read_table(unit / "scores")["image_id"].to_pylist()
    errors = pq.read_table(unit / "errors").to_pylist()
    listed = [path for path in files if not path.name.startswith(".")]  # others are hidden
    expected = [f"below/and below/{path.parent.name}/{path.name}" for path in listed]
    expected += [f"good-{path.name}" for path in good]
    ids = [*scored, *(row["image_id"] for row in errors)]
    assert sorted(ids) == sorted(map(in_utf8, expected))
    assert {f"good-{path.name}" for path in good} <= set(scored)
    assert all(row["error"].strip() for row in errors)
    metrics = outcome.metrics["scenes", "tiny"]
    assert (metrics["images"], metrics["errors"]["images"]) == (len(scored), len(errors))
    # Every good picture is read, whatever its name; names that no table can store are noted.
    named = [f"below/and below/named/{name}" for name in TEXTS if not name.startswith(".")]
    assert set(named) <= set(scored)
    notes = storage.read_json(str(tmp_path / "run" / "scenes" / "dataset.json"))["notes"]
    assert "2 file names are not UTF-8; rename the files to score them." in notes
    assert len(notes) == 2  # the other one counts what was skipped


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A folder with a different picture under each name."""
    for seed, name in enumerate(TEXTS):
        picture(seed).save(tmp_path / name, "JPEG", quality=95)
    return tmp_path


def rows(manifest: Path) -> list[dict[str, Any]]:
    """Returns the images of a table."""
    dataset = DatasetConfig.model_validate(
        {"name": "odd", "images": str(manifest), "classes": ["cat", "dog"]}
    )
    tables = open_source(dataset).images()
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("place", ["relative", "absolute"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_manifest_finds_files_with_any_name(named: Path, kind: str, place: str) -> None:
    uris = TEXTS if place == "relative" else [str(named / name) for name in TEXTS]
    manifest = named / f"manifest.{kind}"
    if kind == "csv":
        with manifest.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows([["uri"], *([uri] for uri in uris)])
    else:
        pq.write_table(pa.table({"uri": uris}), manifest)
    expected = [(uri, (named / name).read_bytes()) for uri, name in zip(uris, TEXTS, strict=True)]
    read = [(row["image_id"], storage.read_bytes(row["uri"])) for row in rows(manifest)]
    assert read == expected


def test_a_name_with_a_line_break_may_cross_the_blocks_of_a_large_csv(tmp_path: Path) -> None:
    names = [f"{'long' * 10}\n{number}.jpg" for number in range(60_000)]  # blocks are of 1 MB
    manifest = tmp_path / "m.csv"
    with manifest.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["uri"], *([name] for name in names)])
    assert [row["image_id"] for row in rows(manifest)] == names


def test_two_spellings_of_a_letter_are_two_files(named: Path) -> None:
    composed = decode((named / "composed-\u00e9.jpg").read_bytes(), SIZE)
    combining = decode((named / "combining-e\u0301.jpg").read_bytes(), SIZE)
    assert not np.array_equal(composed, combining)
