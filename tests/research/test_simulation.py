"""A simulated run finishes, resumes, refuses other settings, and is the same everywhere."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.prompts import ClassMatcher
from sparc_dist.report import write_report
from sparc_dist.research.simulation import TRAINING_IMAGES, Settings, simulate, write_inputs
from sparc_dist.research.simulation_model import Noise
from sparc_dist.runs import UnitLayout
from sparc_dist.runs.status import status
from tests.support.command import outcome_hashes, sparc_dist
from tests.support.s3 import FaultProxy

SMALL = Settings(images=300, classes=12, seed=3, shard_size=100)
UNIT = "simulation/simulated"
SHARDS = 3


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished simulation."""
    out = tmp_path_factory.mktemp("simulated")
    with using(InProcess()):
        assert not simulate(str(out), SMALL).failures
    return out


def all_scores(root: str) -> list[bytes]:
    unit = UnitLayout(storage.join(root, UNIT))
    return [storage.read_bytes(unit.scores(shard)) for shard in range(SHARDS)]


def test_a_simulation_is_a_run_like_any_other(finished: Path) -> None:
    metrics = storage.read_json(str(finished / UNIT / "metrics.json"))
    assert metrics["images"] == metrics["labelled"] == 300
    assert metrics["device"] == "simulated"
    assert metrics["weights_sha256"] == SMALL.sha256
    assert 30 < metrics["zsclip"]["mAP"] < metrics["sparc"]["mAP"] < 100
    (unit,) = status(str(finished))
    assert (unit.done, unit.scored, unit.shards_done) == (True, 300, SHARDS)
    assert write_report(str(finished)).metrics["simulation", "simulated"] == metrics
    assert (finished / "report" / "index.html").exists()
    facts = json.loads(next((finished / "input").glob("settings-*.json")).read_text())
    assert (facts["seed"], facts["noise"]["miss"]) == (3, Noise().miss)
    scores = pq.read_table(finished / UNIT / "scores")
    assert scores["embedding"].to_pylist() == [[]] * 300
    assert 0.1 < np.median(scores["compound"].combine_chunks().flatten()) < 0.35


@pytest.mark.usefixtures("cluster")
def test_a_small_simulation_needs_no_ray_and_has_the_same_bytes(
    finished: Path, tmp_path: Path
) -> None:
    assert not simulate(str(tmp_path / "ray"), SMALL).failures
    assert all_scores(str(tmp_path / "ray")) == all_scores(str(finished))
    assert outcome_hashes(tmp_path / "ray", UNIT) == outcome_hashes(finished, UNIT)
    done = sparc_dist("simulate", "--images", 50, "--classes", 4, "--out", tmp_path / "command")
    assert done.returncode == 0, done.stderr
    assert "starting Ray" not in done.stderr


@pytest.mark.usefixtures("cluster")
def test_backbones_have_noise_of_their_own_and_one_ensemble_on_ray_or_not(
    finished: Path, tmp_path: Path
) -> None:
    several = replace(SMALL, backbones=2)
    assert not simulate(str(tmp_path / "ray"), several).failures
    with using(InProcess()):
        assert not simulate(str(tmp_path / "light"), several).failures
    assert all_scores(str(tmp_path / "ray")) == all_scores(str(finished))
    other = UnitLayout(str(tmp_path / "ray" / "simulation" / "simulated-2"))
    assert storage.read_bytes(other.scores(0)) != all_scores(str(finished))[0]
    unit = "simulation/ensemble"
    ours, rays = (outcome_hashes(tmp_path / name, unit) for name in ("light", "ray"))
    assert ours == rays
    for name in ("labels/00001.parquet", "decisions.json", "gallery.npz", "labeler.safetensors"):
        parts = ((tmp_path / which / unit / name).read_bytes() for which in ("light", "ray"))
        assert len({*parts}) == 1, name


def test_a_second_start_does_nothing(finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    outcome = simulate(str(finished), SMALL)
    assert outcome.nothing_to_do
    assert not outcome.failures
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.parametrize("reason", ["other settings", "another config"])
def test_other_settings_are_refused_and_change_nothing(finished: Path, reason: str) -> None:
    config = finished / "simulate.yaml"
    text = config.read_text()
    if reason == "another config":
        config.unlink()  # run.json contains it too
    other = Settings(300, 12, seed=3, shard_size=100, noise=Noise(miss=0.5))
    with pytest.raises(UserError, match=reason):
        simulate(str(finished), other)
    config.write_text(text)
    assert simulate(str(finished), SMALL).nothing_to_do


def test_only_what_is_missing_or_damaged_is_drawn_again(finished: Path) -> None:
    unit, root = finished / UNIT, str(finished)
    hashes, scores = outcome_hashes(finished, UNIT), all_scores(root)
    (unit / "metrics.json").unlink()
    shutil.rmtree(unit / "reduce")
    (unit / "done" / "00000.json").unlink()
    (unit / "scores" / "00001.parquet").write_bytes(b"spoilt")
    intact = unit / "scores" / "00002.parquet"
    before = intact.stat().st_mtime_ns
    assert not simulate(root, SMALL).failures
    assert outcome_hashes(finished, UNIT) == hashes
    assert all_scores(root) == scores
    assert intact.stat().st_mtime_ns == before


@pytest.mark.usefixtures("cluster")
def test_on_s3_it_is_the_same_and_overwrite_replaces_other_settings(
    finished: Path, on_s3: FaultProxy
) -> None:
    out = "s3://runs/simulated"
    write_inputs(out, Settings(images=10, classes=3))
    with pytest.raises(UserError, match="--overwrite"):
        simulate(out, SMALL)
    assert not simulate(out, SMALL, overwrite=True).failures
    assert all_scores(out) == all_scores(str(finished))
    assert main(["experiment", "debias", "--run", out]) == 0
    assert "| yes | full |" in storage.read_bytes(f"{out}/experiments/debias.md").decode()


def test_an_output_that_is_not_writable_is_reported(tmp_path: Path) -> None:
    (tmp_path / "simulation").mkdir()
    (tmp_path / UNIT).write_text("in the way")
    outcome = simulate(str(tmp_path), Settings(images=20, classes=3))
    assert "refused" in outcome.failures["simulation", "simulated"]


def test_lost_inputs_are_drawn_again(tmp_path: Path) -> None:
    write_inputs(str(tmp_path), SMALL)
    tables = {path: path.read_bytes() for path in (tmp_path / "input").iterdir()}
    assert len(tables) == 3
    next((tmp_path / "input").glob("images-*")).unlink()
    write_inputs(str(tmp_path), SMALL)
    assert {path: path.read_bytes() for path in (tmp_path / "input").iterdir()} == tables


def test_the_cooccurrence_of_a_table_is_used(tmp_path: Path) -> None:
    rows = ["cat;dog", "cat;dog", "", "car", "car", "car", "car;cat;dog", "", "", ""]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(["uri,labels", *(f"x,{row}" for row in rows), ""]))
    settings = Settings(9000, ("cat", "dog", "car", "yeti"), labels=str(table))
    write_inputs(str(tmp_path / "run"), settings)
    (path,) = (tmp_path / "run" / "input").glob("images-*.parquet")
    drawn = [frozenset(row) for row in pq.read_table(path)["labels"].to_pylist()]
    assert len(drawn) == 9000
    for ids, share in (({0}, 0.3), ({2}, 0.4), ({0, 1}, 0.3), ({0, 2}, 0.1), ({3}, 0.0)):
        assert np.mean([ids <= row for row in drawn]) == pytest.approx(share, abs=0.02)
    (path,) = (tmp_path / "run" / "input").glob("labels-*.parquet")
    others = pq.read_table(path)["labels"].to_pylist()
    assert len(others) == TRAINING_IMAGES
    assert others[:9000] != [sorted(row) for row in drawn]
    assert settings.sha256[:16] in path.name
    table.write_text("uri,labels\nx,car\n")
    assert settings.sha256[:16] not in path.name  # another table, another simulation


def test_invalid_settings_are_an_error(tmp_path: Path) -> None:
    for wrong, message in (
        ({"images": 0}, "images is 0"),
        ({"classes": 0}, "classes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"shard_size": 0}, "shard_size is 0"),
        ({"classes": ("cat", "Cat")}, "same letters"),
    ):
        with pytest.raises(UserError, match=message):
            Settings(**{"images": 5, "classes": 3, **wrong})  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no table"):
        write_inputs(str(tmp_path), Settings(5, 3, labels=str(tmp_path / "missing.csv")))
    empty = tmp_path / "empty.csv"
    empty.write_text("labels\n\n")
    with pytest.raises(UserError, match="no label"):
        write_inputs(str(tmp_path), Settings(5, 3, labels=str(empty)))


def test_generated_names_are_distinguished_in_prompts() -> None:
    names = Settings(1, 120).names
    assert len(names) == 120
    assert ClassMatcher(names).classes_in(f"{names[0]}, {names[9]}, and {names[99]}") == (0, 9, 99)


def test_the_command(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = "run"
    rows = ["cat;dog", "cat;dog;sofa", "sofa;lamp", "dog", "lamp", "cat;lamp", ""]
    Path("labels.csv").write_text("\n".join(["uri,labels", *(f"x,{row}" for row in rows), ""]))
    command = ["simulate", "--like", "voc2007", "--out", out, "--labels", "labels.csv"]
    command += ["--images", "200", "--classes", "cat, dog,sofa ,lamp", "--seed", "5"]
    assert main([*command, "--noise", "miss=0.3", "ghost=0.01"]) == 0
    assert "| simulation | SPARC |" in capsys.readouterr().out
    (settings,) = Path(out, "input").glob("settings-*.json")
    facts = json.loads(settings.read_text())
    assert (facts["images"], facts["seed"], facts["noise"]["miss"]) == (200, 5, 0.3)
    assert facts["labels"] != "built in"
    # Scores of other prompts are drawn for the same images.
    assert main(["experiment", "random-prompts", "--run", out]) == 0
    table = capsys.readouterr().out
    assert "| random | SPARC |" in table
    assert "could not be scored" not in table
    for rate, message in (
        ("miss=2", "from 0 to 1"),
        ("hit=1", "no rate 'hit'"),
        ("miss", "NAME=X"),
    ):
        assert main([*command, "--noise", rate]) == 2
        assert message in capsys.readouterr().err
