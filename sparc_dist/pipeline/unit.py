"""A unit, one data set under one backbone: the thing that succeeds, fails and resumes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import ray

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, Config
from sparc_dist.errors import UserError
from sparc_dist.layout import UnitLayout
from sparc_dist.pipeline.cluster import plan_scorers
from sparc_dist.pipeline.map_phase import MapPhase, embed_prompts
from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.progress import Progress
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.shards import METHODS, UnitShards


@dataclass
class Stages:
    """Times the stages of a unit and shows their progress."""

    label: str
    images: int
    seconds: dict[str, float] = field(default_factory=dict)
    worked: dict[str, int] = field(default_factory=dict)
    _progress: Progress | None = None
    _started: float = 0.0

    def start(self, stage: str, images: int, done: int = 0) -> None:
        """A stage begins that looks at ``images`` images, ``done`` of them earlier."""
        title = stage.replace("_", " ")
        self._progress = Progress(f"{self.label}  {title}", images, done)
        self._started = time.monotonic()
        self.worked[stage] = 0

    def watch(self, stage: str, images: int) -> None:
        """Images of a stage are done; 0 images begin it."""
        if not images and stage not in self.worked:
            self.start(stage, self.images)
        if images and self._progress:
            self._progress.add(images)
        self.worked[stage] += images
        self.seconds[stage] = time.monotonic() - self._started

    def summary(self) -> dict[str, dict[str, float | None]]:
        """``{stage: {seconds, images_per_second}}`` of what this start of the run did."""
        return {
            stage: {
                "seconds": round(seconds, 3),
                "images_per_second": round(self.worked[stage] / seconds, 1) if seconds else None,
            }
            for stage, seconds in self.seconds.items()
        }


def run_unit(config: Config, data: Prepared, backbone: BackboneConfig) -> dict[str, Any]:
    """Score and reduce a unit as far as that is not done yet; gives its metrics."""
    unit = data.layout.unit(backbone.name)
    backbone = backbone.sized(data.config.resnet_size)
    stages = Stages(f"{data.config.name} × {backbone.name}", data.images)
    counts = _score(config, data, backbone, stages)
    images, errors = sum(c["images"] for c in counts), sum(c["errors"] for c in counts)
    if not images:
        raise UserError(
            f"None of the {errors} images of {data.config.name} could be read; "
            f"{storage.join(unit.root, 'errors')} says why."
        )
    stages.images = images
    shards = UnitShards(data.layout, unit, len(data.bank.classes), len(data.bank.compound))
    method = config.method.method()
    phase = ReducePhase(shards, data.bank, method, [count["images"] for count in counts])
    positives = phase.score(phase.fit(stages.watch), stages.watch)
    summary: dict[str, Any] = {name: {"mAP": None, "AP": {}} for name in METHODS}
    if data.labelled:
        summary = phase.evaluate(positives, config.empty_class, stages.watch)
    metrics = {
        **summary,
        "images": images,
        "errors": errors,
        "labelled": data.labelled,
        **{key: counts[0][key] for key in ("weights_sha256", "prompts_sha256")},
        "device": "+".join(sorted({count["device"] for count in counts})),
        "notes": storage.read_json(unit.fusion)["notes"],
        "stages": stages.summary(),
    }
    storage.write_json(unit.metrics, metrics)
    return metrics


def _score(
    config: Config, data: Prepared, backbone: BackboneConfig, stages: Stages
) -> list[dict[str, Any]]:
    """The map phase over the shards that have no marker; gives the markers of all."""
    unit = data.layout.unit(backbone.name)
    markers = _markers(unit, len(data.sizes))
    missing = [shard for shard, marker in enumerate(markers) if marker is None]
    if missing:
        plan = plan_scorers(config.resources, len(missing), ray.cluster_resources())
        prompts = embed_prompts(backbone, data.bank, plan)
        _check_same_model(markers, prompts.weights_sha256, unit)
        done = data.images - sum(data.sizes[shard] for shard in missing)
        stages.start("scoring", data.images, done)
        phase = MapPhase(data.layout, unit, backbone, prompts, data.bank.sha256, config.batch_size)
        for row in phase.run(missing, plan, config.resources):
            stages.watch("scoring", data.sizes[row["shard"]])
            markers[row["shard"]] = {**row, **phase.facts}
    return [marker for marker in markers if marker is not None]


def _markers(unit: UnitLayout, shards: int) -> list[dict[str, Any] | None]:
    """The marker of each shard that is scored, None for the others."""

    def read(shard: int) -> dict[str, Any] | None:
        try:
            marker: dict[str, Any] = storage.read_json(unit.marker(shard))
            return marker
        except FileNotFoundError:
            return None

    with ThreadPoolExecutor(16) as readers:
        return list(readers.map(read, range(shards)))


def _check_same_model(
    markers: Sequence[dict[str, Any] | None], weights_sha256: str, unit: UnitLayout
) -> None:
    """Shards scored by other weights must not be mixed with new ones."""
    for marker in markers:
        if marker is not None and marker["weights_sha256"] != weights_sha256:
            raise UserError(
                f"Some shards of {unit.root} were scored with other weights than those of the "
                "config now; put the old file back, or choose a new `output`."
            )
