"""Commands on tiny runs in a store, each with the state in which it finds the bucket."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

from threadpoolctl import threadpool_limits

from sparc_dist.backbones import tiny
from sparc_dist.demo.scenes import SPLITS, draw_scene
from sparc_dist.storage import filesystems
from tests.support.command import sparc_dist
from tests.support.faulty_s3 import FaultyS3
from tests.support.s3 import serving

CLASSES = ["cat", "dog", "car"]
#: Seconds: a store is silent for longer than the client waits; no command takes as long as LIMIT.
CLIENT_WAITS, SILENCE, LIMIT = 0.5, 0.8, 180
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIALOOPBACK",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    filesystems.TIMEOUT: str(CLIENT_WAITS),
}
#: What is missing of a run that was interrupted in its second shard, after some passes.
INTERRUPTED = (
    "metrics.json",
    "done/00001.json",
    "markers/00000.parquet",
    "labeler.safetensors",
    "decisions.json",
    "gallery.npz",
    "final/00001.parquet",
    "labels/00000.parquet",
    "labels/00001.parquet",
    "labels-wide/00000.parquet",
    "labels-wide/00001.parquet",
    "reduce/rank_statistics/01.npz",
    "reduce/final_scores/00.npz",
    "reduce/final_scores/01.npz",
    "report/report.json",
)
Files = dict[str, bytes]


@dataclass(frozen=True)
class Scenario:
    """A command and the bucket in which it starts."""

    command: tuple[str, ...]
    start: Files


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, and what it printed and logged."""

    code: int
    said: str


@contextmanager
def store() -> Iterator[FaultyS3]:
    """This process works on a faulty S3, with short pauses between attempts."""
    with (
        serving(FaultyS3(SILENCE)) as server,
        patch.dict(os.environ, {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.endpoint}),
        patch.multiple(filesystems, ATTEMPTS=3, LONGEST_PAUSE=0.002, OUTAGE=0),
        # A command of its own would load them once.
        patch.object(tiny, "load_tiny_model", cache(tiny.load_tiny_model)),
        threadpool_limits(1, "blas"),  # as in a run: its sums have the same bits
    ):
        yield server


def execute(command: tuple[str, ...]) -> Ended:
    """Runs a command in this process."""
    with _alarm(LIMIT):
        done = sparc_dist(*command)
    return Ended(done.returncode, done.stdout + done.stderr)


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in a command that does not end."""

    def stop(*_: object) -> NoReturn:
        raise TimeoutError(f"no end after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def prepare(folder: Path, server: FaultyS3) -> dict[str, Scenario]:
    """Draws photos, makes the runs that the commands start from, and returns all scenarios."""
    photos = [_draw(folder / "photos", number) for number in range(8)]
    table, grown = folder / "table.csv", folder / "grown.csv"
    _write_table(table, photos[:6])
    _write_table(grown, photos[:6])
    config = _write_config(folder / "run.yaml", table, CLASSES, "s3://runs/a")
    other = _write_config(folder / "other.yaml", table, [*CLASSES[:2], "sofa"], "s3://runs/a")
    growing = _write_config(folder / "growing.yaml", grown, CLASSES, "s3://runs/x")
    album = [_draw(folder / "album", number) for number in range(6)]
    labels = ("label", str(folder / "album"), "--classes", ",".join(CLASSES))
    label = (*labels, "--model", "sparc-tiny", "--out", "s3://runs/l")
    decide = ("decide", "s3://runs/l", "--prevalence", "cat=0.4", "--per-image", "1.5")

    finished = _after(server, {}, ("run", config))
    labelled = _after(server, {}, label)
    extended = _after(server, {}, ("run", growing))
    decided = _after(server, labelled, decide)
    _write_table(grown, photos)
    album[0].unlink()
    _draw(folder / "album", 6)
    missing = {f"a/scenes/tiny/{name}" for name in INTERRUPTED} | {"a/report/report.json"}
    half = {key: content for key, content in finished.items() if key not in missing}
    out = "s3://runs/exported.csv"
    return {
        "run": Scenario(("run", config), {}),
        "resume": Scenario(("run", config), half),
        "finished": Scenario(("run", config), finished),
        "other config": Scenario(("run", other), finished),
        "decide": Scenario(decide, labelled),
        "label": Scenario(label, labelled),
        "extend": Scenario(("run", growing, "--extend"), extended),
        "apply": Scenario(
            ("apply", "s3://runs/a", str(folder / "album"), "--out", "s3://runs/p"), finished
        ),
        "export": Scenario(("export", "s3://runs/a", "--format", "csv", "--out", out), finished),
        "report": Scenario(("report", "s3://runs/l"), decided),
    }


def _after(server: FaultyS3, start: Mapping[str, bytes], command: tuple[str, ...]) -> Files:
    """Returns the bucket after a command that must succeed."""
    server.start(start)
    ended = execute(command)
    if ended.code:
        raise RuntimeError(f"{' '.join(command)} failed without any fault:\n{ended.said}")
    return server.files()


def _draw(folder: Path, number: int) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / f"{number}.png"
    draw_scene(SPLITS["validation"][number]).image.resize((64, 48)).save(path)
    return path


def _write_table(path: Path, photos: list[Path]) -> None:
    labels = ["cat;dog", "dog", "car", "cat"]
    rows = [f"{photo},{photo.name},{labels[n % 4]}" for n, photo in enumerate(photos)]
    path.write_text("\n".join(["uri,image_id,labels", *rows, ""]))


def _write_config(path: Path, table: Path, classes: list[str], output: str) -> str:
    dataset = {"name": "scenes", "kind": "manifest", "images": str(table), "classes": classes}
    config: dict[str, Any] = {
        "output": output,
        "shard_size": 3,
        "datasets": [dataset],
        "backbones": [{"name": "tiny", "model": "sparc-tiny"}],
        "resources": {"scorers": 1, "gpus_per_scorer": 0},
    }
    path.write_text(json.dumps(config))
    return str(path)
