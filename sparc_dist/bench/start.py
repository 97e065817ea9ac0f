"""Start-up: from ``ray job submit`` to the first scored shard, and the light path of small jobs.

Both are compared with a bare open_clip script on the same images and prompts, which is a process
of its own, too. The times of a job's parts are those at which Ray says that its tasks ran.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from sparc_dist import storage
from sparc_dist.backbones.models import in_templates
from sparc_dist.backbones.text_cache import texts_of
from sparc_dist.bench.head import Head, running_head
from sparc_dist.bench.inputs import manifest_rows, photos, tiny_config, write_manifest
from sparc_dist.bench.map_phase import random_backbone
from sparc_dist.bench.setting import BenchSetting, block
from sparc_dist.config import TINY, BackboneConfig, Config
from sparc_dist.errors import UserError
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import RunLayout
from sparc_dist.runs.tables import aligned

#: The parts of a start: what the first task is called that does it.
PARTS = {
    "prompts": "dataset_bank",
    "list of images": "_write_images",
    "first decode": "MapBatches(DecodeShard)",
    "scorer: imports, weights, texts": "MapWorker(MapBatches(ScoreShardActor)).__init__",
    "first shard scored": "MapWorker(MapBatches(ScoreShardActor)).submit",
    "first shard written": "MapBatches(WriteShard)",
}
#: The last part.
END = "first shard written"
#: The part before them, which is not a task.
DRIVER = "job, driver: imports, joining Ray"
#: What is said of the bare script as a whole.
WHOLE = "in all"
#: Seconds in which workers tell Ray about their tasks.
TOLD = 3.0
#: Seconds from the start to the end of a part.
Span = tuple[float, float]


@dataclass(frozen=True)
class Sizes:
    """Sizes of the benchmark. backbones: of each of its jobs."""

    model: str
    backbones: tuple[int, ...]
    images: int
    shard: int
    classes: int
    rounds: int


FULL = Sizes("ViT-B-32-quickgelu", (1, 9), 32, 8, 4, 3)
QUICK = Sizes(TINY, (2,), 8, 4, 3, 1)


@dataclass(frozen=True)
class Bench:
    """A folder with all inputs, and the head that takes the jobs."""

    folder: Path
    head: Head
    sizes: Sizes
    backbone: BackboneConfig
    images: list[str]

    def config(self, backbones: int, name: str) -> Path:
        """Writes a config of so many backbones, all with the same weights; returns its path."""
        manifest, sizes = self.folder / "manifest.parquet", self.sizes
        raw = tiny_config(manifest, backbones, sizes.classes, sizes.shard).model_dump(mode="json")
        model = {"model": self.backbone.model, "weights": self.backbone.weights}
        raw["backbones"] = [{"name": f"b{number}", **model} for number in range(backbones)]
        raw["datasets"][0]["background"] = "none"
        raw["output"] = str(self.folder / f"run-{name}")
        path = self.head.project / f"{name}.yaml"
        path.write_text(Config.model_validate(raw).model_dump_json())
        return path

    def cluster(self, config: Path) -> dict[str, Span]:
        """Submits a run as a job; returns when each part of its start began and ended."""
        start = time.time()
        run = (sys.executable, "-m", "sparc_dist", "run", "--only", "score", config.name)
        done = self.head.submit("--working-dir", ".", "--", *run)
        if done.returncode:
            raise UserError(f"{done.stdout}\n{done.stderr}".strip())
        time.sleep(TOLD)
        return spans(self.head.tasks(), start)

    def light(self, config: Path) -> float:
        """Returns the seconds of a run in one process, until all its images are scored."""
        run = ("run", "--only", "score", str(config))
        start = time.perf_counter()
        _python(self.head.env, "sparc_dist", *run)
        return time.perf_counter() - start

    def bare(self, backbones: int, images: int, prompts: list[str]) -> dict[str, float]:
        """Runs the bare script; returns the seconds of its parts and of the whole process."""
        job: dict[str, Any] = {"model": self.backbone.model, "weights": self.backbone.weights}
        job |= {"backbones": backbones, "images": self.images[:images], "texts": prompts}
        path = self.folder / "bare.json"
        path.write_text(json.dumps(job))
        start = time.perf_counter()
        printed = _python(self.head.env, "sparc_dist.bench.bare", str(path))
        return {**json.loads(printed), WHOLE: time.perf_counter() - start}


@dataclass(frozen=True)
class Round:
    """What one round measured. jobs, bare: by the number of backbones.

    light, alone: the seconds of a small job in one process, and of the bare script on its images.
    """

    jobs: dict[int, dict[str, Span]]
    bare: dict[int, dict[str, float]]
    light: float
    alone: float
    texts: int

    @classmethod
    def of(cls, bench: Bench, number: int) -> Round:
        """Submits jobs and runs scripts alternately; each run starts from nothing."""
        sizes, jobs, bare = bench.sizes, {}, {}
        texts: list[str] = []
        for count in sizes.backbones:
            config = bench.config(count, f"{count}-{number}")
            jobs[count] = bench.cluster(config)
            texts = prompts(bench.folder / f"run-{config.stem}")
            bare[count] = bench.bare(count, sizes.shard, texts)
        light = bench.light(bench.config(1, f"light-{number}"))
        return cls(jobs, bare, light, bench.bare(1, sizes.images, texts)[WHOLE], len(texts))


def measure(setting: BenchSetting) -> str:
    """Measures some rounds on one head; prints medians."""
    sizes = QUICK if setting.quick else FULL
    with TemporaryDirectory() as folder, _bench(setting, sizes, Path(folder)) as bench:
        rounds = [Round.of(bench, number) for number in range(sizes.rounds)]
    of = f"{sizes.model}, {rounds[0].texts} texts, shards of {sizes.shard} images"
    ratios = {
        f"first scored shard of {_backbones(count)}, job / bare script": [
            each.jobs[count][END][1] / each.bare[count][WHOLE] for each in rounds
        ]
        for count in sizes.backbones
    }
    light = f"small job of {sizes.images} images in one process / bare script"
    ratios[light] = [each.light / each.alone for each in rounds]
    figures = {name: f"{median(values):.2f}" for name, values in ratios.items()}
    return f"{block(f'start-up: {of}', figures)}\n\n{_table(rounds, sizes)}"


def _backbones(count: int) -> str:
    return f"{count} backbone" + ("" if count == 1 else "s")


def _table(rounds: Sequence[Round], sizes: Sizes) -> str:
    """Returns the medians of all parts: of a job from and to, of the script how long."""
    rows = [["seconds after ray job submit", *map(_backbones, sizes.backbones)]]
    for part in (DRIVER, *PARTS):
        cells = []
        for count in sizes.backbones:
            edges = zip(*(each.jobs[count][part] for each in rounds), strict=True)
            cells.append(" to ".join(f"{median(values):4.1f}" for values in edges))
        rows.append([f"  {part}", *cells])
    rows.append(["seconds of the bare script", *("" for _ in sizes.backbones)])
    for part in rounds[0].bare[sizes.backbones[0]]:
        found = (median(each.bare[count][part] for each in rounds) for count in sizes.backbones)
        rows.append([f"  {part}", *(f"{seconds:.1f}" for seconds in found)])
    return aligned(rows, "l" + "r" * len(sizes.backbones))


@contextmanager
def _bench(setting: BenchSetting, sizes: Sizes, folder: Path) -> Iterator[Bench]:
    """Provides the inputs and a head, after a job that has started Ray's own workers."""
    project = folder / "project"
    project.mkdir()
    backbone = random_backbone(sizes.model, folder)
    rows = manifest_rows(photos(setting, sizes.images, str(folder)), sizes.images)
    write_manifest(rows, folder / "manifest.parquet")
    # Without the user's cache of texts, which would have those of the round before.
    with running_head(project, folder, (), {"SPARC_CACHE": ""}) as head:
        yield Bench(folder, head, sizes, backbone, [row["uri"] for row in rows])


def spans(tasks: Sequence[Mapping[str, Any]], start: float) -> dict[str, Span]:
    """Returns when each part began and ended, in seconds after ``start``, from Ray's tasks."""
    found: dict[str, list[Span]] = {name: [] for name in PARTS.values()}
    first = math.inf
    for task in tasks:
        times = [task[f"{edge}_time_ms"] for edge in ("creation", "start", "end")]
        if task["name"] not in found or None in times:
            continue
        # Ray shows times in this machine's time zone.
        made, *span = (datetime.fromisoformat(text).timestamp() - start for text in times)
        if made >= 0:
            first = min(first, made)
            found[task["name"]].append((span[0], span[1]))
    return {DRIVER: (0.0, first)} | {part: min(found[name]) for part, name in PARTS.items()}


def prompts(run: Path) -> list[str]:
    """Returns all texts that a run embedded, in their templates."""
    (dataset,) = (path.name for path in run.iterdir() if (path / "prompts.parquet").exists())
    bank = PromptBank.from_table(storage.read_table(RunLayout(str(run)).dataset(dataset).prompts))
    return [text for written in texts_of(bank) for text in in_templates(written)]


def _python(env: Mapping[str, str], module: str, *arguments: str) -> str:
    """Runs a module as a process of its own; returns the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UserError(done.stderr.strip())
    return done.stdout.splitlines()[-1]
