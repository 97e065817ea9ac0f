"""The ensemble compared with its backbones on a simulation, in this process."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from sparc_dist.cli import main
from sparc_dist.config import ResourcesConfig
from sparc_dist.experiments import resampling
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.runs import TITLES
from sparc_dist.simulation import Settings, simulate
from tests.support.golden_unit import write_unit

GAP = ("ensemble minus it", "low", "high")


def rows(run: Path) -> dict[tuple[str, str], dict[str, str]]:
    with (run / "experiments" / "ensemble.csv").open() as file:
        return {(row["method"], row["backbone"]): row for row in csv.DictReader(file)}


def test_it_gains_over_the_best_backbone_and_over_the_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "DRAWS", 100)
    with in_process(ResourcesConfig()) as light, using(light):
        settings = Settings(images=300, classes=10, seed=1, shard_size=100, backbones=2)
        assert not simulate(str(tmp_path), settings).failures
        assert main(["experiment", "ensemble", "--run", str(tmp_path)]) == 0
    names = ["simulated", "simulated-2"]
    found = rows(tmp_path)
    for method, title in TITLES.items():
        own = {}
        for name in (*names, "ensemble"):
            metrics = json.loads((tmp_path / "simulation" / name / "metrics.json").read_text())
            own[name] = metrics[method]["mAP"]
            assert float(found[title, name]["mAP (%)"]) == pytest.approx(own[name], abs=1e-4)
        mean = float(found[title, "mean of backbones"]["mAP (%)"])
        assert mean == pytest.approx((own[names[0]] + own[names[1]]) / 2, abs=1e-4)
        for name in (*names, "mean of backbones"):
            gap, low, high = (float(found[title, name][column]) for column in GAP)
            assert max(0, low) < gap < high
        assert float(found[title, "mean of backbones"]["low"]) > 0
        assert found[title, "ensemble"]["low"] == ""
    page = (tmp_path / "experiments" / "ensemble.md").read_text()
    best = max(names, key=lambda name: own[name])  # of duo
    assert f"| duo | *{best}* |" in page


def test_a_run_without_an_ensemble_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resampling, "DRAWS", 10)
    write_unit(tmp_path, "duo")
    with in_process(ResourcesConfig()) as light, using(light):
        assert main(["experiment", "ensemble", "--run", str(tmp_path)]) == 0
    assert "voc: the run has no ensemble" in capsys.readouterr().out
    assert {name for _, name in rows(tmp_path)} == {"tiny", "mean of backbones"}
