"""Names of photos and classes that attack the terminal, a spreadsheet or a page."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sparc_dist.cli import main
from sparc_dist.errors import printable

CLEAR, FORGED = "\x1b[2J", "x\nsparc-dist: all is well"
FORMULA = "=cmd|'/c calc'!A1"
PHOTOS = (f"{CLEAR}a.png", f"{FORGED}.png", f"{FORMULA.replace('/', '')}.png", "\u202egnp.png")
CLASSES = ("cat", "=dog()", "<img src=x onerror=alert(1)>", "sofa")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "photos").mkdir()
    for number, name in enumerate(PHOTOS):
        Image.new("RGB", (32, 24), (60 * number, 90, 20)).save(folder / "photos" / name)
    (folder / "photos" / f"{CLEAR}broken.png").write_bytes(b"no image")
    (folder / "classes.txt").write_text("\n".join(CLASSES))
    return folder


def label(folder: Path, *more: str) -> int:
    options = ["--classes", str(folder / "classes.txt"), "--model", "sparc-tiny"]
    return main(["label", str(folder / "photos"), *options, "--out", str(folder / "run"), *more])


def rows(path: Path) -> list[list[str]]:
    return list(csv.reader(path.open(newline="", encoding="utf-8")))


def test_names_control_neither_terminal_nor_spreadsheet_nor_page(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert label(run) == 0
    said = "".join(capsys.readouterr())
    assert all(char.isprintable() or char in "\n\t" for char in said)
    assert "\\x1b[2Ja.png: " in said
    assert "\\u202egnp.png: " in said
    assert not any(line.startswith("sparc-dist:") for line in said.splitlines())
    written = {cell for row in rows(run / "run" / "labels.csv") for cell in row[:2]}
    assert {f"'{PHOTOS[2]}", "'=dog()", "cat"} <= written
    assert not any(cell.startswith("=") for cell in written)
    page = (run / "run" / "report" / "tables.md").read_text()
    assert "<img" not in page

    out = run / "labels.csv"
    for form in ("csv", "csv-long"):
        options = ["export", str(run / "run"), "--format", form, "--out", str(out), "--overwrite"]
        assert main(options) == 0
        assert not any(cell.startswith("=") for row in rows(out) for cell in row)
        assert main([*options, "--raw-csv"]) == 0
        assert any(cell == "=dog()" for row in rows(out) for cell in row)
    assert main(["export", str(run / "run"), "--format", "hf", "--out", str(out), "--raw-csv"]) == 2
    assert "--raw-csv has no meaning for --format hf" in capsys.readouterr().err
    parquet = run / "labels.parquet"
    command = ["export", str(run / "run"), "--format", "parquet-long", "--out", str(parquet)]
    assert main(command) == 0
    assert PHOTOS[2] in pq.read_table(parquet)["image_id"].to_pylist()

    # A later command says what is new, and decisions keep the form.
    Image.new("RGB", (32, 24), "red").save(run / "photos" / "=new.png")
    capsys.readouterr()
    assert label(run, "--refit", "--raw-csv") == 0
    assert any(row[0] == PHOTOS[2] for row in rows(run / "run" / "labels.csv"))
    for more, found in (((), "'=new.png"), (("--raw-csv",), "=new.png")):
        assert main(["decide", str(run / "run"), "--top", "1", *more]) == 0
        assert any(row[0] == found for row in rows(run / "run" / "labels.csv"))


def test_errors_name_hostile_paths_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    missing = f"/none/{CLEAR}\nsparc-dist: forged"
    assert main(["status", missing]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert sum(line.startswith("sparc-dist:") for line in error.splitlines()) == 1


@given(st.text())
def test_printable_texts_stay_and_others_are_told_apart(text: str) -> None:
    shown = printable(text)
    assert "\x1b" not in shown
    assert len(shown.splitlines()) <= 1
    if text.isprintable():
        assert shown == text
