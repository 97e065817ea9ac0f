"""Changes files of a run by hand, sealed again as a run writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparc_dist import storage

Value = dict[str, Any]

SEAL = re.compile(rb"(sparc_dist\.sha256[^0-9a-f]{1,6})[0-9a-f]{64}")


def edit_json(path: Path | str, change: Callable[[Value], object]) -> None:
    """Calls ``change`` with the value of a JSON file of a run, and writes what it has made of it.

    It may change the value in place, or return another one.
    """
    value = storage.read_json(str(path))
    changed = change(value)
    storage.write_json(str(path), changed if isinstance(changed, dict) else value)


def set_fields(path: Path | str, **fields: object) -> None:
    """Sets fields of a JSON file of a run; None deletes a field."""
    found = {**storage.read_json(str(path)), **fields}
    kept = {name: value for name, value in found.items() if value is not None}
    storage.write_json(str(path), kept)


def reseal(path: Path | str) -> None:
    """Seals a file that was changed, in whose seal is another hash."""
    content = Path(path).read_bytes()
    blank = SEAL.sub(lambda found: found[1] + b"0" * 64, content)
    Path(path).write_bytes(storage.seal(blank)[0])


def write_list(path: Path | str, shards: Iterable[pa.Table]) -> None:
    """Writes a part of a list of images, with a row group for each shard."""
    first, *others = shards
    with storage.sealed_writer(Path(path), first.schema) as writer:
        for shard in (first, *others):
            writer.write_table(shard)


def flip_bit(path: Path | str) -> None:
    """Changes one bit in the middle of a file."""
    content = bytearray(Path(path).read_bytes())
    content[len(content) // 2] ^= 1
    Path(path).write_bytes(content)
