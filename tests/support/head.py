"""A head node on loopback with a job server, as a user would start one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.service import free_port

BIN = Path(sys.executable).parent
#: Seconds after which a job counts as lost.
LIMIT = 1800


class Head:
    """A head node with token authentication, started in a project's folder.

    scratch: a folder for its token. options: of ``ray start``.
    """

    def __init__(self, project: Path, scratch: Path, options: Sequence[str]) -> None:
        self.project = project
        self.dashboard, self.agent, self.metrics = (free_port() for _ in range(3))
        (scratch / "token").write_text("a-token-of-this-head-and-of-nobody-else")
        others = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        self.env = {
            **others,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(scratch / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        # With --block, so that it can be ended alone: `ray stop` would end every Ray there is.
        self.process = subprocess.Popen(
            [
                *("ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1"),
                *("--dashboard-host=127.0.0.1", f"--dashboard-port={self.dashboard}"),
                f"--port={free_port()}",
                f"--dashboard-agent-listen-port={self.agent}",
                f"--metrics-export-port={self.metrics}",
                *options,
            ],
            cwd=project,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs ``ray job submit`` and follows the job to its end."""
        return subprocess.run(
            ["ray", "job", "submit", f"--address=http://127.0.0.1:{self.dashboard}", *arguments],
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def is_up(self) -> bool:
        """Whether dashboard and agent, which takes the jobs, listen."""
        try:
            for port in (self.dashboard, self.agent):
                socket.create_connection(("127.0.0.1", port), 2).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """Ends it and all that it started."""
        for end in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, end)
                self.process.wait(5)
