"""run.json: its format version, and the list of what a replaced run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparc_dist.config import Config, parse
from sparc_dist.errors import UserError
from sparc_dist.runs import RunLayout, claim, read_record
from sparc_dist.runs.record import FORMAT


@pytest.fixture
def config(tmp_path: Path) -> Config:
    dataset = {"name": "pets", "kind": "folder", "images": "/nowhere", "classes": ["cat", "dog"]}
    backbone = {"name": "tiny", "model": "sparc-tiny"}
    raw = {"output": str(tmp_path), "datasets": [dataset], "backbones": [backbone]}
    return parse(raw, "test")


def change(path: Path, **fields: object) -> None:
    record = json.loads(path.read_text())
    path.write_text(json.dumps({name: v for name, v in (record | fields).items() if v is not None}))


def test_a_run_of_the_first_version_which_names_no_format_is_read_and_resumed(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    assert claim(layout, config)["format"] == FORMAT
    change(tmp_path / "run.json", format=None)
    assert read_record(layout)["config"] == config.identity()
    assert "format" not in claim(layout, config)


def test_a_run_of_a_newer_format_is_refused(tmp_path: Path, config: Config) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    change(tmp_path / "run.json", format=FORMAT + 1)
    refusal = f"has format {FORMAT + 1}.*install a newer"
    with pytest.raises(UserError, match=refusal):
        read_record(layout)
    with pytest.raises(UserError, match=refusal):
        claim(layout, config)


def test_replacing_a_run_deletes_the_experiments_that_its_index_shows(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    folder = tmp_path / "experiments"
    folder.mkdir()
    for name in ("main", "rank-fusion"):
        for ending in ("csv", "md", "png", "svg"):
            (folder / f"{name}.{ending}").write_text("old")
    (folder / "index.md").write_text("![Main](main.png)\n\n![Ranks](rank-fusion.png)\n")
    (folder / "mine.txt").write_text("not of the run")
    claim(layout, config, overwrite=True)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
