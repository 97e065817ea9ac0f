"""A small run of the bundled model, whose labeler the tests of this folder use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import FEW
from tests.support.running import go


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory, scenes: Path) -> Path:
    """The folder of a run on the scenes, made without Ray; its output is ``run``."""
    folder = tmp_path_factory.mktemp("fitted")
    config = {
        "output": "run",
        "datasets": [{"name": "scenes", "kind": "folder", "images": str(scenes), "classes": FEW}],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "resources": {"executor": "process"},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    assert not go(folder).failures
    return folder / "run"


@pytest.fixture(scope="session")
def labeler_file(fitted: Path) -> Path:
    return fitted / "scenes" / "tiny" / "labeler.safetensors"
