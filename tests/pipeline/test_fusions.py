"""A unit with one fusion: all that reads it copes without the other. In this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.config import SIMULATED, ResourcesConfig
from sparc_dist.core import Method
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import in_process
from sparc_dist.report import write_report
from sparc_dist.research.contrast import sparc_fusion
from sparc_dist.research.main_table import main_table, per_class
from sparc_dist.research.session import ExperimentSession, Options, open_run
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.runs.refit import Rule, refit
from sparc_dist.runs.run import open_unit
from sparc_dist.runs.status import status
from tests.support.cases import golden
from tests.support.golden_unit import golden_fusions, write_unit
from tests.support.sealed import edit_json

COLUMNS = {"sparc": ["sparc", "sparc_background"], "duo": ["duo", "duo_total"]}


def reduced(root: Path, name: str) -> dict[str, Any]:
    """Reduces the golden unit to one fusion; returns its metrics before."""
    place = write_unit(root, name)
    before: dict[str, Any] = storage.read_json(place.metrics)

    def alone(record: dict[str, Any]) -> None:
        record["config"]["method"].update(fusions=[name])
        record["config"]["backbones"][0]["model"] = SIMULATED  # its labeler has no texts

    edit_json(root / "run.json", alone)
    with in_process(ResourcesConfig()) as light, using(light):
        session = ExperimentSession(open_run(str(root)), Options(), ())
        (unit,) = session.units.values()
        assert unit.config.method == Method(fusions=(name,))
        assert unit.primary == name  # auto takes the one there is
        unit.reduce()
    return before


@pytest.mark.parametrize("name", ["sparc", "duo"])
def test_a_unit_with_one_fusion(tmp_path: Path, name: str) -> None:
    before, other = reduced(tmp_path, name), {"sparc": "duo", "duo": "sparc"}[name]
    unit, both = open_unit(str(tmp_path)), golden_fusions()[1]
    stored = pq.read_table(tmp_path / "voc" / "tiny" / "final")
    assert stored.column_names == ["image_id", "zsclip", "debiased", *COLUMNS[name]]
    assert unit.primary == name
    assert list(storage.read_json(unit.unit.decisions)) == ["primary", name]
    assert unit.metrics[name] == before[name]
    assert other not in unit.metrics
    labeler = read_labeler(unit.unit.labeler)
    assert labeler.fusions.names == (name,)
    assert list(labeler.decisions) == [name]
    assert labeler.images == 800
    answers = labeler.answer(golden()[0])
    assert answers.scores.tobytes() == both.methods[name].tobytes()
    assert refit(unit, Rule(top=2)).after is not None
    again = read_labeler(unit.unit.labeler)
    assert (again.answer(golden()[0]).present.sum(axis=1) == 2).all()
    write_report(str(tmp_path))
    page = (tmp_path / "report" / "index.html").read_text()
    titles = {"sparc": "SPARC", "duo": "duo"}
    assert f"<td>{titles[name]}</td>" in page
    assert f"<td>{titles[other]}</td>" not in page
    assert "done, mAP 42.2 ZSCLIP" in status(str(tmp_path))[0].stage
    if name == "duo":
        check_that_experiments_say_what_is_missing(tmp_path)


def check_that_experiments_say_what_is_missing(root: Path) -> None:
    session = ExperimentSession(open_run(str(root)), Options(), ())
    assert {row[2] for row in main_table(session).table.rows} == {"ZSCLIP", "debiased", "duo"}
    with pytest.raises(UserError, match="`fusions` of its config does not list sparc"):
        per_class(session)
    with pytest.raises(UserError, match="`fusions` of its config does not list sparc"):
        sparc_fusion(open_unit(str(root)).unit)
