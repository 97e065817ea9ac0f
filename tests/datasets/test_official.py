"""The three official data sets: made-up files in each layout, and real labels if present."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from sparc_dist.config import DATASET_KINDS, DatasetConfig
from sparc_dist.datasets import dataset_bank, open_source
from sparc_dist.errors import UserError
from sparc_dist.prompts import ClassMatcher
from sparc_dist.runs import DatasetLayout
from tests.support.strategies import bounded, changed

SHARED = Path(__file__).parents[3] / "shared" / "data"


def opened(kind: str, root: Path) -> Any:
    config = DatasetConfig.model_validate({"name": "d", "kind": kind, "images": str(root)})
    return open_source(config)


def rows(source: Any) -> list[tuple[str, list[int]]]:
    return [
        (row["image_id"], row["labels"]) for table in source.images() for row in table.to_pylist()
    ]


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")


def write_voc(root: Path, split: str, signs: dict[str, dict[str, int]]) -> None:
    """signs: image → {class: sign}; other classes are absent."""
    for name in (name.replace(" ", "") for name in DATASET_KINDS["voc2007"].classes):
        lines = [f"{image} {present.get(name, -1):2d}" for image, present in signs.items()]
        path = root / "ImageSets" / "Main" / f"{name}_{split}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    root = tmp_path / "VOC2007"
    test = {"000001": {"cat": 1, "sofa": 0}, "000002": {"tvmonitor": 1, "person": 1}, "000003": {}}
    write_voc(root, "test", test)
    write_voc(root, "trainval", {f"{i:06d}": {"cat": 1, "sofa": 1} for i in range(9)})
    for name in ("000001", "000002", "999999"):
        touch(root / "JPEGImages" / f"{name}.jpg")
    return root


def test_voc_difficult_objects_count_as_absent(voc: Path) -> None:
    source = opened("voc2007", voc)
    assert rows(source) == [("000001.jpg", [7]), ("000002.jpg", [14, 19])]
    assert source.notes == ["1 of 3 listed images are not in JPEGImages."]
    assert list(source.labels()) == [[[7, 17]] * 9]


def test_the_voc_preset_takes_pairs_from_its_training_labels(voc: Path, tmp_path: Path) -> None:
    config = DatasetConfig.model_validate({"name": "v", "kind": "voc2007", "images": str(voc)})
    assert (config.prompts.direction, config.resnet_size) == ("forward", 512)
    bank, notes = dataset_bank(config, DatasetLayout(str(tmp_path / "run")), ["boat"])
    assert [prompt.text for prompt in bank.compound] == ["cat and sofa"]
    assert bank.background == ()
    assert bank.classes[10] == "dining table"
    assert notes == []


def test_voc_mistakes(voc: Path) -> None:
    (voc / "ImageSets" / "Main" / "cat_test.txt").write_text("000001 yes\n")
    with pytest.raises(UserError, match="does not end in -1, 0 or 1"):
        rows(opened("voc2007", voc))
    (voc / "ImageSets" / "Main" / "cat_test.txt").write_bytes(b"\xff\xfe0\x001\x00")
    with pytest.raises(UserError, match=r"cat_test.txt is not UTF-8 text; download it again"):
        rows(opened("voc2007", voc))
    (voc / "ImageSets" / "Main" / "cat_test.txt").unlink()
    with pytest.raises(UserError, match=r"There is no file .*cat_test.txt"):
        rows(opened("voc2007", voc))


def test_a_data_set_without_its_images(voc: Path) -> None:
    for image in (voc / "JPEGImages").iterdir():
        image.unlink()
    with pytest.raises(UserError, match="None of the 3 listed images is in"):
        rows(opened("voc2007", voc))
    (voc / "JPEGImages").rmdir()
    with pytest.raises(UserError, match=r"There is no folder .*JPEGImages"):
        rows(opened("voc2007", voc))


def instances(images: list[int], annotations: list[tuple[int, int, int]]) -> str:
    """annotations: (image, category, crowd)"""
    return json.dumps(
        {
            "info": {"year": 2014},
            "images": [{"id": i, "file_name": f"COCO_{i:012d}.jpg", "width": 9} for i in images],
            "annotations": [
                {
                    "id": n,
                    "image_id": i,
                    "category_id": c,
                    "iscrowd": crowd,
                    "segmentation": [[1.0]],
                }
                for n, (i, c, crowd) in enumerate(annotations)
            ],
            "categories": [
                {"id": 1, "name": "person", "supercategory": "person"},
                {"id": 90, "name": "toothbrush", "supercategory": "indoor"},
                {"id": 91, "name": "yeti", "supercategory": "myth"},
            ],
        }
    )


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    root = tmp_path / "coco"
    (root / "annotations").mkdir(parents=True)
    val = instances(
        [7, 8, 9], [(7, 1, 0), (7, 1, 0), (7, 90, 1), (8, 90, 0), (8, 91, 0), (5, 1, 0)]
    )
    (root / "annotations" / "instances_val2014.json").write_text(val)
    train = instances([1, 2], [(1, 1, 0), (1, 90, 0), (2, 1, 0)])
    (root / "annotations" / "instances_train2014.json").write_text(train)
    for image in (7, 8, 9, 4):
        touch(root / "val2014" / f"COCO_{image:012d}.jpg")
    return root


def test_coco_leaves_crowds_out_and_counts_images_without_annotations(coco: Path) -> None:
    source = opened("coco2014", coco)
    assert rows(source) == [
        ("COCO_000000000007.jpg", [0]),
        ("COCO_000000000008.jpg", [79]),
        ("COCO_000000000009.jpg", []),
    ]
    assert source.notes == [
        "1 annotations of unknown categories were left out.",
        "1 annotations of unlisted images were left out.",
        "1 files in val2014 are not listed and were left out.",
    ]
    assert list(opened("coco2014", coco).labels()) == [[[0, 79], [0]]]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"images": []}',
        '{"images": 1, "categories": 2}',
        '{"images": [], "categories": [], "annotations": [1]}',
    ],
)
def test_malformed_coco_files(coco: Path, text: str) -> None:
    (coco / "annotations" / "instances_val2014.json").write_text(text)
    with pytest.raises(UserError, match="not a COCO instances file"):
        rows(opened("coco2014", coco))


@bounded(150)
@given(changed(json.loads(instances([7, 8], [(7, 1, 0), (8, 90, 1)]))))
@example([[]])
def test_a_changed_coco_file_has_images_or_raises_a_user_error(coco: Path, value: Any) -> None:
    (coco / "annotations" / "instances_val2014.json").write_text(json.dumps(value, default=str))
    found, message = [], str(coco)
    try:
        found = rows(opened("coco2014", coco))
    except UserError as error:
        message = str(error)
    assert str(coco) in message
    assert {name for name, _ in found} <= {path.name for path in (coco / "val2014").iterdir()}


@pytest.fixture(params=["", "Groundtruth"])
def nus(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    root = tmp_path / "nus"
    labels = root / request.param / "TrainTestLabels"
    labels.mkdir(parents=True)
    for name in DATASET_KINDS["nuswide"].classes:
        for split, count in (("Train", 3), ("Test", 2)):
            sign = "1" if name in ("sky", "clouds") else "0"
            (labels / f"Labels_{name}_{split}.txt").write_text(f"{sign}\n" * count)
    (root / "ImageList").mkdir()
    (root / "ImageList" / "TestImagelist.txt").write_text("sky\\1.jpg\nzoo\\2.jpg\n")
    touch(root / "Flickr" / "sky" / "1.jpg")
    touch(root / "Flickr" / "zoo" / "2.jpg")
    return root


def test_nus_wide_reads_its_official_files(nus: Path) -> None:
    sky, clouds = (DATASET_KINDS["nuswide"].classes.index(name) for name in ("sky", "clouds"))
    assert rows(opened("nuswide", nus)) == [
        ("sky/1.jpg", [clouds, sky]),
        ("zoo/2.jpg", [clouds, sky]),
    ]
    assert list(opened("nuswide", nus).labels()) == [[[clouds, sky]] * 3]


def test_nus_wide_files_that_do_not_fit(nus: Path) -> None:
    (nus / "ImageList" / "TestImagelist.txt").write_text("sky\\1.jpg\n")
    with pytest.raises(UserError, match="1 test images are listed, but there are labels for 2"):
        rows(opened("nuswide", nus))
    next(nus.rglob("Labels_zebra_Test.txt")).write_text("1\n")
    with pytest.raises(UserError, match="must have 2 lines of 0 or 1"):
        rows(opened("nuswide", nus))


@pytest.mark.parametrize(("kind", "count"), [("voc2007", 20), ("coco2014", 80), ("nuswide", 81)])
def test_every_class_name_matches_itself_and_its_plural_only(kind: str, count: int) -> None:
    classes = DATASET_KINDS[kind].classes
    assert len(set(classes)) == count
    matcher = ClassMatcher(classes)
    for index, name in enumerate(classes):
        assert matcher.classes_in(f"A photo of the {name}.") == (index,)
        assert matcher.classes_in(f"Many {name}s!") == (index,)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_real_voc_labels_are_counted_as_published(tmp_path: Path) -> None:
    root = str(SHARED / "VOC2007")
    test = opened("voc2007", Path(root))._split("test")
    assert len(test) == 4952
    assert sum(map(len, test.values())) == 7013
    counts = {}
    for direction in ("forward", "either"):
        config = DatasetConfig.model_validate(
            {"name": "v", "kind": "voc2007", "images": root, "prompts": {"direction": direction}}
        )
        bank, _ = dataset_bank(config, DatasetLayout(str(tmp_path)), ())
        for origin in ("pair", "triplet"):
            counts[direction, origin] = sum(p.origin == origin for p in bank.compound)
    assert counts["forward", "pair"] == 30
    assert counts["either", "pair"] == 39
    assert counts["forward", "triplet"] == 20
    source = open_source(config)
    assert sum(len(table) for table in source.images()) == 240
    assert source.notes == ["4712 of 4952 listed images are not in JPEGImages."]
