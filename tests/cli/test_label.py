"""sparc-dist label, as people use it: in this process, without Ray."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from sparc_dist.cli import main
from tests.support.bomb import BOMBS, hostile_files
from tests.support.command import sparc_dist
from tests.support.web import Web, web_server

TINY = ("--model", "sparc-tiny")


@pytest.fixture
def photos(tmp_path: Path, scenes: Path) -> Path:
    """A folder of three photos."""
    (tmp_path / "photos").mkdir()
    for name, path in zip("abc", sorted(scenes.iterdir()), strict=False):
        shutil.copy(path, tmp_path / "photos" / f"{name}.jpg")
    return tmp_path / "photos"


@pytest.fixture
def web() -> Iterator[Web]:
    """A web server on loopback."""
    with web_server() as server:
        yield server


def test_label_a_folder_of_pictures(tmp_path: Path, scenes: Path) -> None:
    photos = tmp_path / "my photos"
    photos.mkdir()
    for path in sorted(scenes.iterdir())[:24]:
        (photos / f"Hôtel {path.name}").write_bytes(path.read_bytes())
    (photos / "broken.jpg").write_bytes(b"no")
    out = tmp_path / "out"
    options = ("--classes", "cat, pizza,traffic light", "--model", "sparc-tiny", "--out", out)
    done = sparc_dist("label", photos, *options)
    assert done.returncode == 0, done.stderr
    assert "… and 5 more" in done.stdout
    assert "1 of 25 images could not be read: 1 × not an image in a known format." in done.stdout
    lines = (out / "labels.csv").read_text().splitlines()
    assert lines[0] == "image_id,class,probability,present,score,rank"
    assert len(lines) == 1 + 24 * 3 + 1
    assert "broken.jpg,,,unreadable,," in lines
    rows = [line.split(",") for line in lines[1:4]]
    assert {row[0] for row in rows} == {rows[0][0]}
    assert rows[0][0].startswith("Hôtel ")
    assert {row[1] for row in rows} == {"cat", "pizza", "traffic light"}
    assert [row[5] for row in rows] == ["1", "2", "3"]
    assert float(rows[0][4]) >= float(rows[1][4]) >= float(rows[2][4])
    assert all(0 <= float(row[2]) <= 1 for row in rows)
    present = [f"{row[1]} {float(row[2]):.2f}" for row in rows if row[3] == "yes"]
    likeliest = f"nothing (likeliest: {rows[0][1]} {float(rows[0][2]):.2f})"
    assert f"{rows[0][0]}: {', '.join(present) or likeliest}" in done.stdout
    assert "There are too few images or classes" in done.stdout
    assert "SPARC" not in done.stdout
    assert sparc_dist("decide", out, "--threshold", "0.001").returncode == 0
    again = (out / "labels.csv").read_text()
    assert again.count(",yes,") > "\n".join(lines).count(",yes,")
    assert again.count("\n") == len(lines)
    assert "| images | duo | – | – |" in sparc_dist("report", out).stdout


def test_label_one_photo_with_one_class(tmp_path: Path, scenes: Path) -> None:
    (tmp_path / "photos").mkdir()
    content = sorted(scenes.iterdir())[0].read_bytes()
    (tmp_path / "photos" / "one.jpg").write_bytes(content)
    options = ("--classes", "cat", "--model", "sparc-tiny", "--out", tmp_path / "out")
    done = sparc_dist("label", tmp_path / "photos", *options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^one\.jpg: (cat|nothing \(likeliest: cat) 0\.\d\d", done.stdout)
    assert "The classes of the image are in" in done.stdout


def test_label_says_which_file_is_missing(tmp_path: Path, scenes: Path) -> None:
    options = ("--classes", "cat,dog", "--weights", tmp_path / "none.pt", "--out", tmp_path / "o")
    done = sparc_dist("label", scenes, *options)
    assert done.returncode == 2
    assert f"there is no weights file {tmp_path / 'none.pt'}; put the checkpoint" in done.stderr
    assert done.stderr.endswith("there, or correct --weights.\n")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def label(*images: object, out: Path) -> int:
    """Labels in the process of the tests, which has loaded the libraries already."""
    return main(["label", *map(str, images), "--classes", "cat", *TINY, "--out", str(out)])


def ids(out: Path) -> list[str]:
    lines = (out / "labels.csv").read_text().splitlines()[1:]
    return [line.partition(",")[0] for line in lines]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (["a.jpg"], ["a.jpg"]),
        (["a.jpg", "b.jpg"], ["a.jpg", "b.jpg"]),
        (["[ab].jpg"], ["a.jpg", "b.jpg"]),
        (["a.jpg", "../more"], ["photos/a.jpg", "more/c.jpg"]),
    ],
    ids=["photo", "several", "pattern", "photo and folder"],
)
def test_label_takes_photos_patterns_and_folders(
    photos: Path, images: list[str], expected: list[str]
) -> None:
    out = photos.parent / "out"
    (photos.parent / "more").mkdir()
    shutil.copy(photos / "c.jpg", photos.parent / "more" / "c.jpg")
    assert label(*(photos / name for name in images), out=out) == 0
    assert ids(out) == expected


def test_label_takes_a_url(photos: Path, web: Web) -> None:
    web.files["/x/cat.jpg"] = (photos / "a.jpg").read_bytes()
    out = photos.parent / "out"
    assert label(f"{web.place}/x/cat.jpg", out=out) == 0
    assert ids(out) == ["cat.jpg"]


def test_label_never_takes_its_own_files_for_photos(photos: Path) -> None:
    for out in ("out", "again", "."):
        assert label(photos, out=photos / out) == 0
        assert ids(photos / out) == ["a.jpg", "b.jpg", "c.jpg"]


def test_label_counts_what_it_skips(photos: Path) -> None:
    for name in ("notes.txt", "list.TXT", ".hidden.jpg"):
        (photos / name).write_text("no photo")
    out = photos.parent / "out"
    done = sparc_dist("label", photos, "--classes", "cat", *TINY, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Skipped: 2 .txt, 1 hidden.\n" in done.stdout
    assert "Skipped: 2 .txt, 1 hidden." in (out / "report" / "tables.md").read_text()


def test_label_with_unreadable_images_only_is_a_failure(photos: Path) -> None:
    (photos / "broken.jpg").write_bytes(b"no")
    out = photos.parent / "out"
    done = sparc_dist("label", photos / "broken.jpg", "--classes", "cat", *TINY, "--out", out)
    assert done.returncode == 1
    assert "None of the 1 images of images could be read (1 × not an image in" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["none", "--classes", "cat", *TINY],
            "There is no folder or image {}/none; check the path.",
        ),
        (["*.bmp", "--classes", "cat", *TINY], "No file matches {}/*.bmp; check the pattern."),
        ([".", "--classes", "none.txt", *TINY], "--classes none.txt: there is no such file; check"),
        (
            [".", "--classes", "cat;dog", *TINY],
            "--classes 'cat;dog' is one class; separate the n",
        ),
        ([".", "--classes", "cat,cat", *TINY], "--classes: duplicate class 'cat'; keep one."),
        (
            [".", "--classes", "cat", "--model", "ViT-B-99"],
            "--model: open_clip has no model ViT-B-99; did you mean ViT-B-32-quickgelu, ViT-B-16-q",
        ),
        (
            [".", "--classes", "cat", "--model", "ViT-B-16"],
            "--model: OpenAI's weights give wrong scores with ViT-B-16; use --model ViT-B-16-quick",
        ),
        (
            [".", "--classes", "cat"],
            "--model: the weights openai of ViT-B-16-quickgelu are not on this node, and "
            "HF_HUB_OFFLINE forbids access to the hub; put OpenAI's ViT-B-16.pt here and name it "
            "with --weights.",
        ),
    ],
)
def test_label_refuses_wrong_input_before_anything_slow(
    photos: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = photos.parent / "out"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(photos / "no cache"))
    images = photos if options[0] == "." else photos / options[0]
    done = sparc_dist("label", images, *options[1:], "--out", out)
    assert done.returncode == 2
    assert done.stderr.startswith(f"sparc-dist: {message.format(photos)}")
    assert done.stderr.count("\n") == 1
    assert not out.exists()


def test_what_is_refused_loads_neither_torch_nor_open_clip_nor_ray(photos: Path) -> None:
    code = (
        "import sys; from sparc_dist.cli import main; code = main(sys.argv[1:]); "
        "print(code, [name for name in ('torch', 'open_clip', 'ray') if name in sys.modules])"
    )
    options = ("--classes", "cat", "--weights", "none.pt", "--out", str(photos / "out"))
    done = subprocess.run(
        [sys.executable, "-c", code, "label", str(photos), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "2 []\n", done.stderr


def test_a_refused_overwrite_keeps_the_old_run(photos: Path) -> None:
    out = photos.parent / "out"
    options = ("--classes", "cat", "--out", out)
    assert label(photos, out=out) == 0
    done = sparc_dist("label", photos, *options, "--weights", "none.pt", "--overwrite")
    assert done.returncode == 2
    assert ids(out) == ["a.jpg", "b.jpg", "c.jpg"]


def test_label_names_its_own_options(photos: Path) -> None:
    out = photos.parent / "out"
    assert label(photos, out=out) == 0
    done = sparc_dist("label", photos, "--classes", "dog", *TINY, "--out", out)
    assert done.returncode == 2
    assert "keep both with --out NEW, or replace it with --overwrite." in done.stderr


def test_options_are_not_abbreviated(photos: Path) -> None:
    done = sparc_dist("label", photos, "--class", "cat", *TINY)
    assert done.returncode == 2
    assert "--classes" in done.stderr


def test_hostile_files_fail_alone_and_the_next_is_labelled(tmp_path: Path, photos: Path) -> None:
    bombs = [photos / name for name in BOMBS]
    for path in bombs:
        path.write_bytes(BOMBS[path.name]())
    (photos / "pipes").mkdir()
    files = hostile_files(photos / "pipes")
    (photos / "pipes" / "up").symlink_to(photos)
    out = tmp_path / "out"
    done = sparc_dist("label", photos, "--classes", "cat,dog", *TINY, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Skipped: 1 in a circle of links." in done.stdout
    rows = [line.split(",") for line in (out / "labels.csv").read_text().splitlines()[1:]]
    bad = {row[0] for row in rows if row[3] == "unreadable"}
    assert bad == {str(path.relative_to(photos)) for path in [*bombs, *files]}
    assert {row[0] for row in rows} - bad == {"a.jpg", "b.jpg", "c.jpg"}


def test_a_class_file_of_a_million_lines_is_refused_at_once(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = photos.parent / "classes.txt"
    classes.write_text("a\n" * 1_000_000)
    command = ["label", str(photos), *TINY, "--out", str(photos.parent / "out"), "--classes"]
    assert main([*command, str(classes)]) == 2
    assert "has 1,000,000 lines, more than 100,000" in capsys.readouterr().err
    classes.write_text("a class of many words\n" * 1_000_000)
    assert main([*command, str(classes)]) == 2
    assert "has more than 16,777,216 bytes" in capsys.readouterr().err
