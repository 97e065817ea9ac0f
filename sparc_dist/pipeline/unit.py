"""A unit, one data set under one backbone: the thing that succeeds, fails and resumes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, Config
from sparc_dist.errors import UserError
from sparc_dist.filesystems import retries
from sparc_dist.layout import UnitLayout
from sparc_dist.markers import Scoring, Tally
from sparc_dist.pipeline.cluster import plan_scorers
from sparc_dist.pipeline.map_phase import MapPhase, embed_prompts
from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.progress import Progress
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.shards import METHODS, DamagedScores, UnitShards

MOST_REASONS = 20  # of errors that the report tells apart


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
        if not images:
            self.start(stage, self.images)
        if images and self._progress:
            self._progress.add(images)
        self.worked[stage] += images
        self.seconds[stage] = time.monotonic() - self._started

    def say(self, text: str) -> None:
        """A line of its own, beside the progress."""
        print(f"{self.label}  {text}", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, dict[str, float | None]]:
        """``{stage: {images, seconds, images_per_second}}`` of what this start of the run did."""
        return {
            stage: {
                "images": self.worked[stage],
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
    before, damaged = retries(), list[int]()
    tally = _score(config, data, backbone, stages)
    try:
        summary, phase = _reduce(config, data, unit, tally, stages)
    except DamagedScores:
        # Found by their hashes, all are looked for, once, and scored again from the images.
        damaged = _phase(config, data, unit, tally).damaged()
        stages.say(f"{len(damaged)} shards are not what was written; they are scored again")
        tally = _score(config, data, backbone, stages, damaged)
        summary, phase = _reduce(config, data, unit, tally, stages)
    metrics = {
        **summary,
        **_facts(tally),
        "labelled": data.labelled,
        "notes": storage.read_json(unit.fusion)["notes"],
        "stages": stages.summary(),
        "recovery": {
            "storage_retries": tally.retries + phase.retries + retries() - before,
            "shards_scored_again": len(damaged),
        },
    }
    storage.write_json(unit.metrics, metrics)
    return metrics


def _facts(tally: Tally) -> dict[str, Any]:
    """Of metrics.json: how many images were scored, by what, and why the others were not."""
    images = sum(tally.images)
    reasons = sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))
    told = dict(reasons[:MOST_REASONS])
    if rest := sum(count for _, count in reasons[MOST_REASONS:]):
        told["other reasons"] = rest
    scorings = sorted(tally.scorings, key=lambda scoring: scoring.device)
    return {
        "images": images,
        "errors": {
            "images": tally.errors,
            "share": tally.errors / (images + tally.errors),
            "reasons": told,
        },
        "weights_sha256": scorings[0].weights_sha256,
        "prompts_sha256": scorings[0].prompts_sha256,
        "device": "+".join(scoring.device for scoring in scorings),
    }


def _reduce(
    config: Config, data: Prepared, unit: UnitLayout, tally: Tally, stages: Stages
) -> tuple[dict[str, Any], ReducePhase]:
    """Final scores to storage; gives the mAP of the three methods."""
    stages.images = sum(tally.images)
    phase = _phase(config, data, unit, tally)
    positives = phase.score(phase.fit(stages.watch), stages.watch)
    summary: dict[str, Any] = {name: {"mAP": None, "AP": {}} for name in METHODS}
    if data.labelled:
        summary = phase.evaluate(positives, config.empty_class, stages.watch)
    return summary, phase


def _phase(config: Config, data: Prepared, unit: UnitLayout, tally: Tally) -> ReducePhase:
    shards = UnitShards(data.layout, unit, len(data.bank.classes), len(data.bank.compound))
    limit = config.resources.no_progress_seconds
    return ReducePhase(shards, data.bank, config.method.method(), tally.images, tally.key, limit)


def _score(
    config: Config,
    data: Prepared,
    backbone: BackboneConfig,
    stages: Stages,
    again: Sequence[int] = (),
) -> Tally:
    """The map phase over the shards that have no marker, and those ``again``; gives the tally."""
    unit = data.layout.unit(backbone.name)
    tally = Tally.of(unit, len(data.sizes))
    _check_same(tally, "prompts", data.bank.sha256, unit)
    _check_same(tally, "images", data.images_sha256, unit)
    todo = sorted({*tally.missing, *again})
    if todo:
        plan = plan_scorers(config.resources, len(todo), ray.cluster_resources())
        prompts = embed_prompts(backbone, data.bank, plan, config.resources.no_progress_seconds)
        scoring = Scoring(
            prompts.weights_sha256, data.bank.sha256, data.images_sha256, prompts.device
        )
        _check_same(tally, "weights", scoring.weights_sha256, unit)
        phase = MapPhase(data.layout, unit, backbone, prompts, scoring, config.batch_size)
        stages.start("scoring", data.images, data.images - sum(data.sizes[i] for i in todo))
        for row in phase.run(todo, plan, config.resources):
            stages.watch("scoring", data.sizes[row["shard"]])
        tally = Tally.of(unit, len(data.sizes))
    if tally.missing:
        raise UserError(
            f"The marker {unit.marker(tally.missing[0])} was written and is not there; {unit.root} "
            "loses files, so choose another `output`."
        )
    if not any(tally.images):
        raise UserError(
            f"None of the {tally.errors} images of {data.config.name} could be read; "
            f"{storage.join(unit.root, 'errors')} says why."
        )
    return tally


def _check_same(tally: Tally, what: str, sha256: str, unit: UnitLayout) -> None:
    """Shards of other weights, prompts or images must not be mixed with new ones."""
    if any(getattr(old, f"{what}_sha256") != sha256 for old in tally.scorings):
        raise UserError(
            f"Some shards of {unit.root} were scored with other {what} than there are now; put "
            f"the old {what} back, or start with --overwrite or --to NEW."
        )
