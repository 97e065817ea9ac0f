"""Seals: any change of a sealed file is found, in every format, and other tools still read it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load, save

from sparc_dist import storage
from sparc_dist.storage.sealed import KEY, _footer, from_json, to_json

TABLE = pa.table({"image_id": ["a.jpg", "b.jpg"], "score": [[0.5, 1.0], [2.0, 3.0]]})
TEXTS = st.text(st.characters(codec="utf-8"))


def _parquet(folder: Path) -> bytes:
    storage.write_table(str(folder / "x"), TABLE)
    return (folder / "x").read_bytes()


def _archive(_: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, state=np.arange(5.0))
    return storage.seal_archive(buffer.getvalue())


def _tensors(_: Path) -> bytes:
    return storage.seal(save({"x": np.arange(3.0)}, {"a": "b", **storage.BLANK_SEAL}))[0]


def _jpeg(_: Path) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "JPEG")
    return storage.seal_jpeg(buffer.getvalue())


def _json(_: Path) -> bytes:
    return to_json({"classes": ["cat", "dög"], "mean": 0.1})


FORMATS = [_parquet, _archive, _tensors, _jpeg, _json]


@pytest.mark.parametrize("make", FORMATS)
def test_every_flipped_bit_is_found(make: Callable[[Path], bytes], tmp_path: Path) -> None:
    content = make(tmp_path)
    assert storage.seal_of(content) is not None
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        assert storage.seal_of(bytes(changed)) is None, place
    assert storage.seal_of(content[:-1]) is None
    assert storage.seal_of(content + b"\0") is None
    assert storage.seal_of(b"") is None
    assert storage.seal_of(None) is None


def test_other_tools_read_sealed_files(tmp_path: Path) -> None:
    assert pq.read_table(io.BytesIO(_parquet(tmp_path))).to_pydict() == TABLE.to_pydict()
    with np.load(io.BytesIO(_archive(tmp_path))) as archive:
        assert archive["state"].tolist() == [0, 1, 2, 3, 4]
    assert load(_tensors(tmp_path))["x"].tolist() == [0, 1, 2]
    assert Image.open(io.BytesIO(_jpeg(tmp_path))).convert("RGB").size == (8, 8)
    assert json.loads(_json(tmp_path))["classes"] == ["cat", "dög"]


@given(st.dictionaries(TEXTS, TEXTS | st.floats(allow_nan=False, allow_infinity=False)))
def test_json_survives(value: dict[str, Any]) -> None:
    value.pop(KEY, None)
    assert from_json("x.json", to_json(value)) == value


@pytest.mark.parametrize("text", [KEY, f"{KEY}: {'0' * 64}", f'{KEY}": "{"a" * 64}'])
def test_texts_that_look_like_a_seal_do_no_harm(text: str, tmp_path: Path) -> None:
    assert from_json("x.json", to_json({"a": text})) == {"a": text}
    url = str(tmp_path / "x.parquet")
    storage.write_table(url, pa.table({"image_id": [text]}, metadata={"classes": text}))
    assert storage.read_table(url)["image_id"].to_pylist() == [text]


def test_a_table_that_another_tool_wrote_again_is_damaged(tmp_path: Path) -> None:
    """As one whose labels were rotated, which changed a mAP without a word."""
    path = tmp_path / "x.parquet"
    storage.write_table(str(path), TABLE)
    pq.write_table(pq.read_table(path), path)
    with pytest.raises(storage.Damaged, match=r"x\.parquet is damaged.*verify"):
        storage.read_table(str(path))


def test_a_table_is_sealed_again_when_it_is_written_again(tmp_path: Path) -> None:
    first, second = str(tmp_path / "1"), str(tmp_path / "2")
    sha256 = storage.write_table(first, TABLE.select(["image_id"]))
    assert storage.write_table(second, storage.read_table(first)) == sha256


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A file that is read one row group at a time."""
    path = tmp_path / "images.parquet"
    with storage.sealed_writer(path, TABLE.schema) as writer:
        for _ in range(3):
            writer.write_table(TABLE)
    return path


def test_no_flipped_bit_changes_a_row_group(listed: Path) -> None:
    content, url = listed.read_bytes(), str(listed)
    expected = [table.to_pydict() for table in storage.row_groups(url, TABLE.column_names)]
    assert expected == [TABLE.to_pydict()] * 3
    found = 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        listed.write_bytes(changed)
        _footer.cache_clear()
        try:
            tables = [storage.read_row_group(url, i, TABLE.column_names) for i in range(3)]
        except storage.Damaged:
            found += 1
        else:  # a bit that nothing depends on
            assert [table.to_pydict() for table in tables] == expected, place
    assert found > len(content) / 2


def test_a_file_without_a_footer_is_damaged(listed: Path) -> None:
    listed.write_bytes(b"")
    with pytest.raises(storage.Damaged):
        storage.row_group_sizes(str(listed))
    listed.write_bytes(b"PAR1")
    with pytest.raises(storage.Damaged):
        storage.read_row_group(str(listed), 0, ["image_id"])
