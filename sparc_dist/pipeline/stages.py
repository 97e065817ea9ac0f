"""The stages of a unit: their times, their progress, their metrics."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any

from sparc_dist.pipeline.executor import current
from sparc_dist.pipeline.progress import Progress
from sparc_dist.runs import lease


@dataclass
class Stages:
    """Times the stages of a unit, prints their progress, and publishes it.

    every: seconds between lines of progress. worked: images done in each stage.
    """

    dataset: str
    backbone: str
    every: float = 5.0
    seconds: dict[str, float] = field(default_factory=dict)
    worked: dict[str, int] = field(default_factory=dict)
    embedding: dict[str, float] | None = None
    _progress: Progress | None = None
    _started: float = 0.0

    def start(self, stage: str, images: int, done: int = 0) -> None:
        """Starts a stage over ``images`` images, of which ``done`` were done earlier."""
        self._progress = Progress(self._title(stage), images, done, self.every)
        self._started = time.monotonic()
        self.worked[stage] = 0

    def next_pass(self, stage: str, number: int) -> None:
        """Starts the next of many passes of a stage over all its images."""
        if self._progress:
            self._progress.next_pass(f"{self._title(stage)}, pass {number}")

    def advance(self, stage: str, images: int) -> None:
        """Counts images of a stage that are done; raises UserError if the lease was lost."""
        lease.check()
        if images and self._progress:
            self._progress.add(images)
        self.worked[stage] += images
        self.seconds[stage] = time.monotonic() - self._started
        tags = {**self._tags, "stage": stage}
        current().count("images_done_total", images, tags)
        current().count("stage_seconds", self.seconds[stage], tags)
        if self.seconds[stage] > 0:
            current().count("images_per_second", self.worked[stage] / self.seconds[stage], tags)

    def tick(self) -> None:
        """Prints the progress again if nothing was printed for some time."""
        if self._progress is not None:
            self._progress.tick()

    def texts(self, count: int, seconds: float) -> None:
        """Notes how long the texts took."""
        self.embedding = {"texts": count, "seconds": round(seconds, 3)}

    def errors(self, images: int) -> None:
        """Counts images that could not be read."""
        current().count("images_unreadable_total", images, self._tags)

    def _title(self, stage: str) -> str:
        return f"{self.dataset} × {self.backbone}  {stage.replace('_', ' ')}"

    @property
    def _tags(self) -> dict[str, str]:
        return {"dataset": self.dataset, "backbone": self.backbone}

    def say(self, text: str) -> None:
        """Prints a line of its own, beside the progress."""
        print(f"{self.dataset} × {self.backbone}  {text}", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, dict[str, Any]]:
        """Returns ``{stage: {images, seconds, images_per_second}}`` of this start of the run.

        The stage ``embedding`` counts texts in place of images.
        """
        texts = {} if self.embedding is None else {"embedding": dict(self.embedding)}
        return texts | {
            stage: {
                "images": self.worked[stage],
                "seconds": round(seconds, 3),
                "images_per_second": round(self.worked[stage] / seconds, 1) if seconds else None,
            }
            for stage, seconds in self.seconds.items()
        }
