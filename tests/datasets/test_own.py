"""Manifests and folders, as users have them."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.config import DatasetConfig
from sparc_dist.datasets import class_names, images_table, open_source, write_images
from sparc_dist.errors import UserError
from sparc_dist.runs import DatasetLayout
from sparc_dist.runs.shards import read_images, shard_sizes

CLASSES = ("cat", "dog", "sofa")


def dataset(images: Path | str, **changes: object) -> DatasetConfig:
    return DatasetConfig.model_validate(
        {"name": "pets", "images": str(images), "classes": CLASSES, **changes}
    )


def rows(config: DatasetConfig) -> list[dict[str, object]]:
    tables = (table.drop_columns("version") for table in open_source(config).images())
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("labels", [[[0, 2], []], [["cat", "sofa"], []]], ids=["indices", "names"])
def test_a_parquet_manifest(tmp_path: Path, labels: list[list[object]]) -> None:
    manifest = tmp_path / "m.parquet"
    kind = pa.list_(pa.int64() if labels[0][0] == 0 else pa.string())
    pq.write_table(
        pa.table({"uri": ["a.jpg", "/b.jpg"], "labels": pa.array(labels, kind)}), manifest
    )
    assert rows(dataset(manifest)) == [
        {"image_id": "a.jpg", "uri": str(tmp_path / "a.jpg"), "labels": [0, 2]},
        {"image_id": "/b.jpg", "uri": "/b.jpg", "labels": []},
    ]


def test_a_csv_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text('uri,image_id,labels\n"with, comma.jpg",007,cat; sofa\nb.jpg,8,\n')
    assert rows(dataset(manifest)) == [
        {"image_id": "007", "uri": str(tmp_path / "with, comma.jpg"), "labels": [0, 2]},
        {"image_id": "8", "uri": str(tmp_path / "b.jpg"), "labels": []},
    ]


def test_indices_in_a_csv_and_tables_in_utf_16(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text("uri,labels\na.jpg,0;2\n")
    assert rows(dataset(manifest))[0]["labels"] == [0, 2]
    manifest.write_bytes("uri,labels\nä.jpg,0;2\n".encode("utf-16"))
    with pytest.raises(UserError, match="cannot be read as a table"):
        rows(dataset(manifest))


def test_a_manifest_without_labels(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text("uri\na.jpg\n")
    assert rows(dataset(manifest))[0]["labels"] is None


def test_a_folder_takes_images_of_any_depth_by_name(tmp_path: Path) -> None:
    for name in ("z.PNG", "a/b.jpeg", "a/notes.txt", "a/c.jpg"):
        storage.write_bytes(str(tmp_path / name), b"")
    found = rows(dataset(tmp_path, kind="folder"))
    assert [row["image_id"] for row in found] == ["a/b.jpeg", "a/c.jpg", "z.PNG"]
    assert found[0]["uri"] == str(tmp_path / "a/b.jpeg")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path\na.jpg\n", "no column `uri`"),
        ("uri,labels\na.jpg,cow\n", "no label is one of the 3 classes .an example is 'cow'"),
        ('uri\na.jpg\n""\n', "row 1: uri or image_id is missing"),
        ("uri,labels\na.jpg\n", "cannot be read as a table"),
        ("uri,uri\na.jpg,b.jpg\n", "duplicate column 'uri'"),
        ("uri, labels\na.jpg,cat\n", "the column ' labels' has spaces"),
    ],
)
def test_a_wrong_manifest(tmp_path: Path, text: str, expected: str) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text(text)
    with pytest.raises(UserError, match=expected):
        rows(dataset(manifest))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"uri": ["a"], "labels": [3]}, "row 0: labels must be a list, not 3"),
        ({"uri": ["a"], "labels": [[1.7]]}, "no label is one of the 3 classes"),
        ({"uri": ["a"], "labels": [[0, 0, 1]]}, "row 0: duplicate label"),
        ({"uri": ["a"], "labels": [[-1]]}, "no label is one of the 3 classes"),
        ({"uri": ["a"], "labels": [[True]]}, "no label is one of the 3 classes"),
        ({"uri": ["a"], "labels": [["9" * 5000]]}, "no label is one of the 3 classes"),
        ({"uri": [datetime.max]}, "'uri' has the type 'timestamp.us.'; use texts"),
        ({"uri": [b"a"]}, "row 0: uri or image_id is missing or not text"),
        ({"uri": ["a"], "image_id": [None]}, "row 0: uri or image_id is missing"),
    ],
)
def test_a_parquet_manifest_with_odd_cells(
    tmp_path: Path, columns: dict[str, list[object]], expected: str
) -> None:
    manifest = tmp_path / "m.parquet"
    pq.write_table(pa.table(columns), manifest)
    with pytest.raises(UserError, match=expected):
        rows(dataset(manifest))


def test_integer_ids_null_labels_and_other_columns(tmp_path: Path) -> None:
    manifest = tmp_path / "m.parquet"
    labels = pa.array([None, [1]], pa.list_(pa.int8()))
    columns = {"uri": ["a ü.jpg", "b.jpg"], "image_id": [7, 8], "labels": labels, "x": [[], [9]]}
    pq.write_table(pa.table(columns), manifest)
    assert [(row["image_id"], row["labels"]) for row in rows(dataset(manifest))] == [
        ("7", None),
        ("8", [1]),
    ]


def test_a_csv_with_another_column_of_mixed_types(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    lines = [f"{i}.jpg,{i}" for i in range(300_000)]
    manifest.write_text("uri,views\n" + "\n".join(lines) + "\nlast.jpg,many\n")
    assert len(rows(dataset(manifest))) == 300_001


def test_unknown_labels_are_counted(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text("uri,labels\na.jpg,cat;cow\nb.jpg,cow;emu\n")
    source = open_source(dataset(manifest))
    labels = [row["labels"] for table in source.images() for row in table.to_pylist()]
    assert labels == [[0], []]
    assert source.notes == ["3 labels of 2 unknown classes, such as 'cow', were left out."]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_labels_in_one_column_per_class(tmp_path: Path, kind: str) -> None:
    manifest = tmp_path / f"m.{kind}"
    table = pa.table(
        {"uri": ["a", "b"], "cat": [1, 0], "dog": [0, 0], "sofa": [1, 0], "emu": [1, 1]}
    )
    if kind == "csv":
        pa.csv.write_csv(table, manifest)
    else:
        pq.write_table(table, manifest)
    assert [row["labels"] for row in rows(dataset(manifest))] == [[0, 2], []]


def test_wrong_columns_of_classes(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    manifest.write_text("uri,cat,dog\na,1,0\n")
    with pytest.raises(UserError, match="but none for 'sofa'"):
        rows(dataset(manifest))
    manifest.write_text("uri,cat,dog,sofa\na,1,0,maybe\n")
    with pytest.raises(UserError, match="column 'sofa' contains 'maybe'"):
        rows(dataset(manifest))


def test_files_that_are_not_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no table"):
        rows(dataset(tmp_path / "none.parquet"))
    with pytest.raises(UserError, match=r"neither \.parquet nor \.csv"):
        rows(dataset(tmp_path / "m.xlsx"))
    with pytest.raises(UserError, match="There is no folder"):
        rows(dataset(tmp_path / "none", kind="folder"))
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no more")
    with pytest.raises(UserError, match="cannot be read as a table"):
        rows(dataset(broken))
    pq.write_table(pa.table({"uri": [f"{i}.jpg" for i in range(99)]}), broken, compression="zstd")
    content = bytearray(broken.read_bytes())
    start = content.index(b"\x28\xb5\x2f\xfd")  # a zstd frame
    content[start + 8 : start + 40] = bytes(32)
    broken.write_bytes(content)
    with pytest.raises(UserError, match=f"^{broken} cannot be read .*; correct it, or write it"):
        rows(dataset(broken))


def test_row_groups_are_shards_for_batches_of_any_size(tmp_path: Path) -> None:
    layout = DatasetLayout(str(tmp_path))
    ids = [f"{i}.jpg" for i in range(10)]
    parts: list[tuple[list[str], list[list[int] | None]]] = [
        (ids[:1], [None]),
        (ids[1:9], [[0]] * 8),
        (ids[9:], [[]]),
    ]
    batches = [images_table(a, a, labels) for a, labels in parts]
    assert write_images(batches, layout, 4) == {"images": 10, "labelled": 9, "shards": 3}
    assert shard_sizes(layout) == [4, 4, 2]
    assert read_images(layout, 2, ["image_id"]).to_pylist() == [
        {"image_id": "8.jpg"},
        {"image_id": "9.jpg"},
    ]


def test_nothing_is_written_if_ids_are_duplicate_or_there_are_no_images(tmp_path: Path) -> None:
    layout = DatasetLayout(str(tmp_path))
    twice = [images_table(["a"], ["a"], [None]), images_table(["b", "a"], ["b", "a"], [None, None])]
    with pytest.raises(UserError, match="Duplicate image_id: a; make the ids unique"):
        write_images(twice, layout, 4)
    with pytest.raises(UserError, match="contains no images"):
        write_images([], layout, 4)
    assert not Path(layout.images).exists()


def test_classes_from_a_file(tmp_path: Path) -> None:
    names = tmp_path / "classes.txt"
    names.write_text("cat\n\n hot dog \n")
    assert class_names(dataset(tmp_path, classes=str(names))) == ("cat", "hot dog")
    names.write_text("\ufeffcat\ndog\n")
    assert class_names(dataset(tmp_path, classes=str(names))) == ("cat", "dog")
    names.write_text("cat\ncat\n")
    with pytest.raises(UserError, match=r"classes.txt: duplicate class 'cat'"):
        class_names(dataset(tmp_path, classes=str(names)))


def test_fsspec_urls(tmp_path: Path) -> None:
    storage.write_bytes(str(tmp_path / "photos" / "a.jpg"), b"x")
    url = f"file://{tmp_path}"
    folder = rows(dataset(f"{url}/photos", kind="folder"))
    assert folder == [{"image_id": "a.jpg", "uri": f"{url}/photos/a.jpg", "labels": None}]
    storage.write_bytes(f"{url}/m.csv", b"uri\nphotos/a.jpg\n")
    assert rows(dataset(f"{url}/m.csv"))[0]["uri"] == f"{url}/photos/a.jpg"
    assert storage.read_bytes(f"{url}/photos/a.jpg") == b"x"
