"""COCO 2014, in the layout of its archives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.datasets.official import existing_images
from sparc_dist.errors import UserError

CLASSES = tuple(
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,"
    "stop sign,parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,"
    "backpack,umbrella,handbag,tie,suitcase,frisbee,skis,snowboard,sports ball,kite,"
    "baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,cup,fork,"
    "knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,"
    "chair,couch,potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,"
    "cell phone,microwave,oven,toaster,sink,refrigerator,book,clock,vase,scissors,teddy bear,"
    "hair drier,toothbrush".split(",")
)


class Coco2014:
    """Reads annotations/instances_SPLIT2014.json and val2014, without crowd annotations."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """Yields the validation split, with the images that have no annotations."""
        folder = storage.join(self._root, "val2014")
        return existing_images(folder, self._split("val"), self.notes, count_unlisted=True)

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
        index_of = {name: index for index, name in enumerate(CLASSES)}
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


KIND = DatasetKind(
    "COCO 2014 validation: 40,504 images, 80 classes; crowd annotations are left out",
    "images: a folder with annotations/instances_{train,val}2014.json and val2014/",
    "annotations_trainval2014.zip and val2014.zip of the COCO data set",
    lambda images, classes: Coco2014(images),
    CLASSES,
    images=40504,
    paper_name="COCO",
)
