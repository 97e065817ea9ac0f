"""Runs on twenty small photos, one of them broken, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from sparc_dist.config import load_config
from sparc_dist.errors import UserError
from sparc_dist.report import write_report
from sparc_dist.runner import run
from sparc_dist.runs import Results
from tests.support.pictures import encoded, picture

IMAGES, SHARD, BROKEN = 20, 6, 7


def draw_photos(folder: Path) -> None:
    """Draws the photos and writes a table of them."""
    (folder / "photos").mkdir()
    rows = ["uri,image_id,labels"]
    for number in range(IMAGES):
        content = b"no" if number == BROKEN else encoded(picture(number), "PNG")
        (folder / "photos" / f"{number}.png").write_bytes(content)
        labels = ["cat;dog", "dog;pizza", "car", ""][number % 4]
        rows.append(f"photos/{number}.png,{number},{labels}")
    (folder / "table.csv").write_text("\n".join([*rows, ""]))


def write(folder: Path, output: Path, dataset: dict[str, Any], **more: Any) -> Path:
    """Writes a config over the photos of a folder, beside its output."""
    section = {"name": "photos", "images": str(folder / "table.csv"), "background": "none"}
    config = {
        "output": str(output),
        "shard_size": SHARD,
        "datasets": [section | dataset],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "max_error_share": 0.1,
        "resources": {"executor": "process"},
        **more,
    }
    path = output.with_suffix(".yaml")
    path.write_text(json.dumps(config))
    return path


def go(
    folder: Path,
    output: Path,
    dataset: dict[str, Any],
    embeddings_from: Path | None = None,
    **more: Any,
) -> Results:
    config = load_config(str(write(folder, output, dataset, **more)))
    results = run(config, embeddings_from=str(embeddings_from) if embeddings_from else None)
    write_report(results.layout.root)
    return results


def failure(*arguments: Any, **more: Any) -> str:
    """Returns why the only unit of a run fails, before or while it is scored."""
    try:
        (only,) = go(*arguments, **more).failures.values()
    except UserError as error:
        return str(error)
    return only


def table(run_folder: Path, what: str) -> dict[str, Any]:
    """The columns of a unit's Parquet files."""
    columns = pq.read_table(run_folder / "photos" / "tiny" / what).to_pydict()
    ids = columns.pop("image_id")
    return {"image_id": ids, **{name: np.array(rows) for name, rows in columns.items()}}
