"""A finished run, for tests that stop, spoil and repeat it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sparc_dist.config_file import load_config
from sparc_dist.outcome import Outcome
from sparc_dist.report import write_report
from sparc_dist.run import run

#: Few, so that a run is quick.
CLASSES = ["cat", "dog", "car", "pizza", "sofa"]


def go(folder: Path) -> Outcome:
    """Run the config of a folder in this process."""
    outcome = run(load_config(str(folder / "config.yaml")))
    write_report(outcome.layout.root)
    return outcome


@pytest.fixture(scope="session")
def original(
    tmp_path_factory: pytest.TempPathFactory,
    scenes: Path,
    truth: dict[str, list[str]],
    cluster: str,
) -> Path:
    """The folder of a finished run with labels, and its config."""
    folder = tmp_path_factory.mktemp("finished")
    rows = [f"{scenes / name},{name},{';'.join(labels)}" for name, labels in truth.items()]
    (folder / "manifest.csv").write_text("\n".join(["uri,image_id,labels", *rows, ""]))
    dataset = {
        "name": "scenes",
        "kind": "manifest",
        "images": str(folder / "manifest.csv"),
        "classes": CLASSES,
    }
    config = {
        "output": "run",
        "shard_size": 10,
        "datasets": [dataset],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "resources": {"scorers": 1, "gpus_per_scorer": 0},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    assert not go(folder).failures
    return folder


@pytest.fixture
def finished(original: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil; ``output`` is no part of what a run is."""
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"
