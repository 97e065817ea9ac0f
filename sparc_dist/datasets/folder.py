"""A folder of images, including its subfolders, without labels."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table, in_utf8
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.errors import UserError
from sparc_dist.images import SUFFIXES


class Folder:
    """Lists every image below a folder by name; the id is the path within the folder."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the images, with the names of one folder in memory at a time."""
        if not storage.is_folder(self._url):
            raise UserError(f"There is no folder {self._url}; check `images` in the config.")
        start = len(self._url) + 1
        found = (url for url in storage.files_below(self._url) if url.lower().endswith(SUFFIXES))
        not_utf8 = 0
        for uris in chunks(found):
            not_utf8 += sum(uri != in_utf8(uri) for uri in uris)
            yield images_table([uri[start:] for uri in uris], uris, [None] * len(uris))
        if not_utf8:
            self.notes.append(
                f"{not_utf8} file names are not UTF-8; rename the files to score them."
            )


KIND = DatasetKind(
    "all images in a folder and its subfolders, without labels",
    "images: the folder; classes",
    "your own",
    lambda images, classes: Folder(images),
)
