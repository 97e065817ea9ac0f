"""The service as a user starts it, and a client for it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.answer import Answer
from tests.support.command import COMMAND

TOKEN = "not-so-secret"


@dataclass(frozen=True)
class Service:
    """A running service. lines: what it has printed until it answered."""

    port: int
    process: subprocess.Popen[str]
    lines: list[str]

    def ask(
        self,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = TOKEN,
    ) -> Answer:
        """POST if there is a body, else GET."""
        given = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body, given)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def label(self, *images: bytes) -> Answer:
        """Labels one image as the body, several as a form."""
        if len(images) == 1:
            return self.ask("/v1/label", images[0])
        return self.form({f"{i}.jpg": content for i, content in enumerate(images)})

    def form(self, files: Mapping[str, bytes], fields: Mapping[str, str] | None = None) -> Answer:
        """Posts a multipart form."""
        parts = [
            f'--edge\r\nContent-Disposition: form-data; name="images"; filename="{name}"'
            "\r\nContent-Type: image/jpeg\r\n\r\n".encode()
            + content
            + b"\r\n"
            for name, content in files.items()
        ]
        parts += [
            f'--edge\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in (fields or {}).items()
        ]
        kind = {"Content-Type": "multipart/form-data; boundary=edge"}
        return self.ask("/v1/label", b"".join(parts) + b"--edge--\r\n", kind)

    def replicas(self) -> list[int]:
        """The process ids of its replicas."""
        below = processes_below(self.process.pid)
        return [pid for pid in below if b"ServeReplica" in _read(pid, "cmdline")]


@contextmanager
def service(labeler: Path, **environment: str) -> Iterator[Service]:
    """Starts ``sparc-dist serve`` on a free port; it ends with the block."""
    port = free_port()
    command = [str(COMMAND), "serve", str(labeler), "--port", str(port)]
    env = {**os.environ, "RAY_ADDRESS": "", "SPARC_TOKEN": TOKEN, **environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        yield Service(port, process, lines)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def processes_below(root: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have."""
    for thread in os.listdir(f"/proc/{root}/task") if os.path.exists(f"/proc/{root}") else ():
        for child in map(int, _read(root, f"task/{thread}/children").split()):
            yield child
            yield from processes_below(child)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""
