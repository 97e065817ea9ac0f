"""A real web server on loopback; it counts what it is asked, and spoils or holds back answers."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Web(ThreadingHTTPServer):
    """files: by path. broken: so many of the next GETs stop half way. status: instead of 200.

    go_on: while it is cleared, GETs wait half way; half_way is set when one has come there.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.place = f"http://127.0.0.1:{self.server_address[1]}"
        self.files: dict[str, bytes] = {}
        self.headers: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.paths: Counter[str] = Counter()
        self.broken, self.status = 0, 200
        self.half_way, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def handle_error(self, *_: object) -> None:
        """Clients may go away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        web: Any = self.server
        web.asked[self.command] += 1
        web.paths[self.path] += 1
        content = web.files.get(self.path.partition("?")[0])
        status = 404 if content is None else web.status
        body = content if content is not None and status == 200 else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        for name, value in web.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        half = len(body) // 2
        self.wfile.write(body[:half])
        web.half_way.set()
        web.go_on.wait()
        if web.broken:
            web.broken -= 1
            self.close_connection = True
            return
        self.wfile.write(body[half:])

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextmanager
def web_server() -> Iterator[Web]:
    """Serve until the block ends."""
    with Web() as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield web
        finally:
            web.go_on.set()
            web.shutdown()
            thread.join()
