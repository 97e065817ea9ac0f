"""WebDataset: tar files whose members with the same stem belong to one image.

Only the headers are read here. An image's uri names its bytes within the tar, so that workers
read just those.
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
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.datasets.labels import LabelReader
from sparc_dist.errors import UserError
from sparc_dist.images import SUFFIXES

#: Of a file with labels, in bytes; a header may boast of any size.
LARGEST = 2**24
Row = tuple[str, str, list[int] | None]


class WebDataset:
    """A tar file or a folder of them; labels from KEY.json (`labels`) or KEY.cls (an index)."""

    def __init__(self, url: str, classes: Sequence[str]) -> None:
        self._url = url.rstrip("/")
        self._base = storage.parent(self._url) if url.endswith(".tar") else self._url
        self._classes = list(classes)
        self.notes: list[str] = []
        self._cut: list[str] = []
        self._beside = self._unread = 0

    def images(self) -> Iterator[pa.Table]:
        """The images of each tar in the order in which they stand there."""
        reader = LabelReader(self._classes, self._url)
        rows = (row for tar in self._tars() for row in self._rows(tar, reader))
        for batch in chunks(rows):
            ids, uris, labels = zip(*batch, strict=True)
            yield images_table(ids, uris, labels)
        self.notes = reader.notes() + [f"{tar} is cut off in the middle." for tar in self._cut]
        if self._beside:
            self.notes.append(f"{self._beside} images with the key of another were left out.")
        if self._unread:
            self.notes.append(f"{self._unread} label files could not be read.")

    def _tars(self) -> list[str]:
        if self._url.endswith(".tar"):
            return [self._url]
        tars = []
        if storage.is_folder(self._url):
            tars = [url for url in storage.files_below(self._url) if url.endswith(".tar")]
        if not tars:
            raise UserError(f"There is no .tar file at {self._url}; check `images` in the config.")
        return tars

    def _rows(self, tar: str, reader: LabelReader) -> Iterator[Row]:
        try:
            with storage.open_file(tar) as file, tarfile.open(fileobj=file, mode="r:") as archive:
                files = (member for member in archive if member.isfile())
                for _, members in groupby(files, key=_key):
                    yield from self._row(tar, archive, list(members), reader)
                # tarfile takes a header that is cut off for the end; a whole tar ends in zeros.
                file.seek(archive.offset)
                if set(file.read(tarfile.BLOCKSIZE)) - {0}:
                    self._cut.append(self._name(tar))
        except FileNotFoundError:
            raise UserError(f"There is no file {tar}; check the path.") from None
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise UserError(f"{tar} is not a whole tar file ({error}); make it anew.") from None

    def _row(
        self, tar: str, archive: TarFile, members: list[TarInfo], reader: LabelReader
    ) -> Iterator[Row]:
        """The image of one key with its labels; nothing where there is no image."""
        image: TarInfo | None = None
        labels: list[int] | None = None
        for member in members:
            if member.name.lower().endswith(SUFFIXES):
                self._beside += image is not None
                image = image or member
            elif member.name.endswith((".json", ".cls")):
                if member.size > LARGEST:
                    self._unread += 1
                    continue
                file = archive.extractfile(member)
                labels = self._labels(file, member.name, reader, labels)
        if image is not None:
            uri = storage.byte_range(tar, image.offset_data, image.size)
            yield f"{self._name(tar)}/{image.name}", uri, labels

    def _name(self, tar: str) -> str:
        return tar[len(self._base) + 1 :]

    def _labels(
        self, file: Any, name: str, reader: LabelReader, known: list[int] | None
    ) -> list[int] | None:
        """Labels of a side file; one that says nothing of labels changes nothing."""
        content = file.read()
        if name.endswith(".cls"):
            return reader.read(content.decode(errors="replace"), 0)
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            self._unread += 1
            return known
        if isinstance(value, dict):
            value = value.get("labels")
        return reader.read(value, 0) if isinstance(value, list | str) else known


def _key(member: TarInfo) -> str:
    """A member's path up to the first dot of its name."""
    head, _, name = member.name.rpartition("/")
    return f"{head}/{name.partition('.')[0]}"


KIND = DatasetKind(
    "tar files in the WebDataset layout",
    "images: a .tar file or a folder of them, labels in KEY.json or KEY.cls; classes",
    "your own",
    WebDataset,
)
