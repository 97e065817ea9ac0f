"""Manifests, folders and label tables, as users have them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparc_dist import datasets, storage
from sparc_dist.config import DatasetConfig, PromptsConfig
from sparc_dist.datasets import class_names, image_batches, prompt_bank, write_images
from sparc_dist.errors import UserError

CLASSES = ("cat", "dog", "sofa")


def dataset(images: Path, **changes: object) -> DatasetConfig:
    return DatasetConfig.model_validate(
        {"name": "pets", "images": str(images), "classes": CLASSES, **changes}
    )


def rows(config: DatasetConfig) -> list[dict[str, object]]:
    tables = list(image_batches(config, CLASSES))
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
        ("uri,labels\na.jpg,cow\n", "row 0: the label 'cow' is none of the 3 classes"),
        ('uri\na.jpg\n""\n', "row 1: uri or image_id is missing"),
        ("uri,labels\na.jpg\n", "cannot be read as a table"),
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
        ({"uri": ["a"], "labels": [[1.7]]}, "row 0: the label 1.7 is none"),
        ({"uri": ["a"], "labels": [[0, 0, 1]]}, "row 0: a label stands twice"),
        ({"uri": ["a"], "labels": [[-1]]}, "row 0: the label -1 is none"),
        ({"uri": [b"a"]}, "row 0: uri or image_id is missing or no text"),
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


def test_integer_ids_null_labels_and_columns_of_no_concern(tmp_path: Path) -> None:
    manifest = tmp_path / "m.parquet"
    labels = pa.array([None, [1]], pa.list_(pa.int8()))
    columns = {"uri": ["a ü.jpg", "b.jpg"], "image_id": [7, 8], "labels": labels, "x": [[], [9]]}
    pq.write_table(pa.table(columns), manifest)
    assert [(row["image_id"], row["labels"]) for row in rows(dataset(manifest))] == [
        ("7", None),
        ("8", [1]),
    ]


def test_a_csv_with_another_column_of_mixed_kinds(tmp_path: Path) -> None:
    manifest = tmp_path / "m.csv"
    lines = [f"{i}.jpg,{i}" for i in range(300_000)]
    manifest.write_text("uri,views\n" + "\n".join(lines) + "\nlast.jpg,many\n")
    assert sum(len(table) for table in image_batches(dataset(manifest), CLASSES)) == 300_001


def test_what_is_no_manifest(tmp_path: Path) -> None:
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


def images(ids: list[str], labels: list[list[int] | None]) -> pa.Table:
    columns = zip((ids, ids, labels), datasets.IMAGES, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in columns], schema=datasets.IMAGES)


def test_row_groups_are_shards_however_the_batches_came(tmp_path: Path) -> None:
    url = str(tmp_path / "images.parquet")
    ids = [f"{i}.jpg" for i in range(10)]
    batches = [images(ids[:1], [None]), images(ids[1:9], [[0]] * 8), images(ids[9:], [[]])]
    assert write_images(batches, url, 4) == {"images": 10, "labelled": 9, "shards": 3}
    assert storage.row_group_sizes(url) == [4, 4, 2]
    assert storage.read_row_group(url, 2, ["image_id"]).to_pylist() == [
        {"image_id": "8.jpg"},
        {"image_id": "9.jpg"},
    ]


def test_an_id_that_stands_twice_or_no_image_leaves_no_file(tmp_path: Path) -> None:
    url = str(tmp_path / "images.parquet")
    twice = [images(["a"], [None]), images(["b", "a"], [None, None])]
    with pytest.raises(UserError, match="stands twice"):
        write_images(twice, url, 4)
    with pytest.raises(UserError, match="There is no image"):
        write_images([], url, 4)
    assert not Path(url).exists()


def test_classes_from_a_file(tmp_path: Path) -> None:
    names = tmp_path / "classes.txt"
    names.write_text("cat\n\n hot dog \n")
    assert class_names(dataset(tmp_path, classes=str(names))) == ("cat", "hot dog")
    names.write_text("\ufeffcat\ndog\n")
    assert class_names(dataset(tmp_path, classes=str(names))) == ("cat", "dog")
    names.write_text("cat\ncat\n")
    with pytest.raises(UserError, match=r"classes.txt: the class 'cat' stands twice"):
        class_names(dataset(tmp_path, classes=str(names)))


def bank_texts(tmp_path: Path, prompts: PromptsConfig) -> list[str]:
    return [p.text for p in prompt_bank(dataset(tmp_path, prompts=prompts)).compound]


def test_prompts_from_each_source(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("labels\n" + "cat;sofa\n" * 3 + "dog\n" * 3)
    pairs = ["cat and dog", "cat and sofa", "dog and sofa"]
    assert bank_texts(tmp_path, PromptsConfig()) == pairs
    assert bank_texts(tmp_path, PromptsConfig(source="none")) == []
    from_labels = PromptsConfig(source="labels", labels=str(table))
    assert bank_texts(tmp_path, from_labels) == ["cat and sofa"]


def test_descriptive_sentences_come_on_top(tmp_path: Path) -> None:
    sentences = tmp_path / "more.txt"
    sentences.write_text("Two cats on a sofa.\ncat and dog\nA boat.\n")
    texts = bank_texts(tmp_path, PromptsConfig(descriptive=str(sentences)))
    assert texts == ["cat and dog", "cat and sofa", "dog and sofa", "Two cats on a sofa."]
    sentences.write_text("A boat.\n")
    with pytest.raises(UserError, match=r"No line of .*more.txt mentions a class"):
        bank_texts(tmp_path, PromptsConfig(descriptive=str(sentences)))


def test_a_label_table_without_labels_or_rows(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("uri\na.jpg\n")
    prompts = PromptsConfig(source="labels", labels=str(table))
    with pytest.raises(UserError, match="no column `labels`"):
        bank_texts(tmp_path, prompts)
    table.write_text("labels\n")
    with pytest.raises(UserError, match="holds no row"):
        bank_texts(tmp_path, prompts)
