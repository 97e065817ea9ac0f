"""The examples load and plan as far as they can without weights; explore.py runs to its end.

Also the project's own files that tools read: CITATION.cff, CHANGELOG.md, the pre-commit hooks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from sparc_dist import __version__
from sparc_dist.cli import main
from sparc_dist.config import DATASET_KINDS, OPENAI, load_config
from tests.support.llm_server import Model, serving, writes_captions

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CONFIGS = sorted(path.name for path in EXAMPLES.glob("*.yaml"))
CLUSTER = "--cpus 8 --gpus 1 --memory-gb 64".split()
STREET = ["car", "bus", "bicycle"]


@pytest.fixture
def here(tmp_path: Path) -> Callable[..., str]:
    """Copies an example, its bucket replaced by a folder; returns the path of the copy."""

    def copy(name: str, *replacements: tuple[str, str]) -> str:
        text = (EXAMPLES / name).read_text()
        for old, new in (("s3://my-bucket", str(tmp_path)), *replacements):
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return copy


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """A language model that writes a caption for each list of classes."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-test")
    with serving() as found:
        found.behaviours = [writes_captions]
        yield found


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_voc(root: Path) -> None:
    """One test image, and training images with a cat on a sofa."""
    for name in (name.replace(" ", "") for name in DATASET_KINDS["voc2007"].classes):
        sign = 1 if name in ("cat", "sofa") else -1
        write(root / f"ImageSets/Main/{name}_test.txt", f"000001 {sign}\n")
        write(root / f"ImageSets/Main/{name}_trainval.txt", f"000002 {sign}\n")
    write(root / "JPEGImages/000001.jpg")


def write_coco(root: Path) -> None:
    """Two validation images, and a training image with the first two classes."""
    names = DATASET_KINDS["coco2014"].classes
    categories = [{"id": index, "name": name} for index, name in enumerate(names)]
    for split, count in (("train", 1), ("val", 2)):
        content = {
            "images": [{"id": index, "file_name": f"{index}.jpg"} for index in range(count)],
            "annotations": [{"image_id": 0, "category_id": index} for index in (0, 1)],
            "categories": categories,
        }
        write(root / f"annotations/instances_{split}2014.json", json.dumps(content))
    for index in range(2):
        write(root / f"val2014/{index}.jpg")


def write_nus_wide(root: Path) -> None:
    """Three test images, and training images with clouds in the sky."""
    for name in DATASET_KINDS["nuswide"].classes:
        sign = "1\n" if name in ("clouds", "sky") else "0\n"
        write(root / f"TrainTestLabels/Labels_{name}_Train.txt", sign * 2)
        write(root / f"TrainTestLabels/Labels_{name}_Test.txt", sign * 3)
    names = [f"sky/{index}.jpg" for index in range(3)]
    write(root / "ImageList/TestImagelist.txt", "\n".join(names))
    for name in names:
        write(root / "Flickr" / name)


def write_street(root: Path) -> None:
    """Four images with labels, and labels of other images: cars and buses meet."""
    root.mkdir()
    uris = [f"{index}.jpg" for index in range(4)]
    pq.write_table(pa.table({"uri": uris, "labels": [["car"]] * 4}), root / "images.parquet")
    table = pa.table({"labels": [["car", "bus"], ["bicycle"]]})
    pq.write_table(table, root / "train-labels.parquet")
    write(root / "classes.txt", "\n".join(STREET))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_loads(name: str) -> None:
    config = load_config(str(EXAMPLES / name))
    assert config.datasets
    assert f"`{name}`" in (EXAMPLES / "README.md").read_text()


def test_pets_are_planned(
    here: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(3):
        write(tmp_path / f"photos/{index}.jpg")
    assert main(["plan", here("pets.yaml"), *CLUSTER]) == 0
    told = capsys.readouterr().out
    assert "pets: 3 images, 3 classes, 77 background classes, 234 compound prompts" in told
    assert re.search(r"pets × ViT-B-32 +224 ", told)


def test_the_paper_is_planned(
    here: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_voc(tmp_path / "data/VOC2007")
    write_coco(tmp_path / "data/coco")
    write_nus_wide(tmp_path / "data/nuswide")
    assert main(["plan", here("paper.yaml"), *CLUSTER]) == 0
    told = capsys.readouterr().out
    for size in ("voc: 1 image", "coco: 2 images, 80", "nuswide: 3 images, 81 classes, 1 compound"):
        assert size in told
    for dataset, resnet_size in (("voc", 512), ("coco", 448), ("nuswide", 448)):
        assert all(f"{dataset} × {name} " in told for name in OPENAI)
        assert re.search(rf"{dataset} × RN50 +{resnet_size} ", told)


def test_every_checkpoint_of_the_paper_has_its_hash_in_the_form_of_sha256sum() -> None:
    lines = (EXAMPLES / "openai.sha256").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  \S+", line) for line in lines)
    assert [line.split()[1] for line in lines] == [file for _, file in OPENAI.values()]


def test_a_manifest_in_s3_is_planned_and_its_prompts_are_built(
    here: Callable[..., str], tmp_path: Path, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    write_street(tmp_path / "street")
    config = here("manifest-s3.yaml", ("http://localhost:8000", model.url))
    assert main(["plan", config, *CLUSTER]) == 0
    assert (
        "street: 4 images, 3 classes, 77 background classes, 232 compound prompts"
        in capsys.readouterr().out
    )
    assert not model.questions
    assert main(["prompts", config, "--show"]) == 0
    told = capsys.readouterr().out
    assert "  car and bus\n" in told
    assert "  A car right beside a bus.\n" in told


@pytest.mark.slow
def test_explore_runs_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "explore.py", "--scenes", "40", "--out", tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "RAY_ADDRESS": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "run/scenes/sparc-tiny/metrics.json").read_text())
    assert metrics["images"] == 40
    assert f"scenes, SPARC: mAP {metrics['sparc']['mAP']:.1f}" in done.stdout
    assert len(re.findall(r"(?m)^\d+\.jpg: \w+ .+, .+, ", done.stdout)) == 5
    assert (tmp_path / "run/report/index.html").exists()


def test_the_citation_is_of_this_version_and_of_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= cited.keys()
    assert cited["version"] == __version__
    paper = cited["preferred-citation"]
    assert {"type", "title", "authors"} <= paper.keys()
    assert paper["title"].startswith("SPARC: ")
    assert len(paper["authors"]) == 5


def test_the_changelog_has_this_version() -> None:
    headings = re.findall(r"(?m)^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text())
    assert headings[0] == "Unreleased"
    assert __version__ in headings


def test_every_hook_is_local_and_needs_no_internet() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    commands = {hook["entry"].split()[0] for hook in hooks}
    assert commands == {"ruff", "mypy", "lint-imports"}


@pytest.mark.slow
def test_first_contact_answers_and_refuses(tmp_path: Path) -> None:
    tools = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["sh", EXAMPLES / "first_contact.sh", tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "RAY_ADDRESS": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    codes = {line[:28].strip(): re.search(r"exit (\d+)", line) for line in done.stdout.splitlines()}
    found = {step: int(code[1]) for step, code in codes.items() if code}
    refused = {step for step, code in found.items() if code == 2}
    assert refused == {"a folder that is not there", "a model that is not there"}
    assert {code for step, code in found.items() if step not in refused} == {0}
    assert len(found) == 11
