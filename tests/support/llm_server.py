"""A real HTTP server that speaks the protocol of chat completions, well or badly as told."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from sparc_dist.prompts.llm.endpoint import REPLY_LIMIT, Endpoint

KEY = "sk-Tresor-0123456789"
GOOD = "A cat sleeps on a sofa.\nA dog looks out of a car."

Behaviour = Callable[["Handler", str], None]


@dataclass
class Model:
    """What the server does with its requests, in turn (the last for ever), and what it saw."""

    url: str
    behaviours: list[Behaviour] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    test_is_over: Event = field(default_factory=Event)

    def endpoint(self, timeout_seconds: float = 5) -> Endpoint:
        return Endpoint(f"{self.url}/v1", "tiny", KEY, timeout_seconds, 1, 0.01)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model = self.model
        model.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
        question = body["messages"][-1]["content"]
        model.questions.append(question)
        behaviours = model.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self, question)

    def do_GET(self) -> None:
        """What a redirected POST may turn into."""
        self.model.requests.append({"path": self.path, "headers": dict(self.headers)})
        self.respond(chat(GOOD))

    @property
    def model(self) -> Model:
        assert isinstance(self.server, Server)
        return self.server.model

    def respond(self, content: bytes, status: int = 200, location: str | None = None) -> None:
        """An answer that echoes the key wherever a server can."""
        self.send_response(status, self.headers.get("Authorization", "no key"))
        self.send_header("X-Echo", self.headers.get("Authorization", "no key"))
        self.send_header("Content-Length", str(len(content)))
        if location:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Silence."""


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = Model(f"http://127.0.0.1:{self.server_address[1]}")

    def handle_error(self, *_: object) -> None:
        """Clients that hang up are what some tests are about."""


@contextmanager
def serving() -> Iterator[Model]:
    """A server for as long as a test takes."""
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.model
        server.model.test_is_over.set()
        server.shutdown()
        thread.join()


def chat(content: object) -> bytes:
    return json.dumps(
        {"choices": [{"message": {"role": "assistant", "content": content}}]}
    ).encode()


def says(content: object) -> Behaviour:
    return lambda handler, _: handler.respond(chat(content))


def sends(content: bytes, status: int = 200, location: str | None = None) -> Behaviour:
    return lambda handler, _: handler.respond(content, status, location)


def fails(status: int) -> Behaviour:
    return lambda handler, _: handler.respond(
        b'{"error": "wrong key: ' + handler.headers["Authorization"].encode() + b'"}', status
    )


def writes_captions(handler: Handler, question: str) -> None:
    lists = re.findall(r"^\d+\. (.+)$", question, re.MULTILINE)
    pairs = (names.split("; ")[:2] for names in lists)
    handler.respond(chat("\n".join(f"A {a} right beside a {b}." for a, b in pairs)))


def stalls(handler: Handler, _: str) -> None:
    handler.model.test_is_over.wait(10)


def drips(handler: Handler, content: bytes) -> None:
    """Far too slow for the hasty; the patient would get a right answer."""
    for byte in content:
        if not handler.model.test_is_over.wait(0.02):
            handler.wfile.write(bytes([byte]))


def drips_its_body(handler: Handler, _: str) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
    drips(handler, b" " * 100 + chat(GOOD))


def drips_its_headers(handler: Handler, _: str) -> None:
    drips(handler, b"HTTP/1.0 200 OK\r\nX-Long: " + b"x" * 100 + b"\r\n\r\n")
    handler.wfile.write(chat(GOOD))


def never_stops_talking(handler: Handler, _: str) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + b" " * (REPLY_LIMIT + 1))
    handler.model.test_is_over.wait(10)


def closes_half_way(handler: Handler, _: str) -> None:
    content = chat(GOOD)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])


def closes_at_once(handler: Handler, _: str) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)


def breaks_the_protocol(handler: Handler, _: str) -> None:
    handler.wfile.write(handler.headers["Authorization"].encode() + b"\r\n\r\n")


def knows_company(company: dict[str, str]) -> Behaviour:
    def answer(handler: Handler, question: str) -> None:
        asked = re.search(r'same photo as "(.+)"', question)
        assert asked
        handler.respond(chat(company.get(asked[1], "none")))

    return answer
