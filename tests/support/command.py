"""The command as a user types it, and what a run leaves, as bytes to compare."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sparc_dist import storage

COMMAND = Path(sys.executable).with_name("sparc-dist")
#: What differs from start to start in metrics.json: how long it took and what went wrong.
VOLATILE = ("stages", "recovery")


def sparc_dist(
    *arguments: object, ray: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; ``ray``: the address of a cluster to join."""
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "RAY_ADDRESS": ray, **(env or {})},
        check=False,
    )


def outcome_hashes(run: Path, unit: str = "scenes/tiny") -> dict[str, str]:
    """The hashes of a unit's final tables and of its metrics, timings aside."""
    metrics = storage.read_json(str(run / unit / "metrics.json"))
    lasting = {key: value for key, value in metrics.items() if key not in VOLATILE}
    contents = {path.name: path.read_bytes() for path in sorted((run / unit / "final").glob("0*"))}
    contents["metrics.json"] = json.dumps(lasting).encode()
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


#: What a unit's results are; its stages and recovery describe how a run went.
RESULTS = (
    "scores",
    "errors",
    "final",
    "labels",
    "labels-wide",
    "labeler.safetensors",
    "decisions.json",
    "gallery.npz",
)


def contents(unit: Path) -> dict[str, bytes]:
    files = (path for name in RESULTS for path in [unit / name, *(unit / name).rglob("*")])
    return {str(path.relative_to(unit)): path.read_bytes() for path in files if path.is_file()}
