"""The counters of a replica, as Prometheus reads them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sparc_dist.serving.labeler import LabelledImage
from sparc_dist.serving.requests import Refused

#: The version of Prometheus's text form.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The upper ends of the histogram's bins.
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class ServiceMetrics:
    """Requests by status, images by outcome, seconds per request, requests at work."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        more = {"registry": self._registry}
        self._requests = Counter("sparc_requests", "Requests to label.", ["code"], **more)
        self._images = Counter("sparc_images", "Images by outcome.", ["outcome"], **more)
        self._seconds = Histogram("sparc_seconds", "Seconds per request.", buckets=SECONDS, **more)
        self._ongoing = Gauge("sparc_ongoing", "Requests at work.", **more)
        self._at_work = 0

    @property
    def crowded(self) -> bool:
        """Whether more than one request is at work."""
        return self._at_work > 1

    @contextmanager
    def request(self) -> Iterator[Callable[[Sequence[LabelledImage]], None]]:
        """Counts a request; yields what counts its images."""
        start, code = time.perf_counter(), "500"
        self._ongoing.inc()
        self._at_work += 1
        try:
            counted: list[LabelledImage] = []
            yield counted.extend
            code = "422" if all(image.error for image in counted) else "200"
            for image in counted:
                self._images.labels("unreadable" if image.error else "labelled").inc()
        except Refused as error:
            code = str(error.code)
            raise
        finally:
            self._ongoing.dec()
            self._at_work -= 1
            self._requests.labels(code).inc()
            self._seconds.observe(time.perf_counter() - start)

    def text(self) -> bytes:
        """Returns them in the form of Prometheus."""
        text: bytes = generate_latest(self._registry)
        return text
