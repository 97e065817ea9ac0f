"""The functions that start a run, in this process: as the commands do, and in their own words."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparc_dist
from sparc_dist import Config, UserError, label, open_run, run
from sparc_dist.cli import main
from tests.support.command import outcome_hashes

CLASSES = ["cat", "pizza", "traffic light"]
TINY = "sparc-tiny"
WriteConfig = Callable[..., str]


@pytest.fixture
def photos(tmp_path: Path, scenes: Path) -> Path:
    """A folder of four images, of which the second cannot be read."""
    (tmp_path / "photos").mkdir()
    for name, path in zip("acd", sorted(scenes.iterdir()), strict=False):
        shutil.copy(path, tmp_path / "photos" / f"{name}.jpg")
    (tmp_path / "photos" / "b.jpg").write_bytes(b"no")
    return tmp_path / "photos"


def test_every_export_exists_and_is_listed() -> None:
    assert {name for name in sparc_dist.__all__ if hasattr(sparc_dist, name)} == {
        *sparc_dist.__all__
    }
    assert {*sparc_dist.__all__} <= {*dir(sparc_dist)}
    assert {*sparc_dist._MODULES} | {"__version__"} == {*sparc_dist.__all__}
    with pytest.raises(AttributeError, match="'sparc_dist' has no attribute 'lable'"):
        getattr(sparc_dist, "lable")  # noqa: B009


def test_label_answers_for_each_image_in_order(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    images = label(photos, CLASSES, model=TINY)
    assert [image.image_id for image in images] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert [image.uri for image in images] == [str(photos / image.image_id) for image in images]
    assert [image.error is None for image in images] == [True, False, True, True]
    first, broken, *_ = images
    assert {*first.probabilities} == {*first.scores} == {*CLASSES}
    assert first.labels == [one.name for one in first.classes if one.present]
    assert list(first.scores.values()) == sorted(first.scores.values(), reverse=True)
    assert (broken.labels, broken.probabilities, broken.scores) == ([], {}, {})
    assert capsys.readouterr().out == ""
    assert not list((tmp_path / "tmp").glob("sparc-label-*"))


def test_label_keeps_what_the_command_keeps(photos: Path, tmp_path: Path) -> None:
    place = (photos / "c.jpg", photos / "[ad].jpg")
    images = label(place, CLASSES, TINY, out=tmp_path / "a")
    assert [image.image_id for image in images] == ["c.jpg", "a.jpg", "d.jpg"]
    options = ["--classes", ",".join(CLASSES), "--model", TINY, "--out", str(tmp_path / "b")]
    assert main(["label", *map(str, place), *options]) == 0
    hashes = [outcome_hashes(tmp_path / name, "images/model") for name in "ab"]
    assert hashes[0] == hashes[1]
    for name in ("labels.csv", "report/tables.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_label_and_run_follow_their_images(
    photos: Path, tmp_path: Path, write_config: WriteConfig
) -> None:
    config = write_config({"images": str(photos)}, max_error_share=1)
    first = label(photos, CLASSES, TINY, out=tmp_path / "out")
    assert run(config).final().num_rows == 3
    shutil.copy(photos / "a.jpg", photos / "e.jpg")
    second = label(photos, CLASSES, TINY, out=tmp_path / "out")
    assert second[:4] == first
    assert second[4].image_id == "e.jpg"
    assert second[4].scores == pytest.approx(first[0].scores, abs=1e-3)
    assert run(config).final().num_rows == 3
    assert run(config, extend=True).final().num_rows == 4


@pytest.mark.parametrize(
    ("images", "classes", "options", "message"),
    [
        ("none", CLASSES, {}, "There is no folder or image .*none; check the path"),
        ("", ["cat", "cat"], {}, "^classes: duplicate class 'cat'; keep one"),
        ("", "cat,dog", {}, "^classes: it is one text; list the names, as in"),
        ("", [], {}, "^classes: there are no classes; name at least one"),
        ("", CLASSES, {"model": "ViT-B-99"}, "^model: open_clip has no model ViT-B-99"),
        ("", CLASSES, {"weights": "x.pt"}, "^model: sparc-tiny takes no weights; remove weights"),
        ("", CLASSES, {"model": "ViT-B-16"}, "^model: OpenAI's .*; use model ViT-B-16-quickgelu"),
        ("b.jpg", CLASSES, {}, r"^None of the 1 images of images could be read \(1 × .*\)$"),
    ],
)
def test_label_says_what_is_wrong_in_its_own_words(
    photos: Path, images: str, classes: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        label(photos / images, classes, **{"model": TINY, **options})


def test_another_run_is_kept(photos: Path, tmp_path: Path) -> None:
    label(photos, CLASSES, TINY, out=tmp_path / "out")
    with pytest.raises(UserError, match="keep both with a new out, or replace it with overwrite=T"):
        label(photos, ["dog"], TINY, out=tmp_path / "out")
    found = label(photos, ["dog"], TINY, out=tmp_path / "out", overwrite=True)
    assert {*found[0].scores} == {"dog"}


def test_run_takes_a_dict_a_config_and_a_file(
    write_config: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config({"classes": CLASSES})
    done = run(path)
    assert done == open_run(tmp_path / "run")
    assert (tmp_path / "run" / "report" / "index.html").exists()
    assert [unit.done for unit in done.units] == [True]
    assert done.scores(columns=["image_id"]).num_rows == done.final().num_rows == 60
    monkeypatch.chdir(tmp_path)
    config = sparc_dist.config.load_config(path)
    for same in (config, config.model_dump(mode="json") | {"output": "run"}):
        assert run(same) == done
    other = Config.model_validate(config.model_dump() | {"shard_size": 7})
    with pytest.raises(UserError, match="keep both with a new output, or replace it with overwr"):
        run(other)


def test_a_unit_that_cannot_start_is_visible_beside_the_others(write_config: WriteConfig) -> None:
    missing = {"name": "none", "model": "ViT-B-32", "weights": "none.pt"}
    tiny = {"name": "tiny", "model": TINY}
    resources = {"executor": "process"}
    config = write_config({"classes": CLASSES}, backbones=[tiny, missing], resources=resources)
    done = run(config)
    assert [(unit.backbone, unit.done, unit.failed) for unit in done.units] == [
        ("tiny", True, False),
        ("none", False, True),
    ]
    assert "there is no weights file" in done.failures["scenes", "none"]
    assert {*done.metrics} == {("scenes", "tiny")}
    assert done.labels("scenes", "tiny").num_rows == 60 * len(CLASSES)
    with pytest.raises(UserError, match=r"scenes × none of .* is not finished"):
        done.labels(backbone="none")


def test_nothing_that_can_start_is_an_error() -> None:
    with pytest.raises(UserError, match=r"^config: outptu: unknown key; did you mean 'output'\?"):
        run(
            {
                "outptu": "x",
                "output": "y",
                "datasets": [{"name": "a", "images": "b", "classes": ["c"]}],
            }
        )
