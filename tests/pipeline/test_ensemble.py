"""The ensemble as a unit of a run: made once, resumed, made again when its members change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.config import Config, load_config
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.small import ensemble_sizes
from sparc_dist.pipeline.verify import verify
from sparc_dist.report import read_results, write_report
from sparc_dist.report.view.site import Site
from sparc_dist.research.simulation import Settings, simulate
from sparc_dist.runner import run
from sparc_dist.runs import Marker, Results, RunLayout, UnitLayout, claim
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.results import members_of
from sparc_dist.runs.run import open_run, open_unit
from sparc_dist.runs.shards import write_shard
from sparc_dist.runs.status import status
from tests.support.command import outcome_hashes

DATA, UNIT = "simulation", "simulation/ensemble"
SETTINGS = Settings(images=300, classes=12, seed=3, shard_size=50, backbones=3)
MEMBERS = SETTINGS.models
METHODS = ("zsclip", "debiased", "sparc", "duo")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with three backbones."""
    out = tmp_path_factory.mktemp("trio")
    with using(InProcess()):
        assert not simulate(str(out), SETTINGS).failures
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def reduced(root: Path, **changes: Any) -> Results:
    """Starts the run again; its scores are drawn, so there is only the reduce to do."""
    return run(config_of(root).model_copy(update=changes), phase="reduce")


def config_of(root: Path) -> Config:
    """The config of a run, or of its copy: its input remains where it was."""
    values = json.loads((root / "run.json").read_text())["config"]
    del values["threads_per_scorer"]
    return Config.model_validate(values | {"output": str(root)})


def contents(root: Path) -> dict[str, bytes]:
    """The files of the ensemble that end in the same bytes."""
    unit = root / UNIT
    names = ("final", "errors", "labels", "labels-wide")
    found = {str(p.relative_to(unit)): p.read_bytes() for n in names for p in (unit / n).iterdir()}
    for name in ("decisions.json", "gallery.npz", "labeler.safetensors"):
        found[name] = (unit / name).read_bytes()
    return found


def times(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def metrics_of(root: Path, unit: str = "ensemble") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / DATA / unit / "metrics.json").read_text())
    return found


def test_it_is_the_mean_of_its_members_and_beats_each(made: Path) -> None:
    found = pq.read_table(made / UNIT / "final")
    members = [pq.read_table(made / DATA / name / "final") for name in MEMBERS]
    for name in (*METHODS, "duo_total"):
        z = []
        for table in members:
            assert table["image_id"].to_pylist() == found["image_id"].to_pylist()
            x = np.array(table[name].to_pylist())
            z.append((x - x.mean(axis=0)) / x.std(axis=0, ddof=1))
        np.testing.assert_allclose(found[name].to_pylist(), np.mean(z, axis=0), atol=3e-6)
    own = metrics_of(made)
    for name in METHODS:
        best = max(metrics_of(made, member)[name]["mAP"] for member in MEMBERS)
        assert own[name]["mAP"] > best + 5  # the noise of simulated backbones is independent
    f1 = [metrics_of(made, name)["duo"]["decisions"] for name in (*MEMBERS, "ensemble")]
    assert np.argmax([found["oracle_micro_f1"] for found in f1]) == 3
    assert own["backbones"] == MEMBERS
    assert own["notes"] == [f"The mean of {', '.join(MEMBERS)}."]
    assert (own["images"], own["labelled"], own["errors"]["images"]) == (300, 300, 0)


def test_every_command_knows_it(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = write_report(str(copy))
    assert results.columns == [*MEMBERS, "average", "ensemble"]
    table = (copy / "report" / "tables.csv").read_text()
    assert f"simulation,ensemble,duo,{metrics_of(copy)['duo']['mAP']}" in table
    assert (copy / "report" / "simulation-ensemble" / "index.html").exists()
    assert [unit.stage.partition(",")[0] for unit in status(str(copy))] == ["done"] * 4
    assert (DATA, "ensemble") in Site(str(copy)).keys
    assert open_run(copy).labels(backbone="ensemble").num_rows == 300 * 12
    units = json.loads((copy / "run.json").read_text())["units"]
    assert [unit["backbone"] for unit in units] == [*MEMBERS, "ensemble"]
    assert main(["decide", str(copy), "--backbone", "ensemble", "--top", "2"]) == 0
    assert main(["decide", str(copy)]) == 2
    assert "simulation × ensemble" in capsys.readouterr().err
    labels = open_run(copy).labels(backbone="ensemble")
    assert pc.sum(labels["present"]).as_py() == 600
    before = times(copy / UNIT)
    assert reduced(copy).nothing_to_do  # decisions are no reason to make it again
    assert times(copy / UNIT) == before


def test_a_second_start_does_nothing(copy: Path) -> None:
    before = times(copy)
    assert reduced(copy).nothing_to_do
    assert times(copy) == before


@pytest.mark.parametrize(
    "lost",
    [
        "reduce/final_scores",
        "reduce/labels",
        "final/00002.parquet",
        "errors/00003.parquet",
        ".",
    ],
)
def test_it_is_resumed_to_the_same_bytes(made: Path, copy: Path, lost: str) -> None:
    unit = copy / UNIT
    (unit / "metrics.json").unlink()
    place = unit / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    before = times(copy / DATA / MEMBERS[0])
    outcome = reduced(copy)
    assert not outcome.failures
    assert not outcome.nothing_to_do
    assert contents(copy) == contents(made)
    assert outcome_hashes(copy, UNIT) == outcome_hashes(made, UNIT)
    assert times(copy / DATA / MEMBERS[0]) == before


def test_a_backbone_that_failed_is_not_in_it_until_it_works(made: Path, copy: Path) -> None:
    unit = UnitLayout(str(copy / DATA / MEMBERS[1]))
    kept = Path(unit.marker(2)).read_bytes()
    Path(unit.marker(2)).unlink()
    Path(unit.metrics).unlink()
    outcome = reduced(copy)
    assert [*outcome.failures] == [(DATA, MEMBERS[1])]
    others = [MEMBERS[0], MEMBERS[2]]
    assert metrics_of(copy)["backbones"] == others
    assert metrics_of(copy)["notes"] == [
        f"The mean of {', '.join(others)}; without {MEMBERS[1]}, which did not finish."
    ]
    written = times(copy / UNIT)
    assert [*reduced(copy).failures] == [(DATA, MEMBERS[1])]
    assert times(copy / UNIT) == written
    Path(unit.marker(2)).write_bytes(kept)
    assert not reduced(copy).failures
    assert contents(copy) == contents(made)


def test_fewer_than_two_finished_backbones_have_none(copy: Path) -> None:
    for name in MEMBERS[1:]:
        unit = UnitLayout(str(copy / DATA / name))
        Path(unit.marker(0)).unlink()
        Path(unit.metrics).unlink()
    outcome = reduced(copy)
    assert {*outcome.failures} == {(DATA, name) for name in MEMBERS[1:]}
    assert not (copy / UNIT / "metrics.json").exists()
    assert read_results(str(copy)).columns == [*MEMBERS, "average"]


def test_unreadable_images_are_averaged_over_the_other_backbones(made: Path, copy: Path) -> None:
    everywhere, once = "000060", "000070"
    for name, gone in zip(MEMBERS, ([everywhere, once], [everywhere], [everywhere]), strict=True):
        lose(UnitLayout(str(copy / DATA / name)), 1, gone)
    outcome = reduced(copy, max_error_share=1)
    assert not outcome.failures
    own = metrics_of(copy)
    assert (own["images"], own["errors"]["images"]) == (299, 1)
    assert own["errors"]["reasons"] == {"broken JPEG": 1}
    assert own["notes"][1] == (
        f"1 images have no scores under {MEMBERS[0]} and are averaged over the others."
    )
    errors = pq.read_table(copy / UNIT / "errors" / "00001.parquet").to_pylist()
    assert [(row["image_id"], row["error"]) for row in errors] == [(everywhere, "broken JPEG")]
    final = pq.read_table(copy / UNIT / "final" / "00001.parquet")
    ids = final["image_id"].to_pylist()
    assert ids == [f"{number:06d}" for number in range(50, 100) if number != 60]
    z = []
    for name in MEMBERS[1:]:
        table = pq.read_table(copy / DATA / name / "final")
        x = np.array(table["duo"].to_pylist())
        row = table["image_id"].to_pylist().index(once)
        z.append(((x - x.mean(axis=0)) / x.std(axis=0, ddof=1))[row])
    np.testing.assert_allclose(final["duo"].to_pylist()[ids.index(once)], np.mean(z, 0), atol=3e-6)


def lose(unit: UnitLayout, shard: int, gone: list[str]) -> None:
    """Makes images of a scored shard unreadable, as if its backbone had met them so."""
    table = pq.read_table(unit.scores(shard))
    left = table.filter(pc.invert(pc.is_in(table["image_id"], pa.array(gone))))
    errors = [
        {"image_id": name, "uri": "x", "error": "broken JPEG", "passing": False} for name in gone
    ]
    marker = Marker.read(unit, shard)
    assert marker is not None
    write_shard(unit, shard, left, errors, marker.scoring).write(unit)
    storage.delete(unit.metrics)


def test_it_can_be_switched_off_and_on(made: Path, copy: Path) -> None:
    outcome = reduced(copy, average_backbones=False)
    assert not outcome.failures
    assert (DATA, "ensemble") not in outcome.metrics
    left = [path for path in (copy / UNIT).rglob("*") if path.is_file()]
    assert left == []
    assert read_results(str(copy)).columns == [*MEMBERS, "average"]
    assert reduced(copy, average_backbones=False).nothing_to_do
    assert not reduced(copy).nothing_to_do
    assert contents(copy) == contents(made)


def test_what_it_was_told_is_applied_again(made: Path, copy: Path) -> None:
    refit(open_unit(str(copy), backbone="ensemble"), Rule(top=2))
    decided = contents(copy)
    assert not reduced(copy, average_backbones=False).failures
    assert not reduced(copy).failures
    assert metrics_of(copy)["notes"][1:] == ["Applied again: --top 2."]
    assert contents(copy) == decided != contents(made)


def test_damaged_scores_of_a_member_fail_the_ensemble_alone(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparc_dist.runner.LOOKED_AT", 0)  # as if the unit had many shards
    (copy / UNIT / "metrics.json").unlink()
    shutil.rmtree(copy / UNIT / "reduce")
    place = copy / DATA / MEMBERS[2] / "final" / "00004.parquet"
    place.write_bytes(place.read_bytes()[:-1] + b"X")
    outcome = reduced(copy)
    assert [*outcome.failures] == [(DATA, "ensemble")]
    (told,) = outcome.failures.values()
    assert "00004.parquet is missing or damaged; run `sparc-dist verify" in told
    assert len(verify(str(copy)).faults) == 1
    assert not reduced(copy).failures


def test_a_refit_of_a_member_leaves_it(copy: Path) -> None:
    refit(open_unit(str(copy), backbone=MEMBERS[0]), Rule(top=1))
    assert reduced(copy).nothing_to_do


def test_overwrite_deletes_it(copy: Path) -> None:
    config = config_of(copy)
    claim(RunLayout(str(copy)), config, overwrite=True)
    assert not any(path.is_file() for path in (copy / DATA).rglob("*"))


def test_what_is_averaged(made: Path) -> None:
    config = config_of(made)
    known = Results.read(RunLayout(str(made)), {"config": config.identity()}).metrics
    assert [*members_of(config, DATA, known)] == MEMBERS
    alone = config.model_copy(update={"backbones": config.backbones[:1]})
    assert members_of(alone, DATA, known) == {}
    off = config.model_copy(update={"average_backbones": False})
    assert members_of(off, DATA, known) == {}
    results = Results(RunLayout(str(made)), [DATA], MEMBERS, dict(known))
    assert [*ensemble_sizes(config, results)] == []
    assert [*ensemble_sizes(off, results)] == [1200 // 20]


def test_its_name_is_taken() -> None:
    raw = {
        "output": "run",
        "datasets": [{"name": "ensemble", "images": "i.csv", "classes": ["cat", "dog"]}],
        "backbones": [{"name": "ensemble", "model": "sparc-tiny"}],
    }
    with pytest.raises(ValueError, match="the name 'ensemble' is taken by a folder of the run"):
        Config.model_validate(raw)
    Config.model_validate(raw | {"backbones": [{"name": "tiny", "model": "sparc-tiny"}]})


def test_it_follows_images_that_are_added(
    tmp_path: Path, scenes: Path, write_config: Callable[..., str]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted(scenes.iterdir())[:10]:
        shutil.copy(path, photos)
    twins = [{"name": name, "model": "sparc-tiny"} for name in ("one", "two")]
    few = {"images": str(photos), "classes": ["cat", "dog", "car"], "background": "none"}
    config = load_config(write_config(few, backbones=twins))
    assert not run(config).failures
    unit = tmp_path / "run" / "scenes" / "ensemble"
    assert pq.read_table(unit / "labels-wide").num_rows == 10
    # The mean of few images is not standardised, and that of a model and itself is its own.
    own = pq.read_table(tmp_path / "run" / "scenes" / "one" / "final")
    assert pq.read_table(unit / "final").equals(own)
    for path in sorted(scenes.iterdir())[10:14]:
        shutil.copy(path, photos)
    assert run(config).nothing_to_do
    assert not run(config, growing="extend").failures
    assert pq.read_table(unit / "labels-wide").num_rows == 14
    assert run(config, growing="extend").nothing_to_do
