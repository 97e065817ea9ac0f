"""Methods and units compared, in this process: variants, backbones and their ensemble."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparc_dist.cli import main
from sparc_dist.config import ResourcesConfig
from sparc_dist.core import FUSIONS
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.research import resampling
from sparc_dist.research.comparison import MEAN, RANKED, VIEWED
from sparc_dist.research.simulation import Settings, simulate
from tests.support.cases import golden, golden_answer
from tests.support.golden_unit import write_unit

NAMES = ["simulated", "simulated-2"]
TITLES = {name: kind.title for name, kind in FUSIONS.items()}


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    """All work is done in this process."""
    with in_process(ResourcesConfig()) as light, using(light):
        yield


def compared(run: Path, *options: str) -> dict[tuple[str, str], dict[str, str]]:
    """Returns the rows of the table by backbone and method."""
    assert main(["experiment", "compare", "--run", str(run), *options]) == 0
    with (run / "experiments" / "compare.csv").open() as file:
        return {(row["backbone"], row["method"]): row for row in csv.DictReader(file)}


def gap(row: dict[str, str], name: str) -> tuple[float, float, float]:
    low, value, high = (float(row[c]) for c in (f"{name}, low", f"minus {name}", f"{name}, high"))
    return low, value, high


def test_variants_have_the_golden_answers_with_their_intervals(tmp_path: Path) -> None:
    write_unit(tmp_path, "duo")
    rows = {title: row for (_, title), row in compared(tmp_path, "--variants").items()}
    assert [*rows] == [*RANKED, *VIEWED]
    names = {"ZSCLIP": "zsclip", "debiased": "debiased", "SPARC": "sparc"}
    expected = {title: golden()[3][name]["mAP"] for title, name in names.items()}
    entries = {"duo": "duo", "duo, no rival": "duo, no rival", "duo, no shrinkage": "duo, kappa 0"}
    expected |= {title: golden_answer("duo")[entry]["mAP"] for title, entry in entries.items()}
    for title, value in expected.items():
        assert float(rows[title]["mAP (%)"]) == pytest.approx(value, abs=1e-4), title
    for base in ("SPARC", "duo"):
        assert rows[base][f"minus {base}"] == ""
        for title in {*rows} - {base}:
            low, value, high = gap(rows[title], base)
            ours, other = (float(rows[name]["mAP (%)"]) for name in (title, base))
            assert value == pytest.approx(ours - other, abs=1e-9)
            assert low < value < high
    page = (tmp_path / "experiments" / "compare.md").read_text()
    assert "1,000 paired bootstrap draws" in page
    assert "Poisson(1) resampling weights" in page
    assert "+2.9" in page  # duo − SPARC, 61.16 − 58.22
    assert "minus ensemble |" not in page  # there is none


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A simulated run with two backbones and their ensemble."""
    monkeypatch.setattr(resampling, "DRAWS", 100)
    settings = Settings(images=300, classes=10, seed=1, shard_size=100, backbones=2)
    assert not simulate(str(tmp_path), settings).failures
    return tmp_path


def test_the_ensemble_gains_over_each_backbone_and_over_their_mean(two: Path) -> None:
    rows = compared(two)
    assert [*dict.fromkeys(name for name, _ in rows)] == [*NAMES, MEAN, "ensemble"]
    for method, title in TITLES.items():
        own = {}
        for name in (*NAMES, "ensemble"):
            metrics = json.loads((two / "simulation" / name / "metrics.json").read_text())
            own[name] = metrics[method]["mAP"]
            assert float(rows[name, title]["mAP (%)"]) == pytest.approx(own[name], abs=1e-4)
        mean = float(rows[MEAN, title]["mAP (%)"])
        assert mean == pytest.approx((own[NAMES[0]] + own[NAMES[1]]) / 2, abs=1e-4)
        for name in (*NAMES, MEAN):
            low, value, high = gap(rows[name, title], "ensemble")
            assert low < value < min(0, high)
        assert gap(rows[MEAN, title], "ensemble")[2] < 0
        assert rows["ensemble", title]["minus ensemble"] == ""


def test_a_named_backbone_is_compared_alone(two: Path) -> None:
    rows = compared(two, "--backbone", NAMES[1])
    assert {name for name, _ in rows} == {NAMES[1]}
    assert [title for _, title in rows] == list(TITLES.values())
