"""The kinds of data sets: what a config may say about each, and what reads it.

A new kind is an entry here and a module in ``datasets``. No other module asks for a kind by its
name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: The fusion that decides on official and on other data sets, unless a config names one.
DECIDES = {"official": "sparc", "own": "duo"}


@dataclass(frozen=True)
class DatasetKind:
    """A kind of data set.

    summary, needs, origin: texts for ``sparc-dist datasets``.
    reader: returns a ``datasets.Source``, given ``images`` of the config and the class names; or
    where it is, as "package.module:name", to be imported when it is used.
    several: whether ``images`` may be a list.
    endings: how the name of ``images`` ends if it is of this kind.
    table: whether ``images`` is a table, a file that says which images there are: if it changes, it
    makes another run, and before the start its ids and some of its files are looked at.
    compared: whether every start looks for new, removed and changed images.
    classes: the names of an official data set, which also has training labels.
    images, paper_name: the number of its test images, and the paper's name of it.
    direction, resnet_size: the paper's test for co-occurring pairs, and side of the input of
    ResNets in pixels.
    """

    summary: str
    needs: str
    origin: str
    reader: str | Callable[[Any, Sequence[str]], Any]
    several: bool = False
    endings: tuple[str, ...] = ()
    table: bool = False
    compared: bool = False
    classes: tuple[str, ...] = ()
    images: int = 0
    paper_name: str | None = None
    direction: Literal["either", "forward"] = "either"
    resnet_size: int | None = None

    @property
    def official(self) -> bool:
        """Whether it has classes of its own, and the paper's settings are its defaults."""
        return bool(self.classes)

    @property
    def decides(self) -> str:
        """The fusion that decides, unless a config names one."""
        return DECIDES["official" if self.official else "own"]

    @property
    def defaults(self) -> dict[str, Any]:
        """What a config may leave out about a data set, except of its prompts."""
        if self.official:
            return {"background": "none", "templates": "openai", "resnet_size": self.resnet_size}
        return {"background": "auto", "templates": "simple"}

    @property
    def prompt_defaults(self) -> dict[str, Any]:
        """What a config may leave out about its prompts."""
        if self.official:
            return {"source": "training", "direction": self.direction}
        return {"source": "all-pairs"}


DATASET_KINDS = {
    "voc2007": DatasetKind(
        "Pascal VOC 2007 test: 4,952 images, 20 classes; difficult objects count as absent",
        "images: the folder VOC2007 with ImageSets/Main/*_test.txt and *_trainval.txt, JPEGImages/",
        "VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar of the Pascal VOC 2007 challenge",
        "sparc_dist.datasets.official:Voc2007",
        classes=tuple(
            "aeroplane,bicycle,bird,boat,bottle,bus,car,cat,chair,cow,dining table,dog,horse,"
            "motorbike,person,potted plant,sheep,sofa,train,tv monitor".split(",")
        ),
        images=4952,
        paper_name="VOC",
        direction="forward",
        resnet_size=512,
    ),
    "coco2014": DatasetKind(
        "COCO 2014 validation: 40,504 images, 80 classes; crowd annotations are left out",
        "images: a folder with annotations/instances_{train,val}2014.json and val2014/",
        "annotations_trainval2014.zip and val2014.zip of the COCO data set",
        "sparc_dist.datasets.official:Coco2014",
        classes=tuple(
            "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,"
            "fire hydrant,stop sign,parking meter,bench,bird,cat,dog,horse,sheep,cow,elephant,bear,"
            "zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,skis,snowboard,"
            "sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,"
            "bottle,wine glass,cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,"
            "carrot,hot dog,pizza,donut,cake,chair,couch,potted plant,bed,dining table,toilet,tv,"
            "laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,refrigerator,book,"
            "clock,vase,scissors,teddy bear,hair drier,toothbrush".split(",")
        ),
        images=40504,
        paper_name="COCO",
        resnet_size=448,
    ),
    "nuswide": DatasetKind(
        "NUS-WIDE test: 107,859 images, 81 concepts",
        "images: a folder with ImageList/TestImagelist.txt, TrainTestLabels/Labels_*_{Train,Test}"
        ".txt (also in Groundtruth/) and Flickr/",
        "Groundtruth.zip and ImageList.zip of the NUS-WIDE data set; images from its authors",
        "sparc_dist.datasets.official:NusWide",
        classes=tuple(
            "airport animal beach bear birds boats book bridge buildings cars castle cat cityscape "
            "clouds computer coral cow dancing dog earthquake elk fire fish flags flowers food fox "
            "frost garden glacier grass harbor horses house lake leaf map military moon mountain "
            "nighttime ocean person plane plants police protest railroad rainbow reflection road "
            "rocks running sand sign sky snow soccer sports statue street sun sunset surf swimmers "
            "tattoo temple tiger tower town toy train tree valley vehicle water waterfall wedding "
            "whales window zebra".split()
        ),
        images=107859,
        paper_name="NUSWIDE",
        resnet_size=448,
    ),
    "folder": DatasetKind(
        "all images in a folder and its subfolders, without labels",
        "images: the folder, an image, a pattern such as photos/*.jpg, or a list of these; classes",
        "your own",
        "sparc_dist.datasets.folder:Folder",
        several=True,
        compared=True,
    ),
    "manifest": DatasetKind(
        "a Parquet or CSV table with one row per image",
        "images: the table with uri, optionally image_id, and labels as names, indices or one "
        "0/1 column per class; classes",
        "your own",
        "sparc_dist.datasets.manifest:Manifest",
        endings=(".parquet", ".csv"),
        table=True,
    ),
    "webdataset": DatasetKind(
        "tar files in the WebDataset layout",
        "images: a .tar file or a folder of them, labels in KEY.json or KEY.cls; classes",
        "your own",
        "sparc_dist.datasets.webdataset:WebDataset",
        endings=(".tar", ".tar.gz"),
    ),
}
