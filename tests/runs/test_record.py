"""run.json: its format version, configs of older versions, and what a replaced run leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.config import Config, parse
from sparc_dist.core import DuoOptions, Method
from sparc_dist.errors import UserError
from sparc_dist.runs import Marker, Provenance, RunLayout, claim, read_record, resumed
from sparc_dist.runs.record import FORMAT
from tests.support.golden_unit import write_unit


@pytest.fixture
def config(tmp_path: Path) -> Config:
    dataset = {"name": "pets", "kind": "folder", "images": "/nowhere", "classes": ["cat", "dog"]}
    backbone = {"name": "tiny", "model": "sparc-tiny"}
    raw = {"output": str(tmp_path), "datasets": [dataset], "backbones": [backbone]}
    return parse(raw, "test")


def change(path: Path, **fields: object) -> None:
    record = json.loads(path.read_text())
    path.write_text(json.dumps({name: v for name, v in (record | fields).items() if v is not None}))


def score_a_shard(layout: RunLayout) -> None:
    """Writes the markers of a prepared data set and of its only scored shard."""
    storage.write_json(layout.dataset("pets").marker, {"shards": 1})
    scoring = Provenance("weights", "prompts", "images", "cpu")
    Marker(0, 1, 0, {}, {"scores": ""}, scoring).write(layout.dataset("pets").unit("tiny"))


def test_a_run_of_the_first_version_which_names_no_format_is_read_and_resumed(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    assert claim(layout, config)["format"] == FORMAT
    change(tmp_path / "run.json", format=None)
    assert read_record(layout)["config"] == config.identity()
    assert "format" not in claim(layout, config)


def older(config: Config) -> dict[str, object]:
    """Returns a config as a version that knows no background classes stores it."""
    identity = config.identity()
    for dataset in identity["datasets"]:
        del dataset["background"]
    return identity


def test_a_run_of_a_version_without_background_classes_is_resumed(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    change(tmp_path / "run.json", config=older(config))
    score_a_shard(layout)
    assert claim(layout, config)["config"] == older(config)


def with_shrinkage(config: Config, shrinkage: float) -> dict[str, object]:
    """Returns a config as a version without a section for duo stores it."""
    identity = config.identity()
    method = {key: v for key, v in identity["method"].items() if key not in ("duo", "rival")}
    return identity | {"method": method | {"shrinkage": shrinkage}}


def test_a_run_of_a_version_without_options_of_duo_is_resumed_with_the_same_shrinkage(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    change(tmp_path / "run.json", config=with_shrinkage(config, 7.0))
    score_a_shard(layout)
    same = config.model_copy(update={"method": Method(duo=DuoOptions(7.0))})
    assert claim(layout, same)["config"] == with_shrinkage(config, 7.0)
    with pytest.raises(UserError, match=r"method.duo.shrinkage: 7.0 → 100.0"):
        claim(layout, config)
    for other in (Method(rival=0.2, duo=same.method.duo), Method(duo=DuoOptions(7.0, 0.0))):
        with pytest.raises(UserError, match="rival: 0"):
            claim(layout, config.model_copy(update={"method": other}))


def test_a_run_of_a_version_without_local_features_is_resumed_with_global_ones(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    identity = config.identity()
    for backbone in identity["backbones"]:
        del backbone["features"], backbone["local_scale"]
    change(tmp_path / "run.json", config=identity)
    score_a_shard(layout)
    assert claim(layout, config)["config"] == identity
    other = config.backbones[0].model_copy(update={"features": "both"})
    with pytest.raises(UserError, match="features: none → both"):
        claim(layout, config.model_copy(update={"backbones": (other,)}))


def test_a_run_in_the_former_default_precision_is_resumed_in_it(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    assert config.backbones[0].precision == "auto"
    claim(layout, config)
    identity = config.identity()
    identity["backbones"][0]["precision"] = "fp32"
    change(tmp_path / "run.json", config=identity)
    score_a_shard(layout)
    record = claim(layout, config)
    assert record["config"] == identity
    assert resumed(config, record).backbones[0].precision == "fp32"
    identity["backbones"][0]["precision"] = "bf16"
    change(tmp_path / "run.json", config=identity)
    with pytest.raises(UserError, match="precision: bf16 → auto"):
        claim(layout, config)


def test_new_settings_of_a_run_of_an_older_version_are_refused(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    change(tmp_path / "run.json", config=older(config))
    score_a_shard(layout)
    dataset = config.datasets[0].model_copy(update={"background": ("bridge", "snow")})
    with pytest.raises(UserError, match="background"):
        claim(layout, config.model_copy(update={"datasets": (dataset,)}))


def test_other_changes_of_a_run_of_an_older_version_are_refused(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    change(tmp_path / "run.json", config=older(config) | {"shard_size": 7})
    score_a_shard(layout)
    with pytest.raises(UserError, match=r"another config \(shard_size: 7 → 256\)"):
        claim(layout, config)


def test_a_run_of_an_older_version_without_results_is_recorded_anew(
    tmp_path: Path, config: Config
) -> None:
    layout = RunLayout(config.output)
    claim(layout, config)
    change(tmp_path / "run.json", config=older(config))
    assert claim(layout, config)["config"] == config.identity()
    assert read_record(layout)["config"] == config.identity()


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
