"""A folder of images, searched with all below; there are no labels."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table, in_utf8
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.errors import UserError
from sparc_dist.images import SUFFIXES


class Folder:
    """Every image below a folder, by name; its id is its path within the folder."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """The images, one folder's names in memory at a time."""
        if not storage.is_folder(self._url):
            raise UserError(f"There is no folder {self._url}; check `images` in the config.")
        start = len(self._url) + 1
        found = (url for url in storage.files_below(self._url) if url.lower().endswith(SUFFIXES))
        foreign = 0
        for uris in chunks(found):
            foreign += sum(uri != in_utf8(uri) for uri in uris)
            yield images_table([uri[start:] for uri in uris], uris, [None] * len(uris))
        if foreign:
            self.notes.append(
                f"{foreign} file names are not UTF-8; rename the files to have them scored."
            )


KIND = DatasetKind(
    "every image below a folder, without labels",
    "images: the folder; classes",
    "your own",
    lambda images, classes: Folder(images),
)
