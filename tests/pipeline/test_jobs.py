"""Jobs on a real cluster with job server and token authentication, submitted as a user would."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml

from tests.support.command import outcome_hashes
from tests.support.head import Head
from tests.support.waiting import until

pytestmark = pytest.mark.slow  # each starts models or Ray several times

ROOT = Path(__file__).parents[2]
NAMES = [f"tiny-{number}" for number in range(3)]
SECONDS = 300


class WatchedHead(Head):
    """A head with two logical GPUs, whose metrics are looked at."""

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


@pytest.fixture(scope="module")
def head(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedHead]:
    """A project's folder with its sparc.yaml, and a head that was started in it."""
    project = tmp_path_factory.mktemp("project")
    for name in ("sparc_dist", "jobs"):
        shutil.copytree(ROOT / name, project / name)
    config = yaml.safe_load((original / "config.yaml").read_text())
    config["output"] = str(project / "run")
    config["backbones"] = [{"name": name, "model": "sparc-tiny"} for name in NAMES]
    config["resources"] = {}
    (project / "sparc.yaml").write_text(json.dumps(config))
    resources = ("--num-cpus=4", "--num-gpus=2")
    head = WatchedHead(project, tmp_path_factory.mktemp("head"), resources)
    try:
        assert until(head.is_up, SECONDS)
        yield head
    finally:
        head.stop()


def test_several_backbones_as_a_job(head: WatchedHead, original: Path) -> None:
    with head.watched() as seen:
        done = head.submit("--working-dir", ".", "--", "python", "jobs/run_all.py")
    assert done.returncode == 0, done.stdout + done.stderr
    expected = outcome_hashes(original / "run")
    for name in NAMES:
        assert outcome_hashes(head.project / "run", f"scenes/{name}") == expected
        assert f"scenes × {name}  scoring  60/60 images" in done.stdout
    assert "| scenes | SPARC |" in done.stdout
    assert (head.project / "run" / "report" / "index.html").exists()
    # As Prometheus finds it; workers report now and then.
    for name in NAMES:
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
