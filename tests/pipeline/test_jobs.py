"""Jobs on a real cluster with job server and token authentication, submitted as a user would."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml

from tests.support.command import outcome_hashes
from tests.support.waiting import until

pytestmark = pytest.mark.slow  # each starts models or Ray several times

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NINE = [f"tiny-{number}" for number in range(9)]
SECONDS = 300


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


class Head:
    """A head node on loopback with two logical GPUs, started in a project's folder."""

    def __init__(self, project: Path, scratch: Path) -> None:
        self.project = project
        self.dashboard, self.agent, self.metrics = (free_port() for _ in range(3))
        (scratch / "token").write_text("a-token-of-the-tests-and-of-nobody-else")
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
                *("--num-cpus=4", "--num-gpus=2", "--dashboard-host=127.0.0.1"),
                *(f"--port={free_port()}", f"--dashboard-port={self.dashboard}"),
                f"--dashboard-agent-listen-port={self.agent}",
                f"--metrics-export-port={self.metrics}",
            ],
            cwd=project,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``ray job submit``, followed to the end."""
        return subprocess.run(
            ["ray", "job", "submit", f"--address=http://127.0.0.1:{self.dashboard}", *arguments],
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
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

    def prometheus(self) -> str:
        url = f"http://127.0.0.1:{self.metrics}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            return str(page.read().decode())

    @contextmanager
    def watched(self) -> Iterator[set[str]]:
        """The names of all metrics that Prometheus would find in the meantime."""
        seen: set[str] = set()
        over = Event()

        def watch() -> None:
            while not over.wait(1):
                with suppress(OSError):
                    seen.update(re.findall(r"^(\w+){", self.prometheus(), re.M))

        watcher = Thread(target=watch)
        watcher.start()
        try:
            yield seen
        finally:
            over.set()
            watcher.join()

    def stop(self) -> None:
        for end in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self.process.pid, end)
                self.process.wait(5)


@pytest.fixture(scope="module")
def head(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A project's folder with its sparc.yaml, and a head that was started in it."""
    project = tmp_path_factory.mktemp("project")
    for name in ("sparc_dist", "jobs"):
        shutil.copytree(ROOT / name, project / name)
    config = yaml.safe_load((original / "config.yaml").read_text())
    config["output"] = str(project / "run")
    config["backbones"] = [{"name": name, "model": "sparc-tiny"} for name in NINE]
    config["resources"] = {}
    (project / "sparc.yaml").write_text(json.dumps(config))
    head = Head(project, tmp_path_factory.mktemp("head"))
    try:
        assert until(head.is_up, SECONDS)
        yield head
    finally:
        head.stop()


def test_nine_backbones_as_a_job(head: Head, original: Path) -> None:
    with head.watched() as seen:
        done = head.submit("--working-dir", ".", "--", "python", "jobs/run_all.py")
    assert done.returncode == 0, done.stdout + done.stderr
    expected = outcome_hashes(original / "run")
    for name in NINE:
        assert outcome_hashes(head.project / "run", f"scenes/{name}") == expected
        assert f"scenes × {name}  scoring  60/60 images" in done.stdout
    assert "| scenes | SPARC |" in done.stdout
    assert (head.project / "run" / "report" / "index.html").exists()
    # As Prometheus finds it; workers report now and then.
    for name in NINE:
        line = rf'^ray_sparc_dist_images_done_total{{.*"{name}",.*stage="scoring".*}} 60\.0$'
        assert until(lambda: re.search(line, head.prometheus(), re.M), 30)  # noqa: B023
    # What is set and not counted is forgotten some time after it was set.
    assert {"ray_sparc_dist_images_per_second", "ray_sparc_dist_stage_seconds"} <= seen


def test_the_short_form_where_the_head_was_started_in_the_projects_folder(head: Head) -> None:
    done = head.submit("jobs/run_all.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The run was already finished; nothing was missing." in done.stdout


def test_without_the_token_no_job_is_taken(head: Head) -> None:
    stranger = {**head.env, "RAY_AUTH_TOKEN": "not-the-token"}
    stranger.pop("RAY_AUTH_TOKEN_PATH")
    known, head.env = head.env, stranger
    try:
        done = head.submit("--", "python", "-c", "print('a stranger was here')")
    finally:
        head.env = known
    assert done.returncode != 0
    assert "a stranger was here\n" not in done.stdout


@pytest.mark.parametrize("job", ["score", "reduce", "report"])
def test_the_stages_as_scripts(head: Head, job: str) -> None:
    """Each finds the config and the run; that a stage does its own part is tested in test_units."""
    done = subprocess.run(
        [f"jobs/{job}.py"],
        cwd=head.project,
        env=head.env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert str(head.project / "run") in done.stdout
