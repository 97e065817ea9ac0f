"""Reading files that others made: up to a limit of bytes, and pickles without running their code.

A store or a web server may send more than it declared, an archive may inflate to any size, and a
local file may be a device: nothing here reads more than it was asked to. A pickle is a program that
can call any function by name: here a name resolves to a stand-in that the reader provides, and to
nothing else.
"""

from __future__ import annotations

import io
import os
import pickle
import pickletools
from collections.abc import Mapping
from typing import Any

from fsspec.asyn import sync
from fsspec.implementations.local import LocalFileSystem

from sparc_dist.storage.filesystems import BadFile, regular_size


def too_large(url: str, most: int) -> BadFile:
    """Returns the error about a file that has more than ``most`` bytes."""
    return BadFile(url, f"has more than {most:,} bytes")


def open_regular(path: str) -> io.BufferedReader:
    """Opens a local file for reading; raises BadFile if it is a pipe, a device or a socket."""
    regular_size(path)
    # Without waiting, should a pipe have replaced it since.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def read_whole(fs: Any, path: str, most: int | None) -> bytes:
    """Returns the content of a file of a file system; raises BadFile beyond ``most`` bytes."""
    if isinstance(fs, LocalFileSystem):
        return _read_local(path, most)
    if most is None:
        return bytes(fs.cat_file(path))
    if _is_web(fs):
        return sync(fs.loop, _read_web, fs, path, most, {})  # type: ignore[no-any-return]
    if hasattr(fs, "call_s3"):
        return sync(fs.loop, _read_object, fs, path, most)  # type: ignore[no-any-return]
    # Archives return no more than the size that they declare of a member.
    if (fs.info(path)["size"] or 0) > most:
        raise too_large(path, most)
    return bytes(fs.cat_file(path))


def read_range(fs: Any, path: str, start: int, size: int, most: int | None) -> bytes:
    """Returns ``size`` bytes of a file; of a web server that has no ranges, all of it."""
    if isinstance(fs, LocalFileSystem):
        with open_regular(path) as file:
            file.seek(start)
            return file.read(size)
    if _is_web(fs) and most is not None and size:
        span = {"Range": f"bytes={start}-{start + size - 1}"}
        return sync(fs.loop, _read_web, fs, path, most, span)  # type: ignore[no-any-return]
    return bytes(fs.cat_file(path, start=start, end=start + size))


def _is_web(fs: Any) -> bool:
    """Whether a file system is fsspec's of web servers, whose import loads aiohttp."""
    return "https" in fs.protocol


def _read_local(path: str, most: int | None) -> bytes:
    size = regular_size(path)
    if most is not None and size > most:
        raise too_large(path, most)
    with open_regular(path) as file:
        content = file.read(size + 1)
        if len(content) <= size:
            return content
        # It grows, or the system makes it up as it is read.
        rest = file.read(-1 if most is None else most - size)
    if most is not None and len(content) + len(rest) > most:
        raise too_large(path, most)
    return content + rest


async def _read_web(fs: Any, url: str, most: int, headers: dict[str, str]) -> bytes:
    """Reads the answer of a web server piece by piece, whatever length it declares."""
    session = await fs.set_session()
    async with session.get(fs.encode_url(url), headers=headers, **fs.kwargs) as answer:
        fs._raise_not_found_for_status(answer, url)
        pieces, size = [], 0
        async for piece in answer.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise too_large(url, most)
    return b"".join(pieces)


async def _read_object(fs: Any, path: str, most: int) -> bytes:
    """Reads an object of S3 in one request, which also tells its size."""
    bucket, key, version = fs.split_path(path)
    of = {"Bucket": bucket, "Key": key, **({"VersionId": version} if version else {})}
    answer = await fs._call_s3("get_object", **of)
    try:
        if answer["ContentLength"] > most:
            raise too_large(path, most)
        return await answer["Body"].read()  # type: ignore[no-any-return]
    finally:
        answer["Body"].close()


class RestrictedUnpickler(pickle.Unpickler):
    """Reads a pickle. stand_ins: by module and name, what a pickle may call."""

    def __init__(self, content: bytes, stand_ins: Mapping[tuple[str, str], Any]) -> None:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
            # An index beyond the number of opcodes would make the memo fill all memory.
            is_put = opcode.name in ("PUT", "BINPUT", "LONG_BINPUT")
            if is_put and not 0 <= (argument or 0) <= number:
                raise pickle.UnpicklingError(f"it remembers a value as number {argument}")
        super().__init__(io.BytesIO(content))
        self._stand_ins = stand_ins

    def find_class(self, module: str, name: str) -> Any:
        """Returns a stand-in; raises UnpicklingError for any other name."""
        if (module, name) not in self._stand_ins:
            raise pickle.UnpicklingError(f"it refers to {f'{module}.{name}'!r}")
        return self._stand_ins[module, name]
