"""The service: FastAPI in a replica of Ray Serve that holds the model.

One deployment, so that an image takes one hop. The event loop only speaks HTTP: images are decoded
in a pool of threads, and the model works in a thread of its own. No URL is ever fetched. Call
``configure_serve`` before this module is imported.
"""

# No `from __future__ import annotations`: FastAPI must see types, not names, in what Ray pickles.

import asyncio
import json
import logging
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

import numpy as np
from fastapi import Depends, FastAPI, Request, Response
from ray import serve
from ray.serve.config import BackpressureConfig

from sparc_dist import __version__
from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import BadImage
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.serving.http import (
    CONTENT_TYPE,
    Classes,
    Health,
    Labels,
    Problem,
    Refused,
    ServiceMetrics,
    authorised,
    page_of,
    pictures_of,
)
from sparc_dist.serving.labeler import LabelledImage, Square
from sparc_dist.serving.settings import ServiceSettings, listen_on_loopback

Squares = list[Square]
#: How long a client should wait when the service is full.
RETRY_SECONDS = 1
#: How long the first image of a batch waits for others while several requests are at work.
GATHER_SECONDS = 0.01
#: The seconds after which a dead replica is noticed and a new one started.
HEALTH_SECONDS = 1.0
RESPONSES: dict[int | str, dict[str, Any]] = {
    code: {"model": Labels if code == 200 else Problem, "description": text}
    for code, text in {
        200: "the labels of each image, in the order of the request",
        401: "the bearer token is missing or wrong",
        413: "the request is larger than allowed",
        422: "no image can be read",
        503: "the service is full; try again after Retry-After",
    }.items()
}
#: OpenAPI's words for what ``label`` reads from the request itself.
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "image/*": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "images": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            },
        },
    }
}

web = FastAPI(
    title="sparc_dist",
    version=__version__,
    description="Says which of a list of classes an image shows, without labels.",
    docs_url=None,  # FastAPI's page loads its scripts from the web
    redoc_url=None,
)
Authorised = Depends(authorised)
NAME = "sparc"


# Before the class: Ray pickles the application while the class is being decorated.
def _json(content: object, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text, code, headers, "application/json")


def _count(requests: list[Squares]) -> int:
    """Returns the number of images of several requests: what limits a batch."""
    return sum(map(len, requests))


@web.get("/docs", response_class=Response, include_in_schema=False)
async def docs() -> Response:
    """Returns the description of the service as a page that works without internet."""
    return Response(page_of(web.openapi()), media_type="text/html")


@web.exception_handler(Refused)
async def _refused(_: Request, error: Refused) -> Response:
    return _json({"detail": error.reason}, error.code, error.headers)


@serve.deployment(
    backpressure_config=BackpressureConfig(status_code=503, retry_after_s=RETRY_SECONDS),
    health_check_period_s=HEALTH_SECONDS,
    logging_config={"enable_access_log": False},
)
@serve.ingress(web)
class LabelService:
    """A replica: a labeler, and what it is asked over HTTP."""

    def __init__(self, settings: ServiceSettings) -> None:
        from sparc_dist.backbones.devices import pick_device
        from sparc_dist.serving.labeler import Labeler

        device = pick_device(settings.gpus, settings.threads_each)
        named = (settings.labeler, settings.dataset, settings.backbone, settings.weights)
        listen_on_loopback()
        self._labeler = Labeler.load(*named, device)
        self._settings = settings
        self._metrics = ServiceMetrics()
        self._decoders = ThreadPoolExecutor(os.cpu_count(), "decode")
        self._model = ThreadPoolExecutor(1, "model")
        # A request must fit into one batch, whatever its images.
        self._label.set_max_batch_size(max(settings.max_batch, settings.max_images))
        blank = np.zeros((8, 8, 3), np.uint8)
        self._labeler.label([self._labeler.square(blank)])  # the first one is slow

    @web.post("/v1/label", responses=RESPONSES, openapi_extra=BODY)
    async def label(self, request: Request, _: Annotated[None, Authorised]) -> Response:
        """Labels the image in the body, or the images of a multipart form, in its order."""
        with self._metrics.request() as count:
            # Whoever is alone need not wait for others; nobody else makes a batch.
            self._label.set_batch_wait_timeout_s(GATHER_SECONDS if self._metrics.crowded else 0)
            named = await pictures_of(request, self._settings)
            images = await self._images([content for _, content in named])
            count(images)
        pairs = [(name, image) for (name, _), image in zip(named, images, strict=True)]
        if all(image.error for image in images):
            raise Refused(422, "; ".join(f"{name}: {image.error}" for name, image in pairs))
        return _json({"images": [{"name": name, **vars(image)} for name, image in pairs]})

    @web.get("/v1/classes", response_model=Classes)
    async def classes(self, _: Annotated[None, Authorised]) -> Response:
        """Returns the classes, and what the labeler is."""
        labeler = self._labeler
        facts = {"method": labeler.method, "fitted_on": labeler.fitted_on}
        return _json({"classes": labeler.classes, **facts})

    @web.get("/healthz", response_model=Health)
    async def health(self) -> Response:
        """Says that a replica has its model and answers."""
        return _json({"status": "ok"})

    @web.get("/metrics", response_class=Response)
    async def metrics(self, _: Annotated[None, Authorised]) -> Response:
        """Returns the counters of the replica that answers, as Prometheus reads them."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def _images(self, contents: list[bytes]) -> list[LabelledImage]:
        """Labels the images of one request."""
        loop = asyncio.get_running_loop()
        decoded = await loop.run_in_executor(self._decoders, self._decode, contents)
        squares = [square for square in decoded if not isinstance(square, str)]
        labelled = iter(await self._label(squares) if squares else ())
        return [LabelledImage(error=d) if isinstance(d, str) else next(labelled) for d in decoded]

    def _decode(self, contents: list[bytes]) -> list[Square | str]:
        """Returns the square of each image, or why it cannot be read."""
        found: list[Square | str] = []
        for content in contents:
            try:
                found.append(self._labeler.square(content, self._settings.max_pixels))
            except BadImage as error:
                found.append(str(error))
        return found

    # Its size and its waiting time are set above.
    @serve.batch(  # type: ignore[untyped-decorator]
        max_batch_size=1, batch_wait_timeout_s=0, batch_size_fn=_count
    )
    async def _label(self, requests: list[Squares]) -> list[list[LabelledImage]]:
        """Labels the squares of several requests as one batch."""
        loop = asyncio.get_running_loop()
        squares = [square for request in requests for square in request]
        labelled = iter(await loop.run_in_executor(self._model, self._labeler.label, squares))
        return [list(islice(labelled, len(request))) for request in requests]


def application(settings: ServiceSettings) -> serve.Application:
    """Returns the application that Ray Serve runs."""
    deployment: Any = LabelService
    return deployment.options(
        num_replicas=settings.replicas,
        max_ongoing_requests=settings.max_ongoing,
        max_queued_requests=settings.max_waiting,
        ray_actor_options={"num_cpus": settings.threads_each, "num_gpus": settings.gpus},
    ).bind(settings)


@contextmanager
def served(settings: ServiceSettings, host: str, port: int) -> Iterator[str]:
    """Provides the URL of a service that answers; it ends with the block.

    Raises UserError if a replica cannot load the labeler.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    cpus = max(os.cpu_count() or 1, settings.replicas * settings.threads_each)
    with cluster(ResourcesConfig(cpus=cpus)):
        quiet = {"log_level": "ERROR"}
        serve.start(http_options={"host": host, "port": port}, logging_config=quiet)
        try:
            _run(settings)
            yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        finally:
            serve.shutdown()


def _run(settings: ServiceSettings) -> None:
    try:
        serve.run(application(settings), name=NAME)
    except RuntimeError as error:
        # Serve has put what a replica raised, with its traceback, into a message.
        states = serve.status().applications[NAME].deployments.values()
        found = re.findall(r"UserError: (.+)", "\n".join(state.message for state in states))
        if found:
            raise UserError(found[-1]) from None
        raise UserError(
            f"The service did not start ({error}); Ray's session folder has its logs."
        ) from None
