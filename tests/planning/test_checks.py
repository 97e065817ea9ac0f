"""What is found before anything slow starts, and which units it concerns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparc_dist import runner, storage
from sparc_dist.config import load_config
from sparc_dist.errors import UserError
from sparc_dist.planning.checks import find_problems
from sparc_dist.runs import RunLayout, UnitKey
from tests.support.s3 import FaultProxy

WriteConfig = Callable[..., str]


def problems(path: str, here: bool = True) -> dict[UnitKey, str]:
    config = load_config(path)
    pending = {dataset.name: list(config.backbones) for dataset in config.datasets}
    return find_problems(config, pending, RunLayout(config.output), here)


def problem(path: str) -> str:
    (only,) = problems(path).values()
    return only


def test_nothing_is_wrong_with_a_good_config(write_config: WriteConfig) -> None:
    assert problems(write_config()) == {}


def test_a_model_without_local_features_without_loading_open_clip(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "open_clip", raising=False)
    siglip = {"name": "s", "model": "ViT-B-16-SigLIP", "weights": "w.pt", "features": "both"}
    tiny = {"name": "t", "model": "sparc-tiny", "features": "both"}
    found = problems(write_config(backbones=[siglip, tiny]))
    assert [*found] == [("scenes", "s")]
    assert "Backbone s: ViT-B-16-SigLIP has no local features" in found["scenes", "s"]
    resnet = {**siglip, "model": "RN50-quickgelu"}
    assert problems(write_config(backbones=[resnet]), here=False) == {}
    assert "open_clip" not in sys.modules


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ({"images": "none"}, "There is no folder or image {}/none; check the path."),
        ({"classes": "none.txt"}, "There is no file {}/none.txt; check the path."),
        ({"background": "none.txt"}, "There is no file {}/none.txt; check the path."),
        (
            {"prompts": {"source": "labels", "labels": "none.csv"}},
            "There is no file {}/none.csv; check the path.",
        ),
        ({"kind": "manifest", "images": "none.csv"}, "There is no table {}/none.csv; check"),
        ({"kind": "webdataset", "images": "none"}, "There is no .tar file at {}/none; check"),
        (
            {"kind": "voc2007", "images": "none", "classes": None},
            "There is no folder {}/none; check the path.",
        ),
    ],
)
def test_missing_files(
    write_config: WriteConfig, tmp_path: Path, dataset: dict[str, Any], message: str
) -> None:
    path = write_config(dataset)
    assert problem(path).startswith(message.format(tmp_path))
    # On a cluster, only its machines may have them.
    assert problems(path, here=False) == {}


def test_a_manifest_is_looked_at(write_config: WriteConfig, tmp_path: Path, scenes: Path) -> None:
    table = tmp_path / "m.csv"
    path = write_config({"kind": "manifest", "images": str(table)})
    names = sorted(path.name for path in scenes.iterdir())[:20]
    table.write_text("uri,image_id\n" + "".join(f"gone/{n},{n}\n" for n in names))
    assert f"none of the 7 files that were looked for exists, {tmp_path}/gone/" in problem(path)
    one = f"{scenes / names[0]},first\n"  # some may be missing: they become errors of the run
    table.write_text("uri,image_id\n" + one + "".join(f"gone/{n},{n}\n" for n in names))
    assert problems(path) == {}
    table.write_text(f"uri,image_id\n{one}{one}")
    assert problem(path) == "Duplicate image_id: first; make the ids unique."
    table.write_text("uri\n")
    assert "contains no images" in problem(path)


def test_models_and_weights(write_config: WriteConfig, tmp_path: Path) -> None:
    strange = {"name": "a", "model": "ViT-B-99", "weights": "openai"}
    lost = {"name": "b", "model": "RN50-quickgelu", "weights": "./none.pt"}
    path = write_config(backbones=[strange, lost, {"name": "c", "model": "sparc-tiny"}])
    found = problems(path)
    assert set(found) == {("scenes", "a"), ("scenes", "b")}
    assert "has no model ViT-B-99; did you mean ViT-B-32-quickgelu" in found["scenes", "a"]
    assert f"there is no weights file {tmp_path}/none.pt" in found["scenes", "b"]
    assert set(problems(path, here=False)) == {("scenes", "a")}


def test_a_run_of_which_no_unit_can_start_writes_nothing(
    write_config: WriteConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "joins_ray", lambda: False)
    lost = [{"name": n, "model": "RN50-quickgelu", "weights": f"./{n}.pt"} for n in "ab"]
    with pytest.raises(UserError, match=r"no weights file .*a.pt.* No other unit of the run can"):
        runner.run(load_config(write_config(backbones=lost)))
    assert not (tmp_path / "run").exists()


def test_a_unit_that_can_start_is_done(
    write_config: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "joins_ray", lambda: False)
    lost = {"name": "lost", "model": "RN50-quickgelu", "weights": "./none.pt"}
    tiny = {"name": "tiny", "model": "sparc-tiny"}
    resources = {"executor": "process"}
    path = write_config({"classes": ["cat"]}, backbones=[lost, tiny], resources=resources)
    outcome = runner.run(load_config(path))
    assert set(outcome.metrics) == {("scenes", "tiny")}
    assert "there is no weights file" in outcome.failures["scenes", "lost"]


def test_a_store_that_forbids_listing_refuses_no_run_for_a_missing_image(
    write_config: WriteConfig, on_s3: FaultProxy, scenes: Path
) -> None:
    first = sorted(path.name for path in scenes.iterdir())[0]
    rows = ["uri,image_id", "scenes/gone.jpg,gone", f"scenes/{first},first", ""]
    storage.write_bytes("s3://photos/checks.csv", "\n".join(rows).encode())
    on_s3.behave(hide_missing=True)
    path = write_config({"kind": "manifest", "images": "s3://photos/checks.csv"})
    assert problems(path) == {}
