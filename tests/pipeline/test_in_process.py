"""Small work without Ray: the same bytes as on Ray, and no Ray."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, ResourcesConfig
from sparc_dist.pipeline import executor
from sparc_dist.pipeline.executor import Needs, current, get, joins_ray, submit, using
from sparc_dist.pipeline.in_process import InProcess
from sparc_dist.pipeline.small import SMALL, is_small
from tests.support.command import contents, sparc_dist
from tests.support.running import go

WriteConfig = Callable[..., str]


def facts(unit: Path) -> dict[str, object]:
    metrics: dict[str, object] = storage.read_json(str(unit / "metrics.json"))
    return {key: value for key, value in metrics.items() if key not in ("stages", "recovery")}


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_in_process_and_on_ray_have_the_same_bytes(original: Path, tmp_path: Path) -> None:
    on_ray = tmp_path / "ray"
    shutil.copytree(original, on_ray, ignore=shutil.ignore_patterns("run"))
    assert not go(on_ray).failures
    ours, rays = (folder / "run" / "scenes" / "tiny" for folder in (original, on_ray))
    assert contents(ours) == contents(rays)
    assert facts(ours) == facts(rays)
    # What Ray began, this process ends, from any point.
    shutil.copytree(on_ray, tmp_path / "resumed")
    unit = tmp_path / "resumed" / "run" / "scenes" / "tiny"
    (unit / "metrics.json").unlink()
    (unit / "done" / "00001.json").unlink()
    shutil.rmtree(unit / "reduce")
    (unit / "final" / "00002.parquet").unlink()
    with using(InProcess()):
        assert not go(tmp_path / "resumed").failures
    assert contents(unit) == contents(rays)


def test_a_model_is_loaded_once_for_texts_and_images(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparc_dist.backbones.models import Backbone

    loaded = []
    load = Backbone.__init__

    def counted(self: Backbone, config: BackboneConfig, *rest: Any) -> None:
        loaded.append(config.name)
        load(self, config, *rest)

    monkeypatch.setattr(Backbone, "__init__", counted)
    shutil.copytree(original, tmp_path / "new", ignore=shutil.ignore_patterns("run"))
    with using(InProcess()):
        assert not go(tmp_path / "new").failures
    assert loaded == ["tiny"]
    ours, others = (folder / "run" / "scenes" / "tiny" for folder in (tmp_path / "new", original))
    assert contents(ours) == contents(others)
    stages = json.loads((ours / "metrics.json").read_text())["stages"]
    assert stages["embedding"]["texts"] > 0


def test_a_small_run_does_not_import_ray(tmp_path: Path, scenes: Path) -> None:
    code = (
        "import sys; from sparc_dist.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code if 'ray' not in sys.modules else 99)"
    )
    options = ["--classes", "cat,pizza", "--model", "sparc-tiny", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", code, "label", str(scenes), *options],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "labels.csv").exists()


def test_unreadable_images_and_a_wrong_model_in_process(
    tmp_path: Path, write_config: WriteConfig, scenes: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted(scenes.iterdir())[:5]:
        shutil.copy(path, photos)
    (photos / "broken.jpg").write_bytes(b"no")
    config = write_config({"images": str(photos)}, max_error_share=0.5)
    done = sparc_dist("run", config)
    assert done.returncode == 0, done.stderr
    assert "1 of 6 images could not be read" in done.stdout


def test_work_is_done_once_and_when_it_is_wanted() -> None:
    calls: list[int] = []

    def work(number: int, other: int = 0) -> tuple[int, int]:
        calls.append(number)
        return number + other, number - other

    first, second = submit(work, 5, 2, returns=2)
    assert calls == []
    summed = submit(lambda a, b: a + b, first, second)
    assert get(summed, 1, "A sum") == 10
    assert get(first, 1, "A part") == 7
    assert calls == [5]
    assert list(current().finished([summed, first], 1, "Two")) == [summed, first]
    failing = current().submit(lambda: 1 // 0, (), Needs())
    with pytest.raises(ZeroDivisionError):
        get(failing, 1, "A failure")


@pytest.mark.parametrize(
    ("resources", "sizes", "small"),
    [
        ({}, [3], True),
        ({"cpus": 2}, [SMALL], True),
        ({"cpus": 2}, [SMALL + 1], False),
        ({"cpus": 64}, [SMALL], False),
        ({"cpus": 64}, [100], True),
        ({}, [3, 3], False),
        ({"executor": "ray"}, [3], False),
        ({"executor": "process"}, [10**6, 10**6], True),
    ],
)
def test_what_is_small(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, object], sizes: list[int], small: bool
) -> None:
    monkeypatch.setattr("sparc_dist.pipeline.small.joins_ray", lambda: False)
    assert is_small(ResourcesConfig.model_validate(resources), sizes) == small


def test_a_named_ray_is_always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_current", None)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert joins_ray()
    assert not is_small(ResourcesConfig(), [3])
