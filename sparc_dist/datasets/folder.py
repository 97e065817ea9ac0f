"""Images by their place: a folder with its subfolders, single images, patterns; without labels."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table, in_utf8
from sparc_dist.errors import UserError
from sparc_dist.images import HEIC, SUFFIXES
from sparc_dist.runs import names_of_run
from sparc_dist.storage import File, is_web, without_secrets

WILDCARDS = "*?["
KINDS_SHOWN = 6  # of skipped files, in a note


class Folder:
    """Lists every image by name; the id is the path within the folder.

    With several places it is the path within the folder that they have in common.
    """

    def __init__(self, images: str | Sequence[str], classes: Sequence[str] = ()) -> None:
        urls = [images] if isinstance(images, str) else images
        self._urls = list(dict.fromkeys(url.rstrip("/") for url in urls))
        self.notes: list[str] = []
        self._skipped: Counter[str] = Counter()

    def images(self) -> Iterator[pa.Table]:
        """Yields the images; holds a page of names of each folder that it is in."""
        self._skipped.clear()
        yield from self._tables([self._place(url) for url in self._urls])

    def images_after(self, uri: str) -> Iterator[pa.Table] | None:
        """Yields those behind an image, of a folder; other places are listed from the start."""
        (url, *others) = self._urls
        if others or is_web(url) or not uri.startswith(f"{url}/") or not storage.is_folder(url):
            return None
        if "\\udc" in uri:  # not UTF-8: the list has another spelling of the name than the folder
            return None
        after = uri.removeprefix(f"{url}/")
        files = storage.files_below(url, _left_out, after, self._skipped)
        return self._tables([(url, filter(self._is_image, files))], resumed=True)

    def _tables(
        self, places: Sequence[tuple[str, Iterator[File]]], resumed: bool = False
    ) -> Iterator[pa.Table]:
        """Yields the images of folders, each with the files in it."""
        folders, found = zip(*places, strict=True)
        levels = zip(*(folder.split("/") for folder in folders), strict=False)
        common = "/".join(level[0] for level in takewhile(lambda level: len({*level}) == 1, levels))
        count = not_utf8 = 0
        for files in chunks(chain.from_iterable(found)):
            uris, versions = zip(*files, strict=True)
            count += len(uris)
            not_utf8 += sum(uri != in_utf8(uri) for uri in uris)
            ids = [without_secrets(uri).removeprefix(common).lstrip("/") for uri in uris]
            yield images_table(ids, uris, [None] * len(uris), versions)
        skipped = self._skipped_kinds()
        if not count and not resumed:
            named = ", ".join(self._urls[:3])
            also = f" (skipped: {skipped})" if skipped else ""
            raise UserError(f"{named} contains no images{also}; check the path.")
        if skipped:
            since = " since the listing was resumed" if resumed else ""
            self.notes.append(f"Skipped{since}: {skipped}.")
        if not_utf8:
            self.notes.append(
                f"{not_utf8} file names are not UTF-8; rename the files to score them."
            )

    def _place(self, url: str) -> tuple[str, Iterator[File]]:
        """Returns a folder and the images in it that ``url`` names."""
        if not is_web(url):  # a web server does not say what is a folder
            if storage.is_folder(url):
                files = storage.files_below(url, _left_out, skipped=self._skipped)
                return url, filter(self._is_image, files)
            if not storage.exists(url):
                return self._matches(url)
        file = File(url, storage.local_version(url))
        if len(self._urls) == 1 and not url.lower().endswith(HEIC):
            return storage.parent(url), iter([file])  # whatever its name is
        return storage.parent(url), filter(self._is_image, [file])

    def _matches(self, pattern: str) -> tuple[str, Iterator[File]]:
        start = next((i for i, letter in enumerate(pattern) if letter in WILDCARDS), None)
        if start is None:
            raise UserError(f"There is no folder or image {pattern}; check the path.")
        if not (found := storage.matches(pattern)):
            raise UserError(f"No file matches {pattern}; check the pattern.")
        folder = pattern[:start].rpartition("/")[0]
        visible = [file for file in found if "/." not in file.url.removeprefix(folder)]
        self._skipped["hidden"] += len(found) - len(visible)
        return folder, filter(self._is_image, visible)

    def _is_image(self, file: File) -> bool:
        # In an archive: zip://photo.jpg::photos.zip. Other names may have colons, too.
        inside = file.url.startswith(("zip://", "tar://"))
        name = file.url.partition("::")[0] if inside else file.url
        if name.lower().endswith(SUFFIXES):
            return True
        self._skipped[os.path.splitext(name)[1].lower() or "without a suffix"] += 1
        return False

    def _skipped_kinds(self) -> str:
        """Returns how many files of which kinds were skipped, the most frequent first."""
        kinds = [(kind, count) for kind, count in self._skipped.most_common() if count]
        hint = dict.fromkeys(HEIC, " (install pillow-heif to read them)")
        shown = [f"{count:,} {kind}{hint.get(kind, '')}" for kind, count in kinds[:KINDS_SHOWN]]
        rest = sum(count for _, count in kinds[KINDS_SHOWN:])
        return ", ".join([*shown, *([f"{rest:,} others"] if rest else [])])


def _left_out(folder: str, names: list[str]) -> dict[str, str]:
    """Returns the hidden names and those that a run wrote, with these reasons."""
    hidden = (name for name in names if name.startswith("."))
    own = names_of_run(folder, names)
    return dict.fromkeys(hidden, "hidden") | dict.fromkeys(own, "written by a run")
