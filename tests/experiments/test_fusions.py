"""The fusions compared on the golden set, in this process."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sparc_dist.cli import main
from sparc_dist.config import ResourcesConfig
from sparc_dist.experiments.fusions import BASE, OTHER, RANKED, VIEWED
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import in_process
from tests.support.cases import golden, golden_answer
from tests.support.golden_unit import write_unit

BOUNDS = (f"{BASE}, low", f"{BASE}, high")


def test_the_golden_answers_are_in_the_table_with_their_intervals(tmp_path: Path) -> None:
    write_unit(tmp_path, "duo")
    with in_process(ResourcesConfig()) as light, using(light):
        assert main(["experiment", "fusions", "--run", str(tmp_path)]) == 0
    with (tmp_path / "experiments" / "fusions.csv").open() as file:
        rows = {row["fusion"]: row for row in csv.DictReader(file)}
    assert [*rows] == [*RANKED, *VIEWED]
    names = {"ZSCLIP": "zsclip", "debiased": "debiased", BASE: "sparc"}
    expected = {title: golden()[3][name]["mAP"] for title, name in names.items()}
    entries = {OTHER: "duo", "duo, no rival": "duo, no rival", "duo, no shrinkage": "duo, kappa 0"}
    expected |= {title: golden_answer("duo")[entry]["mAP"] for title, entry in entries.items()}
    for title, value in expected.items():
        assert float(rows[title]["mAP (%)"]) == pytest.approx(value, abs=1e-4), title
    for title, row in rows.items():
        gap, low, high = (float(row[name]) for name in (f"minus {BASE}", *BOUNDS))
        ours, sparc = (float(rows[name]["mAP (%)"]) for name in (title, BASE))
        assert gap == pytest.approx(ours - sparc, abs=1e-9)
        assert low < gap < high or title == BASE
    page = (tmp_path / "experiments" / "fusions.md").read_text()
    assert "1,000 paired bootstrap draws" in page
    assert "Poisson(1) resampling weights" in page
    assert "+2.9" in page  # duo − SPARC, 61.16 − 58.22
