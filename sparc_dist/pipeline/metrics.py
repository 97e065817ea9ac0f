"""Metrics of a run for Prometheus, through Ray, which prefixes each name with "ray_"."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ray.util.metrics import Counter, Gauge

STAGE = ("dataset", "backbone", "stage")


class Metrics:
    """Counters and gauges of all units, distinguished by their tags."""

    def __init__(self) -> None:
        self._images = Counter(
            "sparc_dist_images_done_total", "Images that a stage of a unit is done with.", STAGE
        )
        self._errors = Counter(
            "sparc_dist_images_unreadable_total",
            "Images that could not be read or decoded.",
            STAGE[:2],
        )
        self._seconds = Gauge(
            "sparc_dist_stage_seconds", "Seconds since a stage of a unit began.", STAGE
        )
        self._rate = Gauge(
            "sparc_dist_images_per_second", "Images a second, since a stage began.", STAGE
        )

    def count(self, tags: Mapping[str, str], images: int, seconds: float, total: int) -> None:
        """Counts ``images`` more as done, ``total`` since the stage began ``seconds`` ago."""
        if images:
            self._images.inc(images, dict(tags))
        self._seconds.set(seconds, dict(tags))
        if seconds > 0:
            self._rate.set(total / seconds, dict(tags))

    def count_errors(self, tags: Mapping[str, str], images: int) -> None:
        """Counts images that could not be read."""
        if images:
            self._errors.inc(images, dict(tags))


@cache
def metrics() -> Metrics:
    """Returns the metrics of this process; Ray must be running."""
    return Metrics()
