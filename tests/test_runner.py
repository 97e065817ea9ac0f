"""Runs from start to end, in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from sparc_dist.config import load_config
from sparc_dist.runner import run


def test_a_finished_run_tells_what_became_of_its_folder(
    write_config: Callable[..., str], scenes: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sorted(scenes.iterdir())[:3]:
        (photos / path.name).write_bytes(path.read_bytes())
    config = write_config(
        {"images": str(photos), "classes": ["cat"], "prompts": {"source": "none"}}
    )
    assert not run(load_config(config)).changes
    for path in sorted(scenes.iterdir())[3:5]:
        (photos / path.name).write_bytes(path.read_bytes())
    again = run(load_config(config))
    assert again.nothing_to_do
    assert again.changes == {"scenes": "3 → 5: 2 new photos since the run"}
    shutil.rmtree(photos)
    assert not run(load_config(config)).failures  # a finished run outlives its folder
