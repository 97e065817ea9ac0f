"""Random configs, tables, prompt files and archives: a correct result or a clear error."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from sparc_dist.cli import main
from sparc_dist.config import Config, DatasetConfig, load_config
from sparc_dist.datasets import class_names, dataset_bank, open_source, write_images
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import DatasetLayout
from tests.support.strategies import bounded, changed, damaged, junk, texts

CLASSES = ("cat", "dog", "sofa")
CONFIG: dict[str, Any] = {
    "output": "run",
    "datasets": [
        {
            "name": "pets",
            "kind": "manifest",
            "images": "m.csv",
            "classes": [*CLASSES],
            "resnet_size": 448,
            "prompts": {
                "source": "all-pairs",
                "templates": ["and", "with"],
                "tau2": 0.1,
                "descriptive": "d.txt",
                "llm": {"base_url": "http://localhost/v1", "model": "m", "sentences": False},
            },
        }
    ],
    "backbones": [
        {"name": "tiny", "model": "sparc-tiny"},
        {"name": "RN50", "model": "RN50-quickgelu", "weights": "./rn50.pt", "image_size": 448},
    ],
    "method": {"strategy": "max-variance", "k": 5},
    "empty_class": "skip",
    "shard_size": 16,
    "resources": {"scorers": 1, "gpus_per_scorer": 0.5},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One folder for all examples of a test: each overwrites its files."""
    return tmp_path


def check_clear(error: UserError, where: Path | str) -> None:
    """Checks that the error is one line that says where."""
    text = str(error)
    assert str(where) in text
    assert len(text.splitlines()) == 1, text
    assert len(text) < 4000


def loaded(path: Path) -> Config | None:
    """Returns the config in a file, or None after a clear error."""
    try:
        config = load_config(str(path))
    except UserError as error:
        check_clear(error, path)
        return None
    # A valid config can be written into the run.
    json.dumps(config.identity(), ensure_ascii=False, allow_nan=False).encode()
    return config


def test_the_unchanged_config_is_valid(folder: Path) -> None:
    (folder / "c.yaml").write_text(yaml.safe_dump(CONFIG))
    assert loaded(folder / "c.yaml") is not None


@bounded(300)
@given(changed(CONFIG))
def test_a_config_with_changed_values_is_valid_or_a_clear_error(folder: Path, raw: Any) -> None:
    (folder / "c.yaml").write_text(yaml.safe_dump(raw))
    loaded(folder / "c.yaml")


fragments = st.sampled_from(
    "output: run|datasets|- |: |\n|  |[|]|{|}|&a |*a|<<: *a|!!int x|!!bool x|!!float x|!!binary x|"
    "!!timestamp x|!!set x|!!omap [1]|!!pairs [a]|!!python/object/apply:os.system [touch x]|? |"
    '|>|0x|0b_|1:99:99|.inf|2001-99-99|2001-12-14t99:59:43Z|%YAML 9.9\n|---|...|=|~|"\\ud800"|'
    '"\\x00"|\t|#|\'|"|@|`|\ufeff'.split("|")
)


@bounded(400)
@given(st.text() | st.binary() | st.lists(fragments, max_size=12).map("".join))
@example("[" * 5000)
@example("{a: " * 5000)
@example("&a [*a]")
@example("a: &a {b: *a}")
@example("output: &a [*a]\ndatasets: *a\nbackbones: *a")
@example("1: 2\noutput: x")
@example("output: run\nshard_size: 0x" + "f" * 5000)
def test_any_other_file_as_a_config_is_a_clear_error(folder: Path, content: str | bytes) -> None:
    content = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    (folder / "c.yaml").write_bytes(content)
    assert loaded(folder / "c.yaml") is None


@bounded(40)
@given(changed(CONFIG).map(yaml.safe_dump) | st.text() | st.lists(fragments).map("".join))
def test_the_command_prints_one_line_about_a_wrong_config(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (folder / "c.yaml").write_text(text, errors="replace")
    assume(loaded(folder / "c.yaml") is None)
    capsys.readouterr()
    assert main(["run", str(folder / "c.yaml")]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"sparc-dist: {folder}/c.yaml")
    assert err.count("\n") == 1
    assert "--verbose shows more" not in err  # printed after unexpected errors


def dataset(images: Path, **changes: object) -> DatasetConfig:
    return DatasetConfig.model_validate(
        {"name": "pets", "images": str(images), "classes": CLASSES, **changes}
    )


def rows(config: DatasetConfig) -> list[dict[str, Any]] | None:
    """Returns the stored images of a data set, or None after a clear error."""
    stored = DatasetLayout(str(Path(str(config.images)).parent / "stored"))
    try:
        source = open_source(config)
        counts = write_images(source.images(), stored, 100)
    except UserError as error:
        check_clear(error, "")
        return None
    found: list[dict[str, Any]] = pq.read_table(stored.images).to_pylist()
    assert counts["images"] == len(found)
    for row in found:
        assert row["image_id"]
        assert row["uri"]
        assert row["labels"] is None or set(row["labels"]) <= {0, 1, 2}
    return found


def parquet(columns: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


GOOD_CSV = b'uri,image_id,labels\n"a,1.jpg",1,cat;dog\nb.jpg,2,\n'
GOOD_PARQUET = parquet({"uri": ["a", "b"], "image_id": [1, 2], "labels": [["cat"], None]})


@bounded(300)
@given(st.binary() | damaged(GOOD_CSV))
@example(b"")
@example(b"uri\n\xff.jpg\n")
def test_any_bytes_as_a_csv_are_rows_or_an_error(folder: Path, content: bytes) -> None:
    (folder / "m.csv").write_bytes(content)
    rows(dataset(folder / "m.csv"))


@bounded(300)
@given(st.binary() | damaged(GOOD_PARQUET))
@example(b"PAR1" + bytes(8) + b"PAR1")
def test_any_bytes_as_a_parquet_are_rows_or_an_error(folder: Path, content: bytes) -> None:
    (folder / "m.parquet").write_bytes(content)
    rows(dataset(folder / "m.parquet"))


headers = st.lists(st.sampled_from(["uri", "image_id", "labels", "cat", "dog", "sofa"]), max_size=6)


@bounded(300)
@given(st.data())
def test_a_csv_of_any_texts_is_read_exactly_or_an_error(folder: Path, data: st.DataObject) -> None:
    names = data.draw(headers)
    table = data.draw(st.lists(st.tuples(*[texts] * len(names)), max_size=4))
    with (folder / "m.csv").open("w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *table])
    found = rows(dataset(folder / "m.csv"))
    if found is not None:
        column = names.index("image_id" if "image_id" in names else "uri")
        written = [row[column].encode(errors="replace").decode() for row in table]
        assert [row["image_id"] for row in found] == written


kinds = st.sampled_from(
    [
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.int64(),
        pa.float32(),
        pa.bool_(),
        pa.null(),
        pa.date32(),
        pa.timestamp("us"),
        pa.duration("us"),
        pa.time32("s"),
        pa.list_(pa.string()),
        pa.list_(pa.int8()),
        pa.list_(pa.bool_()),
        pa.list_(pa.timestamp("us")),
        pa.list_(pa.list_(pa.int8())),
        pa.struct([("uri", pa.string())]),
        pa.map_(pa.string(), pa.string()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.decimal128(5, 2),
    ]
)


def column(kind: pa.DataType, pick: int) -> pa.Array:
    """Returns three times one value of a type; 0 picks the largest number."""
    if not pick and pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
        last = b"\xff" * (kind.bit_width // 8 - 1) + b"\x7f"
        return pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(last * 3)])
    values: list[Any] = [None, "1", b"\xff", 1, [1], ["cat"], [True], [[1]], {"uri": "a"}]
    fitting = [value for value in [*values, [("a", "b")]] if _fits(value, kind)]
    return pa.array([fitting[pick % len(fitting)]] * 3, kind)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return True


column_names = st.sampled_from(["uri", "image_id", "labels", *CLASSES])


@bounded(300)
@given(st.dictionaries(column_names, st.tuples(kinds, st.integers(0, 4))))
def test_a_parquet_of_any_types_is_rows_or_an_error(
    folder: Path, columns: dict[str, tuple[pa.DataType, int]]
) -> None:
    table = {name: column(*drawn) for name, drawn in columns.items()}
    # Duplicate ids are an error, so unique ones are needed to get further.
    table.setdefault("image_id", pa.array([1, 2, 3]))
    (folder / "m.parquet").write_bytes(parquet(table))
    rows(dataset(folder / "m.parquet"))


def bank(config: DatasetConfig, folder: Path) -> PromptBank | None:
    """Returns the bank, or None after a clear error; checks that it can be stored."""
    try:
        found, notes = dataset_bank(config, DatasetLayout(str(folder / "run")), ("boat", "zebra"))
    except UserError as error:
        check_clear(error, folder)
        return None
    assert PromptBank.from_table(found.to_table()) == found
    assert all("\n" not in note for note in notes)
    for prompt in found.compound:
        assert prompt.class_ids
        assert min(prompt.class_ids) < len(found.classes)
        assert max(prompt.class_ids) < len(found.columns)
    return found


words = st.sampled_from(
    [
        "cat",
        "dogs",
        "sofa",
        "and",
        ",",
        "\n",
        " ",
        "#",
        "\r",
        "\x85",
        "\t",
        "Cat",
        "cat dog",
        ";",
        "\0",
    ]
)
files = st.binary() | st.text().map(str.encode) | st.lists(words).map("".join).map(str.encode)
files |= st.text().map(lambda text: text.encode("utf-16"))


@bounded(250)
@given(files, st.sampled_from(["sets", "descriptive", "classes"]))
def test_any_file_of_prompts_or_classes_makes_a_bank_or_an_error(
    folder: Path, content: bytes, role: str
) -> None:
    (folder / "p.txt").write_bytes(content)
    path = str(folder / "p.txt")
    changes: dict[str, dict[str, Any]] = {
        "sets": {"prompts": {"source": "list", "sets": path}},
        "descriptive": {"prompts": {"source": "none", "descriptive": path}},
        "classes": {"classes": path},
    }
    config = dataset(folder / "m.csv", **changes[role])
    found = bank(config, folder)
    if found is not None and role == "classes":
        assert found.classes == class_names(config)
    elif found is not None:
        assert found.compound


@bounded(150)
@given(damaged(GOOD_CSV) | damaged(GOOD_PARQUET) | files, st.sampled_from(["csv", "parquet"]))
def test_any_table_of_labels_makes_a_bank_or_an_error(
    folder: Path, content: bytes, kind: str
) -> None:
    path = folder / f"l.{kind}"
    path.write_bytes(content)
    bank(dataset(path, prompts={"source": "labels", "labels": str(path)}), folder)


def tar(members: dict[bytes, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


MEMBERS = {
    b"a.jpg": b"no image",
    b"a.json": b'{"labels": ["cat"]}',
    b"b\xff.png": b"",
    b"b\xff.cls": b"1",
}
good_tars = st.sampled_from(
    [tar(MEMBERS, form) for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)]
)


@bounded(250)
@given(good_tars.flatmap(damaged) | st.binary())
def test_any_bytes_as_a_tar_are_rows_or_an_error(folder: Path, content: bytes) -> None:
    (folder / "d.tar").write_bytes(content)
    rows(dataset(folder / "d.tar", kind="webdataset"))


@bounded(150)
@given(
    junk.map(lambda value: json.dumps(value, default=str).encode())
    | st.binary()
    | texts.map(lambda t: t.encode(errors="replace")),
    st.sampled_from([b"json", b"cls"]),
)
@example(b"[" * 100_000, b"json")
@example(b"9" * 5000, b"cls")
@example(b'{"labels": [true]}', b"json")
def test_any_label_file_in_a_tar_is_read_counted_or_an_error(
    folder: Path, content: bytes, kind: bytes
) -> None:
    (folder / "d.tar").write_bytes(
        tar({b"a.jpg": b"", b"a." + kind: content, b"b.jpg": b"", b"b.cls": b"cat"})
    )
    found = rows(dataset(folder / "d.tar", kind="webdataset"))
    if found is not None:
        assert [row["image_id"] for row in found] == ["d.tar/a.jpg", "d.tar/b.jpg"]
        assert found[1]["labels"] == [0]
