"""A real S3 server on loopback that keeps the conditions of conditional writes: moto.

rclone (``s3.py``) ignores them. Before moto stands a proxy that hands on one request at a time:
moto itself checks and writes in two steps.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.s3 import SECONDS_TO_START, FaultProxy, S3Server, fault_proxy

BUCKET = "conditional"


@contextmanager
def moto_server() -> Iterator[FaultProxy]:
    """A proxy before a new moto with one empty bucket, ``BUCKET``."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Each server of this process has a port of its own; none is told to others.
            env={name: value for name, value in os.environ.items() if name != "MOTO_PORT"},
        )
        try:
            with fault_proxy(_endpoint(process, log.fileno())) as proxy:
                _create_bucket(proxy.endpoint)
                yield proxy
        finally:
            process.kill()
            process.wait()


def moto_environment(endpoint: str) -> Mapping[str, str]:
    """What a process needs to reach the server."""
    return S3Server(endpoint, Path(), "AKIAMOTO", "secret-of-moto").environment()


def _endpoint(process: subprocess.Popen[bytes], log: int) -> str:
    until = time.monotonic() + SECONDS_TO_START
    while process.poll() is None and time.monotonic() < until:
        said = os.pread(log, 2**16, 0).decode(errors="replace")
        if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", said):
            return found[1]
        time.sleep(0.02)
    said = os.pread(log, 2**16, 0).decode(errors="replace")
    raise RuntimeError(f"moto does not answer (exit code {process.poll()}):\n{said}")


def _create_bucket(endpoint: str) -> None:
    from urllib.request import Request, urlopen

    # moto checks no signature, but the header says which service is meant.
    scope = "AKIAMOTO/20260101/us-east-1/s3/aws4_request"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, Signature=0"}
    urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT", headers=headers), timeout=20).close()
