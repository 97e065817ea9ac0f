"""HTTP: who may ask the service what, the form of its answers, its counters and its description."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel

from sparc_dist.serving.labeler import LabelledImage
from sparc_dist.serving.settings import TOKEN, ServiceSettings

_BEARER = HTTPBearer(auto_error=False, description=f"only if {TOKEN} is set where it runs")
#: The version of Prometheus's text form.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: The upper ends of the histogram's bins.
SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
code { font-size: 1.05em; }
"""


class Refused(Exception):
    """A request that is answered with an error: an HTTP status and the reason."""

    def __init__(self, code: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.code, self.reason, self.headers = code, reason, headers


async def authorised(
    given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
) -> None:
    """Raises Refused unless the request has the token, if there is one."""
    token = os.environ.get(TOKEN, "")
    shown = given.credentials if given else ""
    # In constant time: how long it takes must not say how much of it was right.
    if token and not hmac.compare_digest(shown.encode(), token.encode()):
        reason = "The bearer token is missing or wrong."
        raise Refused(401, reason, {"WWW-Authenticate": "Bearer"})


async def pictures_of(request: Request, limits: ServiceSettings) -> list[tuple[str, bytes]]:
    """Returns name and bytes of each image of a request; raises Refused beyond the limits."""
    limited = _limited(request, limits.max_bytes)
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return [("image", await limited.body())]
    # Starlette raises an error with status 400 for a form with more, with other fields or broken.
    async with limited.form(max_files=limits.max_images, max_fields=0) as form:
        found = [
            (upload.filename or "image", await upload.read())
            for _, upload in form.multi_items()
            if not isinstance(upload, str)
        ]
    if not found:
        raise Refused(422, "The form has no file; send each image as one.")
    return found


def _limited(request: Request, most: int) -> Request:
    """Returns the request with a body that raises Refused as soon as it is too long."""
    too_large = Refused(
        413, f"The request has more than {most:,} bytes; send fewer or smaller images."
    )
    if int(request.headers.get("content-length") or 0) > most:
        raise too_large
    seen = 0

    async def receive() -> Any:
        nonlocal seen
        message = await request.receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise too_large
        return message

    return Request(request.scope, receive)


class ImageLabels(BaseModel):
    """The labels of one image; see ``LabelledImage``."""

    name: str
    labels: list[str]
    probabilities: dict[str, float | None]
    scores: dict[str, float]
    because: dict[str, list[tuple[str, float]]]
    error: str | None


class Labels(BaseModel):
    """The labels of the images of a request, in its order."""

    images: list[ImageLabels]


class Classes(BaseModel):
    """What a labeler is."""

    classes: list[str]
    method: str
    fitted_on: int


class Health(BaseModel):
    """That a replica answers."""

    status: str


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


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


def page_of(schema: Mapping[str, Any]) -> str:
    """Returns the page of an OpenAPI schema."""
    info = schema["info"]
    title = escape(f"{info['title']} {info['version']}")
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
        f"<p>{escape(info['description'])} The schema is "
        '<a href="openapi.json">openapi.json</a>.</p>\n' + "\n".join(_paths(schema)) + "\n</html>\n"
    )


def _paths(schema: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation.get('description', ''))}</p>"
            kinds = operation.get("requestBody", {}).get("content", {})
            if kinds:
                yield f"<p>Body: <code>{escape(', '.join(kinds))}</code></p>"
            answers = operation.get("responses", {}).items()
            rows = (f"<li>{code}: {escape(answer['description'])}</li>" for code, answer in answers)
            yield f"<ul>{''.join(rows)}</ul>"
