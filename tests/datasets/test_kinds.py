"""Kinds of data sets that this file adds: an entry each, which everything else goes by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparc_dist import UserError, run, storage
from sparc_dist.cli import main
from sparc_dist.config import DATASET_KINDS, DatasetKind
from sparc_dist.datasets import images_table
from sparc_dist.runs import RunLayout, read_record
from tests.conftest import FEW

pytestmark = pytest.mark.usefixtures("light")
WriteConfig = Callable[..., str]


class Lines:
    """Reads a text file, or the file list.txt of a folder: an image and its classes in a line."""

    def __init__(self, images: str, classes: Sequence[str]) -> None:
        self._file = Path(images)
        if self._file.is_dir():
            self._file /= "list.txt"
        self._classes = classes
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        urls, labels = self._rows()
        names = [url.rpartition("/")[2] for url in urls]
        yield images_table(names, urls, labels, [storage.local_version(url) for url in urls])

    def labels(self) -> Iterator[list[list[int]]]:
        yield self._rows()[1]

    def _rows(self) -> tuple[list[str], list[list[int]]]:
        lines = [line.split(" ") for line in self._file.read_text().splitlines()]
        known = [
            sorted(self._classes.index(name) for name in names if name in self._classes)
            for _, *names in lines
        ]
        return [url for url, *_ in lines], known


@pytest.fixture
def listed(tmp_path: Path, scenes: Path, truth: dict[str, list[str]]) -> Path:
    """A folder with such a file."""
    (tmp_path / "data").mkdir()
    rows = [" ".join([str(scenes / name), *labels]) for name, labels in truth.items()]
    (tmp_path / "data" / "list.txt").write_text("\n".join(rows[:30]))
    return tmp_path / "data"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> DatasetKind:
    """A kind for users' own data."""
    kind = DatasetKind(
        "a text file", "one image per line", "your own", Lines, endings=(".txt",), table=True
    )
    monkeypatch.setitem(DATASET_KINDS, "lines", kind)
    return kind


def test_a_kind_is_one_entry(
    lines: DatasetKind, listed: Path, write_config: WriteConfig, tmp_path: Path, capsys: Any
) -> None:
    file = listed / "list.txt"
    config = write_config({"kind": "lines", "images": str(file), "classes": FEW}, shard_size=8)
    done = run(config)
    assert done.final().num_rows == 30
    assert 0 < done.metrics["scenes", "tiny"]["duo"]["mAP"] <= 100
    # The file belongs to the run, as a table does.
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    with pytest.raises(UserError, match=r"images: 30 → 29: 1 removed photo since the run\)"):
        run(config)
    assert main(["apply", str(tmp_path / "run"), str(file), "--out", str(tmp_path / "new")]) == 0
    assert "The labels of 29 images" in capsys.readouterr().out
    assert main(["datasets"]) == 0
    assert "lines\n    a text file\n" in capsys.readouterr().out


def test_what_a_kind_demands_is_checked_before_the_start(
    lines: DatasetKind, listed: Path, write_config: WriteConfig
) -> None:
    section = {"kind": "lines", "images": str(listed / "list.txt"), "classes": FEW}
    with pytest.raises(UserError, match="`images` may be a list only with kind: folder"):
        run(write_config({**section, "images": [section["images"]]}))
    (listed / "list.txt").write_text("/none/a.jpg cat\n/none/b.jpg dog\n")
    with pytest.raises(UserError, match="none of the 2 files that were looked for exists"):
        run(write_config(section))


def test_an_official_kind_has_its_classes_prompts_and_method(
    lines: DatasetKind,
    listed: Path,
    write_config: WriteConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    official = replace(lines, table=False, compared=True, classes=tuple(FEW), resnet_size=96)
    monkeypatch.setitem(DATASET_KINDS, "benchmark", official)
    section = {"kind": "benchmark", "images": str(listed), "classes": None}
    done = run(config := write_config(section))
    stored = read_record(RunLayout(done.root))["config"]["datasets"][0]
    assert (stored["prompts"]["source"], stored["resnet_size"]) == ("training", 96)
    assert done.metrics["scenes", "tiny"]["primary"] == "sparc"
    file = listed / "list.txt"
    file.write_text("\n".join(file.read_text().splitlines()[:-1]))
    assert run(config, extend=True).final().num_rows == 30
    with pytest.raises(UserError, match="kind: benchmark has its own classes"):
        run(write_config({**section, "classes": FEW}))
    with pytest.raises(UserError, match=r"There is no folder .*/none; check the path"):
        run(write_config({**section, "images": str(listed / "none")}, output="other"))
