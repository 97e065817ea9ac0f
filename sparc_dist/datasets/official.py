"""The official data sets, in the layouts of their own files: VOC 2007, COCO 2014, NUS-WIDE."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.images import chunks, images_table
from sparc_dist.errors import UserError, quoted


class Voc2007:
    """Reads ImageSets/Main/CLASS_SPLIT.txt and JPEGImages; difficult objects count as absent."""

    def __init__(self, root: str, classes: Sequence[str]) -> None:
        self._root = root.rstrip("/")
        self._classes = classes
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the test split."""
        rows = [(f"{name}.jpg", labels) for name, labels in self._split("test").items()]
        return _existing_images(storage.join(self._root, "JPEGImages"), rows, self.notes)

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the labels of the training and validation splits."""
        yield list(self._split("trainval").values())

    def _split(self, split: str) -> dict[str, list[int]]:
        labels: dict[str, list[int]] = {}
        for index, name in enumerate(self._classes):
            path = f"ImageSets/Main/{name.replace(' ', '')}_{split}.txt"
            for line in _read_lines(self._root, path):
                image, _, sign = line.partition(" ")
                if sign.strip() not in ("-1", "0", "1"):
                    raise UserError(
                        f"{self._root}/{path}: the line {quoted(line)} does not end in -1, 0 or 1; "
                        "download the file again."
                    )
                present = labels.setdefault(image, [])
                if sign.strip() == "1":
                    present.append(index)
        return labels


class Coco2014:
    """Reads annotations/instances_SPLIT2014.json and val2014, without crowd annotations."""

    def __init__(self, root: str, classes: Sequence[str]) -> None:
        self._root = root.rstrip("/")
        self._classes = classes
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the validation split, with the images that have no annotations."""
        folder = storage.join(self._root, "val2014")
        return _existing_images(folder, self._split("val"), self.notes, count_unlisted=True)

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the labels of the training split."""
        yield [labels for _, labels in self._split("train")]

    def _split(self, split: str) -> list[tuple[str, list[int]]]:
        url = storage.join(self._root, "annotations", f"instances_{split}2014.json")
        try:
            with storage.open_file(url) as file:
                # The outlines are most of the file and not needed: they are dropped while parsing.
                content = json.load(file, object_hook=_without_outlines)
            names = {category["id"]: category["name"] for category in content["categories"]}
            paths = {image["id"]: str(image["file_name"]) for image in content["images"]}
            annotations = [(image, kind, crowd) for image, kind, crowd in content["annotations"]]
            return self._rows(annotations, names, paths)
        except FileNotFoundError:
            raise UserError(f"There is no file {url}; it is part of the data set.") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{url} is not a COCO instances file; download it again.") from None

    def _rows(
        self, annotations: list[Any], names: dict[int, str], paths: dict[int, str]
    ) -> list[tuple[str, list[int]]]:
        index_of = {name: index for index, name in enumerate(self._classes)}
        labels: dict[int, set[int]] = {image: set() for image in paths}
        unknown = unlisted = 0
        for image, category, crowd in annotations:
            index = index_of.get(names.get(category, ""))
            if index is None:
                unknown += 1
            elif image not in labels:
                unlisted += 1
            elif not crowd:
                labels[image].add(index)
        if unknown:
            self.notes.append(f"{unknown} annotations of unknown categories were left out.")
        if unlisted:
            self.notes.append(f"{unlisted} annotations of unlisted images were left out.")
        return [(paths[image], sorted(indices)) for image, indices in labels.items()]


def _without_outlines(value: dict[str, Any]) -> Any:
    """Returns an annotation as (image, category, crowd), and any other object unchanged."""
    if "category_id" in value and "image_id" in value:
        return value["image_id"], value["category_id"], bool(value.get("iscrowd", 0))
    return value


class NusWide:
    """Reads ImageList, TrainTestLabels (or Groundtruth/TrainTestLabels) and Flickr."""

    def __init__(self, root: str, classes: Sequence[str]) -> None:
        self._root = root.rstrip("/")
        self._classes = classes
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the test split."""
        paths = [
            line.replace("\\", "/")
            for line in _read_lines(self._root, "ImageList/TestImagelist.txt")
        ]
        labels = self._split("Test")
        if len(paths) != len(labels):
            raise UserError(
                f"{self._root}: {len(paths)} test images are listed, but there are labels for "
                f"{len(labels)}; download both files again."
            )
        rows = list(zip(paths, labels, strict=True))
        return _existing_images(storage.join(self._root, "Flickr"), rows, self.notes)

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the labels of the training split."""
        yield self._split("Train")

    def _split(self, split: str) -> list[list[int]]:
        """Returns the class indices of each image of a split."""
        rows: list[list[int]] = []
        for index, name in enumerate(self._classes):
            path = f"TrainTestLabels/Labels_{name}_{split}.txt"
            signs = _read_lines(self._root, path, f"Groundtruth/{path}")
            rows = rows or [[] for _ in signs]
            if len(signs) != len(rows) or set(signs) - {"0", "1"}:
                raise UserError(
                    f"{self._root}/{path} must have {len(rows)} lines of 0 or 1; download it again."
                )
            for row, sign in zip(rows, signs, strict=True):
                if sign == "1":
                    row.append(index)
        return rows


def _existing_images(
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


def _read_lines(root: str, *names: str) -> list[str]:
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
