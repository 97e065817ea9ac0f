"""An S3 server in this process whose bucket is quickly put back, and which fails by rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import unquote
from wsgiref.util import setup_testing_defaults

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.test import run_wsgi_app

from tests.support.s3 import Answer, FaultProxy, Faults, Request

BUCKET = "runs"
#: What the server does to a request, and whether only after it has been carried out.
ANSWERS: dict[str, tuple[str, bool]] = {
    "403": ("403", False),
    "404": ("404", False),
    "409": ("409", False),
    "412": ("412", False),
    "429": ("429", False),
    "500": ("error_500", False),
    "503": ("slow_down", False),
    "time-out": ("stall", False),
    "truncated": ("truncate", True),
    "reset": ("reset", False),
    "lost": ("reset", True),  # the request is carried out, its answer does not arrive
}
OPERATIONS = {"GET": "get", "HEAD": "head", "PUT": "put", "POST": "put", "DELETE": "delete"}


class Ask(NamedTuple):
    """What a request asks: of which kind of file, and whether there is such a file."""

    operation: str
    file: str
    found: bool

    def __str__(self) -> str:
        return f"{self.operation} {self.file}" + ("" if self.found else " (missing)")


@dataclass(frozen=True)
class Rule:
    """Which requests are answered wrongly: the first of each that asks one of these, or all."""

    asks: frozenset[Ask]
    answer: str
    always: bool


def kind(key: str) -> str:
    """Returns the kind of a file: its name without numbers and hashes."""
    return re.sub(r"[0-9a-f]{16,}|\d+", "*", key)


class FaultyS3(FaultProxy):
    """moto behind the connections of FaultProxy, with one bucket.

    asked: what was asked and of which key, in order. struck: what the rule was applied to.
    """

    def __init__(self, stall_seconds: float) -> None:
        super().__init__("", Faults(stall_seconds=stall_seconds), None, False)
        self._app = create_backend_app("s3")
        self._backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self._backend.create_bucket(BUCKET, "us-east-1")
        self._keys: Any = self._backend.buckets[BUCKET].keys
        self._put_back: dict[str, tuple[Any, bytes]] = {}
        self.start({})

    def start(self, files: Mapping[str, bytes], rule: Rule | None = None) -> None:
        """Puts the bucket back, and fails by another rule from now on."""
        for key in [key for key in self._keys if key not in files]:
            self._keys.pop(key)
        for key, content in files.items():
            if self._put_back.get(key) != (self._keys.get(key), content):
                self._backend.put_object(BUCKET, key, content)
                self._put_back[key] = (self._keys.get(key), content)
        self.obey(rule)

    def obey(self, rule: Rule | None) -> None:
        """Fails by another rule from now on, and forgets what was asked."""
        self.behave(self.faults)
        self.rule = rule
        self.struck: set[Ask] = set()
        self.asked: list[tuple[Ask, str]] = []

    def hide(self) -> None:
        """Refuses to list, and to tell of a missing file."""
        refused = (403, "AccessDenied")
        self.behave(self.faults, lambda asked: None if asked.key else refused, hide_missing=True)

    def files(self) -> dict[str, bytes]:
        """Returns the content of the bucket."""
        return {key: self._keys[key].value for key in sorted(self._keys)}

    def deleted(self) -> set[str]:
        """Returns the files that were to be deleted while they existed."""
        return {key for ask, key in self.asked if ask.operation == "delete" and ask.found}

    def note(self, request: Request) -> tuple[str, bool]:
        """Remembers a request and says what goes wrong with it."""
        super().note(request)
        ask = self._ask_of(request)
        with self._lock:
            self.asked.append((ask, request.key))
            rule = self.rule
            if rule is None or ask not in rule.asks or (ask in self.struck and not rule.always):
                return "", False
            self.struck.add(ask)
            return ANSWERS[rule.answer]

    def _ask_of(self, request: Request) -> Ask:
        if request.key:
            operation = OPERATIONS[request.method]
            return Ask(
                operation, kind(request.key), operation == "put" or request.key in self._keys
            )
        prefix = request.query.get("prefix", "")
        found = any(key.startswith(prefix) for key in list(self._keys))
        return Ask("delete" if "delete" in request.query else "list", kind(prefix), found)

    def _ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        path, _, query = handler.path.partition("?")
        environ = {
            "REQUEST_METHOD": handler.command,
            "PATH_INFO": unquote(path, "latin-1"),
            "REQUEST_URI": handler.path,
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": handler.headers.get("Content-Type", ""),
            "wsgi.input": BytesIO(body),
        }
        environ |= {
            f"HTTP_{name.upper().replace('-', '_')}": value
            for name, value in handler.headers.items()
            if name.lower() not in {"content-length", "content-type", "transfer-encoding"}
        }
        setup_testing_defaults(environ)
        content, status, headers = run_wsgi_app(self._app, environ, buffered=True)
        return Answer(int(status.split()[0]), tuple(headers.items()), b"".join(content))
