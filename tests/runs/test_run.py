"""A run as Arrow tables: all shards in order, from disk and from S3, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import numpy as np
import pytest

from sparc_dist import UserError, open_run
from sparc_dist.runs.run import Run
from tests.support.golden_unit import CLASSES, IDS, IMAGES, SHARD, golden_fusions, write_unit
from tests.support.sealed import edit_json


@pytest.fixture
def run(tmp_path: Path) -> Run:
    write_unit(tmp_path / "run")
    return open_run(tmp_path / "run")


def check_final(run: Run) -> None:
    final = run.final()
    assert final["image_id"].to_pylist() == IDS
    assert json.loads(final.schema.metadata[b"classes"]) == CLASSES
    found = np.stack(final["sparc"].to_numpy())
    assert found.tobytes() == golden_fusions()[1].methods["sparc"].tobytes()


def test_the_tables_have_all_shards_in_order(run: Run) -> None:
    check_final(run)
    labels = run.labels("voc", "tiny").to_pandas()
    assert list(labels) == ["image_id", "class", "probability", "present"]
    assert len(labels) == IMAGES * len(CLASSES)
    assert list(labels["class"][: len(CLASSES)]) == CLASSES
    assert run.errors().column_names == ["image_id", "uri", "error", "passing"]
    assert run.final(columns=["duo"]).column_names == ["duo"]


@pytest.mark.usefixtures("on_s3")
def test_a_run_is_read_from_s3(tmp_path: Path) -> None:
    write_unit(tmp_path / "golden")
    fsspec.filesystem("s3").put(str(tmp_path / "golden"), "s3://runs/golden", recursive=True)
    check_final(open_run("s3://runs/golden"))


def test_a_run_says_what_it_has(run: Run) -> None:
    (unit,) = run.units
    assert (unit.dataset, unit.backbone, unit.done, unit.scored) == ("voc", "tiny", True, IMAGES)
    assert run.metrics["voc", "tiny"]["primary"] == "sparc"
    assert run.failures == {}
    assert run.unit().classes == CLASSES


def test_a_run_is_named_by_its_config_too(run: Run) -> None:
    config = {"output": run.root, "datasets": [{"name": "a", "images": "i.csv", "classes": ["b"]}]}
    path = Path(run.root).parent / "c.yaml"
    path.write_text(json.dumps(config))
    assert open_run(path) == run


def test_what_is_missing_is_said(run: Run) -> None:
    (Path(run.root) / "voc" / "tiny" / "scores" / "00000.parquet").unlink()
    with pytest.raises(UserError, match=r"scores/00000\.parquet is missing, damaged or"):
        run.scores()
    with pytest.raises(UserError, match=r"final/00000\.parquet: .*dou.*; check the columns"):
        run.final(columns=["dou"])
    with pytest.raises(UserError, match=r"There is no backbone 'RN50' in the run at .* of tiny"):
        run.final(backbone="RN50")
    unit = Path(run.root) / "voc" / "tiny"
    (unit / "labels" / "00003.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match=r"labels/00003\.parquet is damaged: .* verify"):
        run.labels()
    (unit / "metrics.json").unlink()
    with pytest.raises(UserError, match=r"voc × tiny of .* is not finished; start the run"):
        run.labels()
    assert not run.metrics
    with pytest.raises(UserError, match=r"There is no run at .*; check the URL"):
        open_run(unit)


def test_one_of_several_units_must_be_named(run: Run) -> None:
    other = {"name": "other", "model": "sparc-tiny"}
    edit_json(
        Path(run.root) / "run.json", lambda record: record["config"]["backbones"].append(other)
    )
    with pytest.raises(UserError, match=r"several units \(voc × tiny, voc × other\); name a data"):
        run.final()
    assert run.final(backbone="tiny").num_rows == IMAGES > SHARD
