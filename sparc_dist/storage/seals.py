"""Seals: a checksum inside a file, so that whoever reads it can tell whether it is whole.

A sealed file holds KEY and the SHA-256 of its own content with zeros in the place of the hash.
Where the two stand is up to the format: a last key of JSON, the metadata of Parquet, the comment
of an NPZ archive or a JPEG. Other tools read such files as usual.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparc_dist.errors import UserError
from sparc_dist.storage.urls import without_secrets

KEY = "sparc_dist.sha256"
BLANK = "0" * 64
#: What the metadata of a file need before it is sealed.
BLANK_SEAL = {KEY: BLANK}
_SEAL = re.compile(rb"sparc_dist\.sha256[^0-9a-f]{1,6}([0-9a-f]{64})")
#: A text in the file may look like a seal; more such texts than this are an attack.
_MOST = 8


class Damaged(UserError, ValueError):
    """A file is not as it was written."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{without_secrets(url)} is damaged: its content does not match its checksum; "
            "`sparc-dist verify RUN` lists all damaged files of a run and what to do about each."
        )


def seal(content: bytes) -> tuple[bytes, str]:
    """Returns a content with its seal in place of the blank one, and the hash in it."""
    start = next(place for place in _places(content) if content[place : place + 64] == _ZEROS)
    sha256 = _hash(content, start)
    return content[:start] + sha256.encode() + content[start + 64 :], sha256


def seal_of(content: bytes | None) -> str | None:
    """Returns the hash in a sealed content; None if it has none, or if that does not match."""
    for start in _places(content or b""):
        sha256 = _hash(content or b"", start)
        if content is not None and content[start : start + 64] == sha256.encode():
            return sha256
    return None


def unsealed(url: str, content: bytes) -> bytes:
    """Returns a content that was read from ``url``; raises Damaged unless its seal matches."""
    if seal_of(content) is None:
        raise Damaged(url)
    return content


def to_json(value: Mapping[str, Any]) -> bytes:
    """Returns a value as readable, sealed JSON; floats keep every bit."""
    blank = {**value, KEY: BLANK}
    text = json.dumps(blank, indent=1, ensure_ascii=False, allow_nan=False)
    return seal(f"{text}\n".encode())[0]


def from_json(url: str, content: bytes) -> dict[str, Any]:
    """Returns the value that ``to_json`` was given; raises Damaged if it is another one."""
    value: dict[str, Any] = json.loads(unsealed(url, content))
    del value[KEY]
    return value


def seal_archive(content: bytes) -> bytes:
    """Returns an NPZ archive with a seal in its comment, which the format keeps at its end."""
    comment = f"{KEY}: {BLANK}".encode()
    # The last two bytes are the length of the comment, so far 0.
    return seal(content[:-2] + len(comment).to_bytes(2, "little") + comment)[0]


def seal_jpeg(content: bytes) -> bytes:
    """Returns a JPEG with a seal in a comment, behind the first segment, which must stay first."""
    comment = f"{KEY}: {BLANK}".encode()
    segment = b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    place = 4 + int.from_bytes(content[4:6], "big")
    return seal(content[:place] + segment + content[place:])[0]


def seal_footer(path: Path) -> None:
    """Seals the footer of a Parquet file that was written with a blank seal.

    For files that are read in parts: their pages have checksums of their own.
    """
    with path.open("r+b") as file:
        start = file.seek(-8, 2)
        start -= int.from_bytes(file.read(4), "little")
        file.seek(start)
        footer = seal(file.read())[0]
        file.seek(start)
        file.write(footer)


_ZEROS = BLANK.encode()


def _places(content: bytes) -> Iterator[int]:
    """Yields where hashes of seals may start, from the end."""
    end = len(content)
    for _ in range(_MOST):
        end = content.rfind(KEY.encode(), 0, end)
        if end < 0:
            return
        if found := _SEAL.match(content, end):
            yield found.start(1)


def _hash(content: bytes, start: int) -> str:
    whole = memoryview(content)
    digest = hashlib.sha256(whole[:start])
    digest.update(_ZEROS)
    digest.update(whole[start + 64 :])
    return digest.hexdigest()
