"""Many units at once: the same bytes as one alone, on any machine, without waiting for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparc_dist import storage
from sparc_dist.config import load_config
from sparc_dist.report import write_report
from sparc_dist.runner import run
from sparc_dist.runs import Results
from tests.support.command import outcome_hashes, sparc_dist_process
from tests.support.web import Web, web_server

pytestmark = pytest.mark.slow  # each starts models or Ray several times

NAMES = [f"tiny-{number}" for number in range(3)]


def several(original: Path, folder: Path, names: list[str], **resources: Any) -> str:
    """The config of the finished run with its backbone under several names."""
    config = yaml.safe_load((original / "config.yaml").read_text())
    config["backbones"] = [{"name": name, "model": "sparc-tiny"} for name in names]
    config["resources"] = resources
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return str(path)


def all_equal(original: Path, folder: Path, names: list[str]) -> bool:
    expected = outcome_hashes(original / "run")
    return all(outcome_hashes(folder / "run", f"scenes/{name}") == expected for name in names)


def on_the_web(web: Web, original: Path, config: str) -> None:
    """Makes a config read its images from a web server, which counts the reads."""
    folder = Path(config).parent
    lines = ["uri,image_id,labels"]
    for line in (original / "manifest.csv").read_text().splitlines()[1:]:
        path, name, labels = line.split(",")
        web.files[f"/{name}"] = Path(path).read_bytes()
        lines.append(f"{web.place}/{name},{name},{labels}")
    (folder / "manifest.csv").write_text("\n".join([*lines, ""]))
    raw = json.loads(Path(config).read_text())
    raw["datasets"][0]["images"] = str(folder / "manifest.csv")
    Path(config).write_text(json.dumps(raw))


def test_several_units_on_one_cpu_end_and_look_at_each_image_once(
    original: Path, tmp_path: Path
) -> None:
    config = several(original, tmp_path, NAMES, cpus=1)
    with web_server() as web:
        on_the_web(web, original, config)
        done = sparc_dist_process("run", config)
    # The report's example picture shows images of the first shard. All others are read for scoring,
    # and those that it has thumbnails of once more, whatever the number of units.
    assert {web.paths[path] for path in list(web.files)[10:]} <= {1, 2}
    assert done.returncode == 0, done.stderr
    assert all_equal(original, tmp_path, NAMES)
    for name in NAMES:
        assert f"scenes × {name}  scoring  60/60 images" in done.stderr


def test_groups_on_shares_of_gpus_change_no_byte(
    original: Path, tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More is asked for than comes: one of the three scorers never starts, nobody waits for it.
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    resources = {"backbones_per_scorer": 2, "gpus_per_scorer": 0.75, "gpus": 3}
    config = several(original, tmp_path, NAMES, **resources)
    with web_server() as web:
        on_the_web(web, original, config)
        outcome: Results = run(load_config(config))
    assert set(web.paths.values()) == {2}  # once for each of two groups
    assert not outcome.failures
    assert list(outcome.metrics) == [("scenes", name) for name in (*NAMES, "ensemble")]
    assert all_equal(original, tmp_path, NAMES)
    # These GPUs are logical, and the metrics do not hide it.
    assert {outcome.metrics["scenes", name]["device"] for name in NAMES} == {"cpu"}


def test_units_of_a_group_go_on_from_where_each_of_them_is(original: Path, tmp_path: Path) -> None:
    path = several(original, tmp_path, NAMES, scorers=1, gpus_per_scorer=0)
    for name, lost in zip(NAMES, ([0, 1], [1, 5], []), strict=True):
        unit = tmp_path / "run" / "scenes" / name
        shutil.copytree(original / "run" / "scenes" / "tiny", unit)
        (unit / "metrics.json").unlink()
        for shard in lost:
            (unit / "done" / f"{shard:05d}.json").unlink()
            (unit / "scores" / f"{shard:05d}.parquet").write_bytes(b"half a file")
    for name in ("images.parquet", "prompts.parquet", "dataset.json"):
        shutil.copy(original / "run" / "scenes" / name, tmp_path / "run" / "scenes" / name)
    record = storage.read_json(str(original / "run" / "run.json"))
    config = load_config(path)
    record |= {"config": config.identity(), "units": []}
    storage.write_json(str(tmp_path / "run" / "run.json"), record)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("run/scenes/*/done/*.json")}
    assert len(kept) == 3 * 6 - 4
    outcome = run(config)
    assert not outcome.failures
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert all_equal(original, tmp_path, NAMES)
    scored = [
        outcome.metrics["scenes", name]["stages"].get("scoring", {}).get("images") for name in NAMES
    ]
    assert scored == [20, 20, None]


def test_the_two_stages_on_their_own(original: Path, tmp_path: Path) -> None:
    names = NAMES[:2]
    path = several(original, tmp_path, names, scorers=1, gpus_per_scorer=0)
    raw = json.loads(Path(path).read_text())
    raw["backbones"].append({"name": "half", "model": "sparc-tiny", "precision": "bf16"})
    Path(path).write_text(json.dumps(raw))
    config = load_config(path)
    outcome = run(config, phase="reduce")
    assert "6 of the 6 shards" in outcome.failures["scenes", names[0]]
    assert "score them first" in outcome.failures["scenes", names[1]]
    outcome = run(config, phase="score")
    assert not outcome.failures
    assert not outcome.metrics
    assert not list((tmp_path / "run" / "scenes").glob("*/final"))
    outcome = run(config, phase="reduce")
    assert not outcome.failures
    assert all_equal(original, tmp_path, names)
    # A lower precision says how far it is from float32; that is small, but not nothing.
    told = outcome.metrics["scenes", "half"]["precision"]
    assert (told["precision"], told["images"]) == ("bf16", 10)
    assert 0 < told["mean_difference"] < told["largest_difference"] < 0.05
    assert "precision" not in outcome.metrics["scenes", names[0]]
    remarks = write_report(str(tmp_path / "run")).remarks()
    said = "scenes × half: scored in bf16; on 10 images its scores differ from float32 by"
    assert any(remark.startswith(said) for remark in remarks)
