"""Duplicate ids, found in bounded memory among any number of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.errors import UserError

#: Hashes in memory: more of them go to files, each with those of equal last bits.
HELD = 2**22
FILES = 256

Hashes = NDArray[np.int64]


class SeenIds:
    """Eight bytes of every id: in memory, or beyond HELD ids in temporary files."""

    def __init__(self) -> None:
        self._held: list[Hashes] = []
        self._count = 0
        self._folder: Path | None = None
        self._end = ExitStack()

    def __enter__(self) -> SeenIds:
        return self

    def __exit__(self, *error: Any) -> None:
        self._end.__exit__(*error)  # deletes the folder; a full disk becomes a UserError

    def add(self, ids: Sequence[str]) -> None:
        """Adds the ids of some images."""
        self._held.append(_hashes(ids))
        self._count += len(ids)
        if self._count >= HELD:
            self._spill()

    def check(self, again: Iterable[Sequence[str]]) -> None:
        """Raises UserError about the first id that occurs twice. again: yields all ids again."""
        if self._folder is not None:
            self._spill()
        doubtful = np.concatenate([*map(_repeated, self._parts())])
        if len(doubtful):
            # Ids of equal hash may differ: only the ids themselves tell.
            check_unique(_among(again, np.unique(doubtful)))

    def _spill(self) -> None:
        """Appends what is held to the files."""
        if self._folder is None:
            self._folder = self._end.enter_context(storage.temporary_folder())
        hashes = np.sort(_joined(self._held).astype(np.uint64))
        edges = np.searchsorted(hashes, np.arange(1, FILES, dtype=np.uint64) << np.uint64(56))
        for number, part in enumerate(np.split(hashes, edges)):
            with (self._folder / str(number)).open("ab") as file:
                file.write(part.tobytes())
        self._held, self._count = [], 0

    def _parts(self) -> Iterator[Hashes]:
        """Yields all hashes; equal ones are in the same part."""
        if self._folder is None:
            yield _joined(self._held)
            return
        for number in range(FILES):
            yield np.fromfile(self._folder / str(number), np.int64)


def check_unique(ids: Iterable[str]) -> None:
    """Raises UserError about the first id that occurs twice."""
    seen: set[str] = set()
    for image_id in ids:
        if image_id in seen:
            raise UserError(f"Duplicate image_id: {image_id}; make the ids unique.")
        seen.add(image_id)


def _among(batches: Iterable[Sequence[str]], doubtful: Hashes) -> Iterator[str]:
    """Yields the ids whose hash is one of the doubtful, which are sorted."""
    for ids in batches:
        hashes = _hashes(ids)
        places = np.searchsorted(doubtful, hashes).clip(max=len(doubtful) - 1)
        yield from (ids[row] for row in np.flatnonzero(doubtful[places] == hashes).tolist())


def _hashes(ids: Sequence[str]) -> Hashes:
    return np.fromiter(map(hash, ids), np.int64, len(ids))


def _joined(parts: Sequence[Hashes]) -> Hashes:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _repeated(hashes: Hashes) -> Hashes:
    """Returns the hashes that occur more than once."""
    ordered = np.sort(hashes)
    return np.asarray(ordered[1:][ordered[1:] == ordered[:-1]])
