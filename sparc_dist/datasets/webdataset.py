"""WebDataset: tar files in which members with the same stem belong to one image.

Only headers and label files are read here. An image's uri gives its byte range within the tar, so
that workers read only those bytes.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from tarfile import TarFile, TarInfo
from typing import Any

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table
from sparc_dist.datasets.manifest import LabelReader
from sparc_dist.errors import UserError
from sparc_dist.images import SUFFIXES
from sparc_dist.storage import File

#: The size limit of a label file in bytes, because a damaged header may declare any size.
LARGEST = 2**24
Row = tuple[str, str, list[int] | None, str | None]


class WebDataset:
    """Reads a tar file or a folder of them; labels are in KEY.json (`labels`) or KEY.cls."""

    def __init__(self, url: str, classes: Sequence[str]) -> None:
        self._url = url.rstrip("/")
        self._base = storage.parent(self._url) if url.endswith(".tar") else self._url
        self._classes = list(classes)
        self.notes: list[str] = []
        self._truncated: list[str] = []
        self._extra_images = self._unreadable = 0

    def images(self) -> Iterator[pa.Table]:
        """Yields the images of each tar in their order in the file."""
        reader = LabelReader(self._classes, self._url)
        rows = (row for tar in self._tars() for row in self._rows(tar, reader))
        for batch in chunks(rows):
            yield images_table(*zip(*batch, strict=True))
        self.notes = reader.notes() + [f"{tar} is truncated." for tar in self._truncated]
        if self._extra_images:
            self.notes.append(f"{self._extra_images} images with a duplicate key were left out.")
        if self._unreadable:
            self.notes.append(f"{self._unreadable} label files could not be read.")

    def _tars(self) -> list[File]:
        if self._url.endswith(".tar"):
            return [File(self._url, storage.local_version(self._url))]
        tars = []
        if storage.is_folder(self._url):
            tars = [f for f in storage.files_below(self._url) if f.url.endswith(".tar")]
        if not tars:
            raise UserError(f"There is no .tar file at {self._url}; check the path.")
        return tars

    def _rows(self, file: File, reader: LabelReader) -> Iterator[Row]:
        """Yields the images of a tar, whose version they share."""
        tar, version = file
        try:
            with (
                storage.open_file(tar) as content,
                tarfile.open(fileobj=content, mode="r:") as archive,
            ):
                files = (member for member in archive if member.isfile())
                for _, members in groupby(files, key=_key):
                    for row in self._row(tar, archive, list(members), reader):
                        yield *row, version
                # tarfile takes a truncated header for the end; a complete tar ends in zeros.
                content.seek(archive.offset)
                if set(content.read(tarfile.BLOCKSIZE)) - {0}:
                    self._truncated.append(self._name(tar))
        except FileNotFoundError:
            raise UserError(f"There is no file {tar}; check the path.") from None
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise UserError(f"{tar} is not a valid tar file ({error}); create it again.") from None

    def _row(
        self, tar: str, archive: TarFile, members: list[TarInfo], reader: LabelReader
    ) -> Iterator[tuple[str, str, list[int] | None]]:
        """Yields the image of one key with its labels; nothing if there is no image."""
        image: TarInfo | None = None
        labels: list[int] | None = None
        for member in members:
            if member.name.lower().endswith(SUFFIXES):
                self._extra_images += image is not None
                image = image or member
            elif member.name.endswith((".json", ".cls")):
                if member.size > LARGEST:
                    self._unreadable += 1
                    continue
                file = archive.extractfile(member)
                labels = self._labels(file, member.name, reader, labels)
        if image is not None:
            uri = storage.byte_range(tar, image.offset_data, image.size)
            yield f"{self._name(tar)}/{image.name}", uri, labels

    def _name(self, tar: str) -> str:
        return tar[len(self._base) + 1 :]

    def _labels(
        self, file: Any, name: str, reader: LabelReader, previous: list[int] | None
    ) -> list[int] | None:
        """Returns the labels in a file, or the previous ones if it has none."""
        content = file.read()
        if name.endswith(".cls"):
            return reader.read(content.decode(errors="replace"), 0)
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            self._unreadable += 1
            return previous
        if isinstance(value, dict):
            value = value.get("labels")
        return reader.read(value, 0) if isinstance(value, list | str) else previous


def _key(member: TarInfo) -> str:
    """Returns a member's path up to the first dot of its name."""
    head, _, name = member.name.rpartition("/")
    return f"{head}/{name.partition('.')[0]}"
