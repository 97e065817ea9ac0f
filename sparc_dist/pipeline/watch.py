"""Watches over Ray itself: without it, Ray ends the driver silently and with code 1."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray._private import worker

from sparc_dist.errors import RESUME
from sparc_dist.pipeline.progress import repeated

#: The processes of a local Ray without which no work goes on.
VITAL = ("raylet", "gcs_server")
OWN_SECONDS, JOINED_SECONDS = 0.1, 5
#: Ray waits so long for a head that is gone; clusters whose head may return set it higher.
PATIENCE_VARIABLE, PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s", "60"
#: We end that much earlier, because a look at the head takes some seconds.
EARLIER = 15


@contextmanager
def watched(reach: Callable[[str], None]) -> Iterator[None]:
    """Ends this process with one line and code 2 if the Ray that it uses dies within the block.

    reach: raises OSError if no Ray answers at an address.
    """
    node = worker._global_node
    if node is None:  # a client of Ray, which gets exceptions
        yield
    elif node.all_processes:
        with repeated(lambda: _check_own(node), OWN_SECONDS):
            yield
    else:
        with repeated(_Joined(node, reach).check, JOINED_SECONDS):
            yield


def _check_own(node: Any) -> None:
    """Looks after the processes of a Ray that was started here."""
    for name, process in node.dead_processes():
        if name in VITAL:
            killed = process.returncode == -signal.SIGKILL
            _end(
                f"Ray's {name} was killed, most likely for lack of memory"
                if killed
                else f"Ray's {name} ended with code {process.returncode}; its logs are in "
                f"{node.get_logs_dir_path()}"
            )


class _Joined:
    """Looks after the head of a cluster that was joined, and its raylet on this machine."""

    def __init__(self, node: Any, reach: Callable[[str], None]) -> None:
        self._node, self._reach = node, reach
        self._seen = time.monotonic()
        self._patience = float(os.environ.get(PATIENCE_VARIABLE, PATIENCE)) - EARLIER

    def check(self) -> None:
        """Ends this process if one of the two is gone."""
        if not _listens(self._node.raylet_socket_name):
            _end("Ray's raylet on this machine ended, most likely killed for lack of memory")
        try:
            self._reach(self._node.gcs_address)
            self._seen = time.monotonic()
        except OSError:
            if time.monotonic() - self._seen > self._patience:
                _end(f"The head of the Ray cluster, {self._node.gcs_address}, does not answer")


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(JOINED_SECONDS)
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # busy
            return True
        return True


def _end(reason: str) -> None:
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        return  # a SIGTERM, which stops us as well, ended it
    print(f"sparc-dist: {reason}; {RESUME}", file=sys.stderr, flush=True)
    os._exit(2)  # whatever waits for Ray now, waits in vain
