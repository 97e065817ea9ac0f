"""The command as a user types it, and what a run leaves, as bytes to compare."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TextIO
from unittest.mock import patch

from sparc_dist import storage
from sparc_dist.cli import main
from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess

COMMAND = Path(sys.executable).with_name("sparc-dist")
#: What differs from start to start in metrics.json: how long it took and what went wrong.
VOLATILE = ("stages", "recovery")


def sparc_dist(
    *arguments: object, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end in this process, which has loaded the libraries already.

    It works without Ray, and what storage remembers of other commands is forgotten.
    """
    _forget()
    words, out, error = [*map(str, arguments)], StringIO(), StringIO()
    with (
        patch.dict(os.environ, {"RAY_ADDRESS": "", **(env or {})}),
        redirect_stdout(out),
        redirect_stderr(error),
        _logging_to(error),
        using(InProcess()),
    ):
        code = _exit_code(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), error.getvalue())


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(("sparc_dist.storage", "sparc_dist.runs")):
            for value in vars(module).values():
                getattr(value, "cache_clear", lambda: None)()


@contextmanager
def _logging_to(stream: TextIO) -> Iterator[None]:
    """Warnings are logged as those of a command are, and --verbose ends with the block."""
    own, handler = logging.getLogger("sparc_dist"), logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    logging.getLogger().addHandler(handler)
    level = own.level
    try:
        yield
    finally:
        own.setLevel(level)
        logging.getLogger().removeHandler(handler)


def _exit_code(arguments: Sequence[str]) -> int:
    """Returns the exit code that Python would end with."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


def sparc_dist_process(
    *arguments: object, ray: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, as a shell does, which takes seconds to start.

    ray: the address of a cluster to join.
    """
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
