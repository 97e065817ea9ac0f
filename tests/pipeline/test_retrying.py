"""Failures that pass: images that could not be read are tried again, and leave no trace."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparc_dist import api, storage
from sparc_dist.cli import main
from sparc_dist.config import load_config
from sparc_dist.errors import UserError
from sparc_dist.pipeline import scheduling
from sparc_dist.runner import run
from sparc_dist.runs import Results, removal
from tests.support.command import contents
from tests.support.s3 import FaultProxy, Request

WriteConfig = Callable[..., str]
FEW = ["cat", "dog", "car", "pizza", "sofa"]
UNIT = Path("run", "scenes", "tiny")


@pytest.fixture
def photos(tmp_path: Path, original: Path) -> Path:
    """The scenes of a finished run, the first 25 in a folder of their own, and their manifest."""
    folder = tmp_path / "photos"
    head, *rows = (original / "manifest.csv").read_text().splitlines()
    for number, row in enumerate(rows):
        uri, _, rest = row.partition(",")
        name = f"{'first' if number < 25 else 'rest'}/{Path(uri).name}"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(uri, folder / name)
        rows[number] = f"{name},{rest}"
    (folder / "manifest.csv").write_text("\n".join([head, *rows, ""]))
    return folder


@pytest.fixture
def config(write_config: WriteConfig, photos: Path) -> str:
    return config_of(write_config, photos)


def config_of(write_config: WriteConfig, photos: Path, **changes: Any) -> str:
    dataset = {"kind": "manifest", "images": str(photos / "manifest.csv"), "classes": FEW}
    return write_config(dataset, shard_size=10, max_error_share=1, **changes)


def start(config: str, retry: Any = "passing") -> Results:
    done = run(load_config(config), retry_errors=retry)
    assert not done.failures
    return done


@pytest.fixture
def whole(original: Path) -> dict[str, bytes]:
    """What a run leaves that never failed."""
    return contents(original / UNIT)


@pytest.fixture
def failed(config: str, photos: Path) -> Path:
    """The config of a finished run, during which the first folder was away; it still is."""
    (photos / "first").rename(photos / "away")
    found = errors_of(start(config))
    assert (found["images"], found["passing"]) == (25, 25)
    return Path(config)


def errors_of(results: Results) -> dict[str, Any]:
    found: dict[str, Any] = results.metrics["scenes", "tiny"]["errors"]
    return found


def files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def test_a_folder_that_comes_back(
    failed: Path,
    photos: Path,
    tmp_path: Path,
    whole: dict[str, bytes],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = files(tmp_path / "run")
    # It is still away: what is finished stays as it is.
    assert start(str(failed)).nothing_to_do
    assert "0 of 25 images that could not be read can be read now\n" in capsys.readouterr().err
    assert files(tmp_path / "run") == before

    (photos / "away").rename(photos / "first")
    assert start(str(failed), "none").nothing_to_do
    assert files(tmp_path / "run") == before
    assert "can be read now" not in capsys.readouterr().err

    done = start(str(failed))
    said = "scenes: 25 of 25 images that could not be read can be read now; scoring their shards"
    assert said in capsys.readouterr().err
    assert errors_of(done) == {"images": 0, "share": 0.0, "passing": 0, "reasons": {}}
    assert contents(tmp_path / UNIT) == whole
    kept = [tmp_path / UNIT / "scores" / f"0000{shard}.parquet" for shard in (3, 4, 5)]
    assert all(path.stat().st_mtime_ns == before[path][0] for path in kept)
    assert start(str(failed)).nothing_to_do


def test_some_of_a_folder_come_back(failed: Path, photos: Path, tmp_path: Path) -> None:
    (photos / "first").mkdir()
    for path in sorted((photos / "away").iterdir())[:3]:
        path.rename(photos / "first" / path.name)
    before = files(tmp_path / UNIT / "scores")
    assert errors_of(start(str(failed)))["passing"] == 22
    after = files(tmp_path / UNIT / "scores")
    changed = [path.name for path in after if after[path] != before[path]]
    assert changed == ["00000.parquet"]


@pytest.mark.parametrize(("module", "name"), [(scheduling, "score_group"), (removal, "forget")])
def test_an_interrupted_retry_is_completed(
    failed: Path,
    photos: Path,
    tmp_path: Path,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
) -> None:
    (photos / "away").rename(photos / "first")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            start(str(failed))
    assert "unfinished" in storage.read_json(str(tmp_path / UNIT / "metrics.json"))
    start(str(failed))
    assert contents(tmp_path / UNIT) == whole


def test_a_damaged_photo_is_read_again_on_demand(
    config: str, photos: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    photo = sorted((photos / "rest").iterdir())[3]
    good = photo.read_bytes()
    photo.write_bytes(good[: len(good) // 2])
    found = errors_of(start(config))
    assert (found["images"], found["passing"]) == (1, 0)
    assert start(config, "all").nothing_to_do  # it is damaged still
    photo.write_bytes(good)
    assert start(config).nothing_to_do
    assert errors_of(start(config, "all"))["images"] == 0
    assert contents(tmp_path / UNIT) == whole


def test_a_unit_that_cannot_be_scored_stays_finished(
    failed: Path, photos: Path, tmp_path: Path
) -> None:
    """All photos are away."""
    before = files(tmp_path / "run")
    (photos / "rest").rename(photos / "also away")
    assert start(str(failed)).nothing_to_do
    assert files(tmp_path / "run") == before


def test_an_ensemble_is_made_again(write_config: WriteConfig, photos: Path, tmp_path: Path) -> None:
    backbones = [{"name": name, "model": "sparc-tiny"} for name in ("one", "two")]
    config = config_of(write_config, photos, backbones=backbones)
    start(config)
    shutil.move(tmp_path / "run", tmp_path / "whole")
    (photos / "first").rename(photos / "away")
    done = start(config)
    assert done.metrics["scenes", "ensemble"]["errors"]["passing"] == 25
    (photos / "away").rename(photos / "first")
    assert start(config).metrics["scenes", "ensemble"]["errors"]["images"] == 0
    ours, theirs = (tmp_path / name / "scenes" / "ensemble" for name in ("run", "whole"))
    assert contents(ours) == contents(theirs)


@pytest.mark.s3
def test_an_image_that_was_refused(
    write_config: WriteConfig,
    original: Path,
    on_s3: FaultProxy,
    tmp_path: Path,
) -> None:
    dataset = {"kind": "manifest", "images": "s3://photos/manifest.csv", "classes": FEW}
    config = write_config(dataset, shard_size=10, output="s3://runs/refused", max_error_share=1)
    names = [row.split(",")[1] for row in (original / "manifest.csv").read_text().splitlines()[1:]]
    denied = {f"scenes/{name}" for name in names[7:9]}

    def policy(request: Request) -> tuple[int, str] | None:
        return (403, "AccessDenied") if request.key in denied else None

    def undeletable(request: Request) -> tuple[int, str] | None:
        return (403, "AccessDenied") if request.method == "DELETE" else None

    on_s3.behave(policy=policy)
    assert errors_of(start(config))["passing"] == 2
    on_s3.behave(policy=undeletable)  # a run needs no right to delete
    assert errors_of(start(config))["images"] == 0
    on_s3.behave()
    folder = tmp_path / "fetched"
    for file in storage.files_below("s3://runs/refused/scenes/tiny"):
        path = folder / file.url.removeprefix("s3://runs/refused/scenes/tiny/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(storage.read_bytes(file.url))
    assert contents(folder) == contents(original / UNIT)


def test_a_labeler_labels_them_again(
    photos: Path, tmp_path: Path, original: Path, whole: dict[str, bytes]
) -> None:
    labeler, unit = original / UNIT / "labeler.safetensors", tmp_path / "out" / "images" / "tiny"
    command = ["apply", str(labeler), str(photos / "manifest.csv"), "--out", str(tmp_path / "out")]
    (photos / "first").rename(photos / "away")
    assert main(command) == 0
    (photos / "away").rename(photos / "first")
    assert main([*command, "--retry-errors", "none"]) == 0
    assert json.loads((unit / "metrics.json").read_text())["images"] == 35
    assert main(command) == 0
    # On the images of its fit a labeler writes what the run did.
    expected = {name: content for name, content in whole.items() if "scores" not in name}
    assert contents(unit) == expected


def test_a_photo_of_a_growing_folder(tmp_path: Path, scenes: Path) -> None:
    """Links to photos of a disk that is away: in the folder as it was, and among the new ones."""
    folder, out, disk = tmp_path / "album", tmp_path / "out", tmp_path / "disk"
    folder.mkdir()
    paths = sorted(scenes.iterdir())[:30]
    for path in paths[2:20]:
        shutil.copy(path, folder)
    (folder / paths[0].name).symlink_to(disk / paths[0].name)
    command = ["label", str(folder), "--classes", ",".join(FEW), "--model", "sparc-tiny"]
    command += ["--out", str(out)]
    main(command)
    for path in paths[20:]:
        shutil.copy(path, folder)
    (folder / paths[1].name).symlink_to(disk / paths[1].name)
    main(command)
    before = lines(out)
    labeler = (out / "images" / "model" / "labeler.safetensors").read_bytes()
    assert sum("unreadable" in line for line in before) == 2

    disk.mkdir()
    for path in paths[:2]:
        shutil.copy(path, disk)
    assert main(command) == 0
    after = lines(out)
    assert not any("unreadable" in line for line in after)
    assert {line.partition(",")[0] for line in after} == {path.name for path in paths}
    assert {line for line in before if "unreadable" not in line} <= after
    assert (out / "images" / "model" / "labeler.safetensors").read_bytes() == labeler


def lines(out: Path) -> set[str]:
    return set((out / "labels.csv").read_text().splitlines()[1:])


def test_stored_embeddings_are_not_retried(
    failed: Path, photos: Path, tmp_path: Path, write_config: WriteConfig
) -> None:
    shutil.move(tmp_path / "run", tmp_path / "old")
    config = load_config(config_of(write_config, photos))
    run(config, embeddings_from=str(tmp_path / "old"))
    before = files(tmp_path / "run")
    (photos / "away").rename(photos / "first")
    assert run(config, embeddings_from=str(tmp_path / "old")).nothing_to_do
    assert run(config).nothing_to_do
    assert files(tmp_path / "run") == before


def test_an_unknown_choice_is_said(config: str) -> None:
    with pytest.raises(UserError, match="retry_errors: 'some' is unknown; use one of all, pass"):
        api.run(config, retry_errors="some")  # type: ignore[arg-type]
