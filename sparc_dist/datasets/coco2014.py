"""COCO 2014, in the layout of its own archives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sparc_dist import storage
from sparc_dist.datasets.kind import DatasetKind
from sparc_dist.datasets.official import present_images
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
    """annotations/instances_SPLIT2014.json and val2014; crowd annotations are left out."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self.notes: list[str] = []

    def images(self) -> Iterator[pa.Table]:
        """The validation split; images without annotations count."""
        place = storage.join(self._root, "val2014")
        return present_images(place, self._split("val"), self.notes, alone=True)

    def labels(self) -> Iterator[list[list[int]]]:
        """The labels of the training split."""
        yield [labels for _, labels in self._split("train")]

    def _split(self, split: str) -> list[tuple[str, list[int]]]:
        url = storage.join(self._root, "annotations", f"instances_{split}2014.json")
        try:
            with storage.open_file(url) as file:
                # The outlines are most of the file and nothing to us: dropped while parsing.
                content = json.load(file, object_hook=_without_outlines)
            names = {category["id"]: category["name"] for category in content["categories"]}
            paths = {image["id"]: str(image["file_name"]) for image in content["images"]}
            annotations = [(image, kind, crowd) for image, kind, crowd in content["annotations"]]
            return self._rows(annotations, names, paths)
        except FileNotFoundError:
            raise UserError(f"There is no file {url}; it is part of the data set.") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{url} is not a COCO instances file; fetch it anew.") from None

    def _rows(
        self, annotations: list[Any], names: dict[int, str], paths: dict[int, str]
    ) -> list[tuple[str, list[int]]]:
        index_of = {name: index for index, name in enumerate(CLASSES)}
        labels: dict[int, set[int]] = {image: set() for image in paths}
        unknown = stray = 0
        for image, category, crowd in annotations:
            index = index_of.get(names.get(category, ""))
            if index is None:
                unknown += 1
            elif image not in labels:
                stray += 1
            elif not crowd:
                labels[image].add(index)
        if unknown:
            self.notes.append(f"{unknown} annotations of unknown categories were left out.")
        if stray:
            self.notes.append(f"{stray} annotations of images that are not listed were left out.")
        return [(paths[image], sorted(found)) for image, found in labels.items()]


def _without_outlines(value: dict[str, Any]) -> Any:
    """An annotation as (image, category, crowd); anything else as it is."""
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
