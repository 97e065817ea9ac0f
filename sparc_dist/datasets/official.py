"""What the official data sets have in common: fixed classes, splits, a folder of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table
from sparc_dist.errors import UserError


def present_images(
    place: str, rows: Sequence[tuple[str, list[int]]], notes: list[str], alone: bool = False
) -> Iterator[pa.Table]:
    """The listed images that are in the folder ``place``; ``notes`` count those that are not.

    rows: (path within the folder, class indices). alone: the folder is this split's only, so
    that files which are not listed are counted too.
    """
    if not storage.is_folder(place):
        raise UserError(f"There is no folder {place}; it should hold the data set's images.")
    start = len(place) + 1
    there = {url[start:] for url in storage.files_below(place)}
    kept = [(path, labels) for path, labels in rows if path in there]
    if not kept:
        raise UserError(f"None of the {len(rows)} listed images is in {place}; put them there.")
    folder = place.rpartition("/")[2]
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} of {len(rows)} listed images are not in {folder}.")
    if alone and len(there) > len(kept):
        notes.append(
            f"{len(there) - len(kept)} files in {folder} are not listed and were left out."
        )
    for batch in chunks(kept):
        paths = [path for path, _ in batch]
        uris = [storage.join(place, path) for path in paths]
        yield images_table(paths, uris, [labels for _, labels in batch])


def read_lines(root: str, *names: str) -> list[str]:
    """The lines of the first of the named files that exists."""
    for name in names:
        try:
            text = storage.read_bytes(storage.join(root, name)).decode("utf-8-sig")
        except FileNotFoundError:
            continue
        except UnicodeDecodeError:
            url = storage.join(root, name)
            raise UserError(f"{url} is not text in UTF-8; fetch it anew.") from None
        return [line.strip() for line in text.splitlines() if line.strip()]
    raise UserError(f"There is no file {storage.join(root, names[0])}; it is part of the data set.")
