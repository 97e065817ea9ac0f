import hashlib
import os
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.errors import UserError
from sparc_dist.runs.storing import list_column, matrix
from sparc_dist.storage import StorageError
from tests.support.limits import largest_file
from tests.support.sealed import write_list


def test_a_file_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "deep" / "er" / "file"
    storage.write_bytes(str(target), b"first")

    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=r"no space left to write .*; free some"):
        storage.write_bytes(str(target), b"second")
    assert target.read_bytes() == b"first"
    assert list(target.parent.iterdir()) == [target]


def test_a_large_file_is_stored_only_if_its_block_ends_without_an_error(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"

    def stop_half_way() -> None:
        with storage.atomic_file(str(target)) as path:
            path.write_bytes(b"half")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        stop_half_way()
    assert not target.exists()
    with storage.atomic_file(str(target)) as path:
        path.write_bytes(b"whole")
    assert target.read_bytes() == b"whole"
    assert list(target.parent.iterdir()) == [target]


def test_a_full_temporary_folder_is_named_with_a_remedy(tmp_path: Path) -> None:
    table = pa.table({"a": np.random.default_rng(0).normal(size=999)})
    with (
        pytest.raises(UserError, match=f"files in {gettempdir()}; free some, or set TMPDIR"),
        largest_file(1000),
        storage.atomic_file(str(tmp_path / "table")) as path,
    ):
        pq.write_table(table, path)
    assert list(tmp_path.iterdir()) == []


def test_a_matrix_survives_parquet_bit_by_bit(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    url = str(tmp_path / "m.parquet")
    digest = storage.write_table(
        url, pa.table({"m": list_column(rows), "e": list_column(rows[:, :0])})
    )
    table = storage.read_table(url)
    np.testing.assert_array_equal(matrix(table["m"], 5), rows)
    assert matrix(table["e"], 0).shape == (7, 0)
    assert digest == storage.seal_of(Path(url).read_bytes())
    column = pq.ParquetFile(url).metadata.row_group(0).column(0)
    assert column.encodings == ("RLE", "BYTE_STREAM_SPLIT")
    assert column.compression == "ZSTD"


def test_json_keeps_every_bit_and_refuses_nan(tmp_path: Path) -> None:
    url = str(tmp_path / "x.json")
    values = {"numbers": [0.1 + 0.2, 1e-300, -1 / 3]}
    storage.write_json(url, values)
    assert storage.read_json(url) == values
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(url, {"numbers": float("nan")})
    assert storage.read_json(url) == values


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    url = str(tmp_path / "t.parquet")
    write_list(url, [pa.table({"x": [1, 2, 3]})])
    assert storage.row_group_sizes(url) == [3]
    write_list(url, [pa.table({"x": [1]})])
    assert storage.row_group_sizes(url) == [1]
    assert storage.read_row_group(url, 0, ["x"]).to_pylist() == [{"x": 1}]


def test_a_folder_has_no_lines(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{tmp_path} is a folder; name a text file"):
        storage.read_lines(str(tmp_path))


def test_hash_and_delete(tmp_path: Path) -> None:
    url = str(tmp_path / "x")
    assert storage.sha256(url) is None
    storage.delete(url)
    storage.write_bytes(url, b"abc")
    assert storage.sha256(url) == hashlib.sha256(b"abc").hexdigest()
    storage.delete(url)
    assert storage.read_if_exists(url) is None


def test_relative_paths_are_below_their_base() -> None:
    assert storage.absolute("x/../y.csv", "/data") == "/data/y.csv"
    assert storage.absolute("/abs/y.csv", "/data") == "/abs/y.csv"
    assert storage.absolute("y.csv", "s3://bucket/run") == "s3://bucket/run/y.csv"
    assert storage.absolute("s3://other/y.csv", "/data") == "s3://other/y.csv"
    assert storage.absolute("y.jpg", storage.parent("/m.csv")) == "/y.jpg"


def test_files_below_keep_the_spelling_of_the_url(tmp_path: Path) -> None:
    folder = f"file://{tmp_path}"
    storage.write_bytes(f"{folder}/sub/a.jpg", b"x")
    found = [file.url for file in storage.files_below(folder)]
    assert found == [f"{folder}/sub/a.jpg"]
    assert storage.read_bytes(found[0]) == b"x"
    with pytest.raises(UserError, match="chain of file systems"):
        list(storage.files_below("zip://photos::x.zip"))
