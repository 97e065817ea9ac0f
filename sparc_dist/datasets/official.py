"""Functions that the modules of the official data sets share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table
from sparc_dist.errors import UserError


def existing_images(
    folder: str,
    rows: Sequence[tuple[str, list[int]]],
    notes: list[str],
    count_unlisted: bool = False,
) -> Iterator[pa.Table]:
    """Yields the listed images that exist; adds the number of missing ones to ``notes``.

    rows: (path within the folder, class indices). count_unlisted: whether to note files that are
    not listed too, for a folder with the images of one split only.
    """
    if not storage.is_folder(folder):
        raise UserError(f"There is no folder {folder}; it should contain the data set's images.")
    start = len(folder) + 1
    files = {file.url[start:]: file.version for file in storage.files_below(folder)}
    existing = [(path, labels) for path, labels in rows if path in files]
    if not existing:
        raise UserError(f"None of the {len(rows)} listed images is in {folder}; put them there.")
    name = folder.rpartition("/")[2]
    if len(existing) < len(rows):
        notes.append(f"{len(rows) - len(existing)} of {len(rows)} listed images are not in {name}.")
    if count_unlisted and len(files) > len(existing):
        notes.append(
            f"{len(files) - len(existing)} files in {name} are not listed and were left out."
        )
    for batch in chunks(existing):
        paths = [path for path, _ in batch]
        uris = [storage.join(folder, path) for path in paths]
        versions = [files[path] for path in paths]
        yield images_table(paths, uris, [labels for _, labels in batch], versions)


def read_lines(root: str, *names: str) -> list[str]:
    """Returns the lines of the first of the named files that exists."""
    for name in names:
        try:
            text = storage.read_bytes(storage.join(root, name)).decode("utf-8-sig")
        except FileNotFoundError:
            continue
        except UnicodeDecodeError:
            url = storage.join(root, name)
            raise UserError(f"{url} is not UTF-8 text; download it again.") from None
        return [line.strip() for line in text.splitlines() if line.strip()]
    raise UserError(f"There is no file {storage.join(root, names[0])}; it is part of the data set.")
