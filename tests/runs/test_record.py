"""run.json: its format version, changed configs, and what a replaced run leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.config import Config, parse
from sparc_dist.errors import UserError
from sparc_dist.runs import Marker, Provenance, RunLayout, claim, read_record
from sparc_dist.runs.record import FORMAT
from tests.support.golden_unit import write_unit
from tests.support.sealed import set_fields


@pytest.fixture
def config(tmp_path: Path) -> Config:
    dataset = {"name": "pets", "kind": "folder", "images": "/nowhere", "classes": ["cat", "dog"]}
    backbone = {"name": "tiny", "model": "sparc-tiny"}
    raw = {"output": str(tmp_path), "datasets": [dataset], "backbones": [backbone]}
    return parse(raw, "test")


def score_a_shard(layout: RunLayout) -> None:
    """Writes the markers of a prepared data set and of its only scored shard."""
    storage.write_json(layout.dataset("pets").marker, {"shards": 1})
    scoring = Provenance("weights", "prompts", "images", "cpu")
    Marker(0, 1, 0, {}, {"scores": ""}, scoring, 0).write(layout.dataset("pets").unit("tiny"))


def test_a_run_without_scores_blocks_no_other_config(tmp_path: Path, config: Config) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    data = layout.dataset("pets")
    storage.write_json(data.marker, {"shards": 1})  # prepared, and then something failed
    storage.write_bytes(data.images, b"of the old config")
    other = config.model_copy(update={"shard_size": 7})
    assert claim(layout, other)["config"]["shard_size"] == 7
    assert not Path(data.marker).exists()
    assert not Path(data.images).exists()
    score_a_shard(layout)
    with pytest.raises(UserError, match="another config"):
        claim(layout, config)


def test_changed_background_names_are_refused(tmp_path: Path, config: Config) -> None:
    names = tmp_path / "names.txt"
    names.write_text("boat\n")
    dataset = config.datasets[0].model_copy(update={"background": str(names)})
    config = config.model_copy(update={"datasets": (dataset,)})
    layout = RunLayout(config.output)
    claim(layout, config)
    score_a_shard(layout)
    assert claim(layout, config)["config"] == config.identity()
    names.write_text("tree\n")
    with pytest.raises(UserError, match=r"names\.txt"):
        claim(layout, config)


def test_changed_settings_of_a_scored_run_are_refused(config: Config) -> None:
    layout = RunLayout(config.output)
    claim(layout, config.model_copy(update={"shard_size": 7}))
    score_a_shard(layout)
    with pytest.raises(UserError, match=r"another config \(shard_size: 7 → 256\)"):
        claim(layout, config)


@pytest.mark.parametrize("other", [None, FORMAT - 1, FORMAT + 1])
def test_a_run_of_another_format_is_refused(
    tmp_path: Path, config: Config, other: int | None
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    set_fields(tmp_path / "run.json", format=other)
    refusal = f"has format {other}, .*reads format {FORMAT}; use the version that wrote it"
    with pytest.raises(UserError, match=refusal):
        read_record(layout)
    with pytest.raises(UserError, match=refusal):
        claim(layout, config)
    assert claim(layout, config, overwrite=True)["format"] == FORMAT


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


def test_replacing_a_run_keeps_the_answers_of_people(tmp_path: Path) -> None:
    unit = write_unit(tmp_path)
    Path(unit.answers).write_text("image_id,class,answer\n003,dog,yes\n")
    layout = RunLayout(str(tmp_path))
    dataset = {"name": "voc", "images": "i.csv", "classes": ["dog"]}
    backbone = {"name": "tiny", "model": "sparc-tiny"}
    raw = {"output": str(tmp_path), "datasets": [dataset], "backbones": [backbone]}
    claim(layout, parse(raw, "test"), overwrite=True)
    assert not Path(unit.metrics).exists()
    assert not Path(unit.final(0)).exists()
    assert Path(unit.answers).read_text().endswith("003,dog,yes\n")
