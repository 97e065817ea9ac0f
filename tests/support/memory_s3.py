"""An S3 server on loopback that keeps its objects in memory and the conditions of puts.

rclone (``s3.py``) ignores ``If-Match`` and ``If-None-Match``. What S3 documents of the few requests
that a run makes, and nothing else; requests are carried out one at a time.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.support.s3 import (
    NO_FAULTS,
    Answer,
    FaultProxy,
    Faults,
    Request,
    S3Server,
    error,
    serving,
)

BUCKET = "conditional"
PAGE = 1000


@dataclass(frozen=True)
class Stored:
    """An object and when it was written."""

    content: bytes
    written: float

    @property
    def etag(self) -> str:
        """What identifies its content."""
        return f'"{hashlib.md5(self.content).hexdigest()}"'

    def headers(self, length: int) -> tuple[tuple[str, str], ...]:
        """Returns the headers of an answer with some of its content."""
        return (
            ("ETag", self.etag),
            ("Last-Modified", formatdate(self.written, usegmt=True)),
            ("Content-Length", str(length)),
            ("Content-Type", "application/octet-stream"),
        )


class Listed(NamedTuple):
    """A name of a listing, and its object; None for a folder."""

    name: str
    found: Stored | None


class MemoryS3(FaultProxy):
    """A server with any buckets; ``objects``: by bucket and key, such as runs/a/run.json."""

    def __init__(self, faults: Faults = NO_FAULTS) -> None:
        super().__init__("", faults, None, False)
        self.objects: dict[str, Stored] = {}

    def environment(self) -> dict[str, str]:
        """What a process needs to reach the server."""
        return S3Server(self.endpoint, Path(), "AKIAMEMORY", "secret-of-memory").environment()

    def _ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        request = Request.parse(handler.command, handler.path)
        name = f"{request.bucket}/{request.key}"
        answer = _Answers(self.objects, request, handler)
        if not request.key:
            return answer.deleted_many(body) if request.method == "POST" else answer.listed()
        if request.method == "PUT":
            return answer.put(name, body)
        if request.method == "DELETE":
            self.objects.pop(name, None)
            return _empty(204)
        return answer.get(name)


@dataclass(frozen=True)
class _Answers:
    objects: dict[str, Stored]
    request: Request
    handler: BaseHTTPRequestHandler

    def put(self, name: str, body: bytes) -> Answer:
        before, headers = self.objects.get(name), self.handler.headers
        if headers.get("If-None-Match") == "*" and before is not None:
            return error(412, "PreconditionFailed")
        if wanted := headers.get("If-Match"):
            if before is None:
                return error(404, "NoSuchKey")
            if wanted.strip('"') != before.etag.strip('"'):
                return error(412, "PreconditionFailed")
        self.objects[name] = stored = Stored(body, time.time())
        return Answer(200, (("ETag", stored.etag), *_empty(200).headers), b"")

    def get(self, name: str) -> Answer:
        stored = self.objects.get(name)
        if stored is None:
            return error(404, "NoSuchKey")
        content, status = stored.content, 200
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.handler.headers.get("Range", "")):
            if int(found[1]) >= len(content):
                return error(416, "InvalidRange")
            content, status = content[int(found[1]) : int(found[2] or len(content)) + 1], 206
        return Answer(status, stored.headers(len(content)), content)

    def listed(self) -> Answer:
        query = self.request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        root = f"{self.request.bucket}/"
        names: dict[str, Stored | None] = {}
        for key in sorted(
            name.removeprefix(root) for name in self.objects if name.startswith(root)
        ):
            if key.startswith(prefix):
                rest = key.removeprefix(prefix)
                folder, slash, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
                name = prefix + folder + slash if slash else key
                names.setdefault(name, None if slash else self.objects[root + key])
        left = [Listed(*each) for each in names.items() if each[0] > after]
        return _xml("ListBucketResult", "".join(_entries(left[:PAGE], len(left) > PAGE)))

    def deleted_many(self, body: bytes) -> Answer:
        for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            self.objects.pop(f"{self.request.bucket}/{key}", None)
        return _xml("DeleteResult", "")


def _entries(page: list[Listed], more: bool) -> Iterator[str]:
    yield f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
    if more:
        yield f"<NextContinuationToken>{escape(page[-1].name)}</NextContinuationToken>"
    for name, stored in page:
        if stored is None:
            yield f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        else:
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.written))
            yield (
                f"<Contents><Key>{escape(name)}</Key><LastModified>{when}</LastModified>"
                f"<ETag>{escape(stored.etag)}</ETag><Size>{len(stored.content)}</Size></Contents>"
            )


def _xml(name: str, inside: str) -> Answer:
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="{space}">{inside}</{name}>'
    length = str(len(body.encode()))
    headers = (("Content-Type", "application/xml"), ("Content-Length", length))
    return Answer(200, headers, body.encode())


def _empty(status: int) -> Answer:
    return Answer(status, (("Content-Length", "0"),), b"")


@contextmanager
def memory_s3() -> Iterator[MemoryS3]:
    """A server without any object."""
    with serving(MemoryS3()) as server:
        yield server
