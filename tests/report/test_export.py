"""Exports, as a user asks for them, on the golden set: checked here, and by the tools themselves.

The extra `export-test` installs these tools.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.cli import export, main
from sparc_dist.core import Scores
from sparc_dist.datasets.images import write_images
from sparc_dist.report.export import FORMATS, parquet
from sparc_dist.runs import DatasetLayout, UnitLayout
from sparc_dist.runs.labels import wide_table
from sparc_dist.runs.run import open_unit
from sparc_dist.runs.shards import ClassNames, scores_table
from tests.support.golden_unit import BROKEN, CLASSES, IDS, SHARD, SHARDS, write_unit
from tests.support.s3 import FaultProxy

Export = Callable[..., Path]
CONSTANT = CLASSES[3]  # has no probability
FIRST_URI = "https://photos.example/000.jpg"  # in the manifest with a key and a signature


@pytest.fixture
def unit(tmp_path: Path) -> UnitLayout:
    unit = write_unit(tmp_path / "run")
    for shard in range(len(SHARDS)):
        _make_constant(unit.labels(shard))
    images = tmp_path / "run" / "voc" / "images.parquet"
    table = pq.read_table(images)
    uris = ["https://me:key@photos.example/000.jpg?signature=key", *table["uri"].to_pylist()[1:]]
    table = table.set_column(1, "uri", pa.array(uris))
    images.unlink()
    write_images([table], DatasetLayout(str(images.parent)), SHARD)
    return unit


def _make_constant(url: str) -> None:
    table = storage.read_table(url)
    other = np.array(table["class"].to_pylist()) != CONSTANT
    columns = {
        "probability": pa.array(table["probability"].to_numpy(), mask=~other),
        "present": pa.array(table["present"].to_numpy() & other),
    }
    for index, name in ((2, "probability"), (3, "present")):
        table = table.set_column(index, name, columns[name])
    storage.write_table(url, table)


@pytest.fixture
def exported(tmp_path: Path, unit: UnitLayout) -> Export:
    def write(name: str, *options: str) -> Path:
        out = tmp_path / "exports" / name
        call = ["export", str(tmp_path / "run"), "--format", name, "--out", str(out), *options]
        assert main(call) == 0
        return out

    return write


@pytest.fixture
def expected(unit: UnitLayout) -> dict[str, dict[str, Any]]:
    """Returns probability and presence of each class by image, from the run's own labels."""
    rows: dict[str, dict[str, Any]] = {image_id: {} for image_id in IDS}
    for shard in range(len(SHARDS)):
        for row in storage.read_table(unit.labels(shard)).to_pylist():
            rows[row["image_id"]][row["class"]] = (row["probability"], row["present"])
    return rows


def present(row: dict[str, Any]) -> list[str]:
    return [name for name, (_, there) in row.items() if there]


def test_the_command_offers_every_format() -> None:
    assert list(export.FORMATS) == list(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_keeps_no_key_and_is_not_replaced_unasked(
    exported: Export, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = exported(name)
    assert f"Wrote {out} ({name}, 800 images)" in capsys.readouterr().out
    content = out.read_bytes()
    assert b"key" not in content
    assert BROKEN.encode() not in content
    out.write_bytes(b"mine")
    again = ["export", str(tmp_path / "run"), "--format", name, "--out", str(out)]
    assert main(again) == 2
    assert "exists; choose another name, or add --overwrite." in capsys.readouterr().err
    assert out.read_bytes() == b"mine"
    assert exported(name, "--overwrite").read_bytes() == content
    assert [file.name for file in out.parent.iterdir()] == [name]


def test_a_key_in_out_is_refused(
    tmp_path: Path, unit: UnitLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["export", str(tmp_path / "run"), "--format", "csv", "--out", "s3://me:key@bucket/a.csv"]
    assert main(call) == 2
    assert "--out contains a key; leave it out" in capsys.readouterr().err


def test_an_export_goes_to_s3(
    tmp_path: Path, exported: Export, on_s3: FaultProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    out = "s3://runs/exports/pets.parquet"
    call = ["export", str(tmp_path / "run"), "--format", "parquet", "--out", out]
    assert main(call) == 0
    assert storage.read_bytes(out) == exported("parquet").read_bytes()
    assert main(call) == 2
    assert f"--out {out} exists; choose" in capsys.readouterr().err


def test_wide_tables(exported: Export, expected: dict[str, dict[str, Any]]) -> None:
    with exported("csv").open(newline="", encoding="utf-8") as file:
        texts = list(csv.DictReader(file))
    rows = pq.read_table(exported("parquet")).to_pylist()
    assert [*texts[0]] == [*rows[0]] == ["image_id", "uri", "present", *CLASSES]
    assert [row["image_id"] for row in rows] == [row["image_id"] for row in texts] == IDS
    assert rows[0]["uri"] == texts[0]["uri"] == FIRST_URI
    for text, row in zip(texts, rows, strict=True):
        right = expected[row["image_id"]]
        assert row["present"] == present(right)
        assert text["present"] == ";".join(present(right))
        assert [row[name] for name in CLASSES] == [right[name][0] for name in CLASSES]
        assert text[CONSTANT] == ""
        numbers = [np.float32(text[name]) for name in CLASSES if name != CONSTANT]
        assert numbers == [row[name] for name in CLASSES if name != CONSTANT]


def test_long_tables(exported: Export, expected: dict[str, dict[str, Any]]) -> None:
    with exported("csv-long").open(newline="", encoding="utf-8") as file:
        texts = list(csv.DictReader(file))
    rows = pq.read_table(exported("parquet-long")).to_pylist()
    columns = ["image_id", "uri", "class", "probability", "present", "score"]
    assert [*texts[0]] == [*rows[0]] == columns
    pairs = [(image_id, name) for image_id in IDS for name in CLASSES]
    assert [(row["image_id"], row["class"]) for row in rows] == pairs
    assert [(row["image_id"], row["class"]) for row in texts] == pairs
    for text, row in zip(texts, rows, strict=True):
        assert (row["probability"], row["present"]) == expected[row["image_id"]][row["class"]]
        assert text["present"] == ("true" if row["present"] else "false")
        assert np.float32(text["score"]) == row["score"]
        if row["probability"] is None:
            assert text["probability"] == ""
        else:
            assert np.float32(text["probability"]) == row["probability"]


def test_small_shards_share_row_groups(exported: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = exported("parquet")
    assert pq.ParquetFile(whole).num_row_groups == 1
    content = pq.read_table(whole)
    monkeypatch.setattr(parquet, "GROUP_BYTES", 10_000)
    cut = exported("parquet", "--overwrite")
    assert 1 < pq.ParquetFile(cut).num_row_groups < len(SHARDS)
    assert pq.read_table(cut).equals(content)


def test_one_shard_is_held_at_a_time(tmp_path: Path, unit: UnitLayout) -> None:
    shards = open_unit(str(tmp_path / "run")).labels()
    assert next(shards).ids == IDS[:SHARD]
    Path(unit.labels(1)).unlink()  # not read yet
    with pytest.raises(FileNotFoundError):
        next(shards)


def test_a_class_with_the_name_of_a_column() -> None:
    judged = (np.array([[0.5]]), np.array([[True]]))
    table = wide_table(["a"], ["uri"], *judged, uris=["a.jpg"])
    assert table.to_pylist() == [
        {"image_id": "a", "uri": "a.jpg", "present": ["uri"], "uri (class)": 0.5}
    ]


def test_fiftyone_samples(exported: Export, expected: dict[str, dict[str, Any]]) -> None:
    found = json.loads(exported("fiftyone").read_text())
    assert found["name"] == "voc"
    assert found["classes"] == {"predictions": CLASSES}
    assert [sample["image_id"] for sample in found["samples"]] == IDS
    assert found["samples"][0]["filepath"] == FIRST_URI
    for sample in found["samples"]:
        right = expected[sample["image_id"]]
        labels = sample["predictions"]["classifications"]
        assert [label["label"] for label in labels] == present(right)
        for label in labels:
            assert label["confidence"] == pytest.approx(right[label["label"]][0], abs=1e-6)


def test_fiftyone_reads_it(exported: Export, expected: dict[str, dict[str, Any]]) -> None:
    fiftyone = pytest.importorskip("fiftyone")
    try:
        dataset = fiftyone.Dataset.from_json(str(exported("fiftyone")))
    except fiftyone.core.config.FiftyOneConfigError as error:
        pytest.skip(f"FiftyOne has no database: {error}")
    try:
        assert dataset.classes == {"predictions": CLASSES}
        found = dataset.values(["image_id", "predictions.classifications.label"])
        assert dict(zip(*found, strict=True)) == {i: present(expected[i]) for i in IDS}
        assert 0 < dataset.bounds("predictions.classifications.confidence")[0] < 1
    finally:
        dataset.delete()


def test_label_studio_tasks(exported: Export, expected: dict[str, dict[str, Any]]) -> None:
    tasks = json.loads(exported("label-studio").read_text())
    config = ElementTree.fromstring(exported("label-studio-config").read_text())
    image, control = config
    assert [choice.attrib["value"] for choice in control] == CLASSES
    assert (control.attrib["toName"], control.attrib["choice"]) == ("image", "multiple")
    assert image.attrib == {"name": "image", "value": "$image"}
    assert [task["data"]["image_id"] for task in tasks] == IDS
    assert tasks[0]["data"]["image"] == FIRST_URI
    for task in tasks:
        right = expected[task["data"]["image_id"]]
        (prediction,) = task["predictions"]
        chosen = [name for result in prediction["result"] for name in result["value"]["choices"]]
        assert chosen == [*task["data"]["probability"]] == present(right)
        sure = [p if there else 1 - p for p, there in right.values() if p is not None]
        assert prediction["score"] == pytest.approx(min(sure), abs=1e-6)
        for result in prediction["result"]:
            assert result["from_name"] == control.attrib["name"]
            assert (result["to_name"], result["type"]) == ("image", "choices")


def test_label_studio_accepts_them(exported: Export) -> None:
    interfaces = pytest.importorskip("label_studio_sdk.label_interface")
    interface = interfaces.LabelInterface(exported("label-studio-config").read_text())
    interface.validate()
    for task in json.loads(exported("label-studio").read_text()):
        assert interface.validate_task({"data": task["data"]})
        (prediction,) = task["predictions"]
        assert interface.validate_prediction(prediction, return_errors=True) == []


def test_hugging_face_columns(exported: Export, expected: dict[str, dict[str, Any]]) -> None:
    table = pq.read_table(exported("hf"))
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["labels"]["feature"] == {"names": CLASSES, "_type": "ClassLabel"}
    assert [*features] == table.column_names == ["image_id", "image", "labels", "probabilities"]
    rows = table.to_pylist()
    assert [row["image_id"] for row in rows] == IDS
    assert rows[0]["image"] == FIRST_URI
    for row in rows:
        right = expected[row["image_id"]]
        assert [CLASSES[index] for index in row["labels"]] == present(right)
        assert row["probabilities"] == [right[name][0] for name in CLASSES]


def test_hugging_face_reads_it(
    exported: Export, expected: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    files = {"train": str(exported("hf"))}
    cache = str(tmp_path / "cache")
    found = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    label = found.features["labels"].feature
    assert isinstance(label, datasets.ClassLabel)
    assert label.names == CLASSES
    for row in found:
        right = expected[row["image_id"]]
        assert label.int2str(row["labels"]) == present(right)
        assert row["probabilities"] == [right[name][0] for name in CLASSES]
    pictures = found.cast_column("image", datasets.Image())
    assert isinstance(pictures.features["image"], datasets.Image)


def test_stored_scores_name_their_classes(unit: UnitLayout) -> None:
    final = storage.read_table(unit.final(0))
    assert json.loads(final.schema.metadata[b"classes"]) == CLASSES
    one = np.zeros((1, 3), dtype=np.float32)
    names = ClassNames(["Kätzchen", "dog"], ["background, other"])
    table = scores_table(["a"], Scores(one, one, one), one, names)
    assert table.schema.metadata == {
        b"classes": '["Kätzchen", "dog"]'.encode(),
        b"background": b'["background, other"]',
    }
