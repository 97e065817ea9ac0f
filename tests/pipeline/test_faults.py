"""Processes killed, memory and disks that run out: the same bytes, or a sentence."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pyarrow.parquet as pq
import pytest

from sparc_dist.pipeline.executor import using
from sparc_dist.pipeline.in_process import InProcess
from tests.support.command import COMMAND, outcome_hashes, sparc_dist_process
from tests.support.running import go
from tests.support.waiting import until

pytestmark = pytest.mark.slow  # each starts models or Ray several times

KILLS = 3
SECONDS = 300


@pytest.fixture
def begun(original: Path, tmp_path: Path) -> Path:
    """The config of the finished run, with nothing done yet; it runs on Ray, small as it is."""
    shutil.copy(original / "manifest.csv", tmp_path)
    config = json.loads((original / "config.yaml").read_text())
    config["resources"]["executor"] = "ray"
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    return tmp_path


def files(run: Path) -> set[Path]:
    return {path for path in run.rglob("*") if path.suffix in (".json", ".parquet", ".npz")}


def _wait_for_files(run: Path, count: int, driver: subprocess.Popen[bytes], seconds: float) -> None:
    """Until there are so many, or the driver has nothing more to write."""
    assert until(lambda: len(files(run)) >= count or driver.poll() is not None, seconds)


def workers(doing: str) -> Iterator[int]:
    """The processes of Ray's workers that do this; Ray writes it into their command lines."""
    for process in Path("/proc").iterdir():
        try:
            title = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if title.startswith("ray::") and doing in title and _is_ours(int(process.name)):
            yield int(process.name)


def _is_ours(pid: int) -> bool:
    """Whether a process descends from this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.partition("PPid:")[2].split()[0])
    return False


def test_drivers_killed_at_random_moments_lose_nothing(
    original: Path, begun: Path, cluster: str
) -> None:
    chance = random.Random(4)
    end = time.monotonic() + SECONDS
    kills = 0
    while kills < KILLS:
        driver = subprocess.Popen(
            [COMMAND, "run", begun / "config.yaml"],
            env={**os.environ, "RAY_ADDRESS": cluster},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        more = chance.choice([0, 1, 1, 2, 3, 5])
        count = len(files(begun / "run")) + more
        _wait_for_files(begun / "run", count, driver, end - time.monotonic())
        time.sleep(chance.uniform(0, 0.5 if more else 5))
        if driver.poll() is not None:  # it was done before it could be killed: from the start
            shutil.rmtree(begun / "run")
            continue
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        kills += 1
        assert time.monotonic() < end
    with using(InProcess()):
        assert not go(begun).failures
    assert outcome_hashes(begun / "run") == outcome_hashes(original / "run")
    # Whatever half-written file is left, tools that read a folder pass it over.
    for folder in ("scores", "final"):
        assert pq.read_table(begun / "run" / "scenes" / "tiny" / folder).num_rows == 60


@pytest.mark.usefixtures("cluster")
def test_workers_killed_at_work_are_replaced(original: Path, begun: Path) -> None:
    """SIGKILL is what the kernel sends when memory runs out."""
    runner = Thread(target=go, args=[begun])
    runner.start()
    done = begun / "run" / "scenes" / "tiny" / "done"
    assert until(lambda: list(workers("ScoreShard")), SECONDS)
    killed = []
    for pid in [*workers("ScoreShard"), *workers("DecodeShard")]:
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)
    assert killed
    assert until(done.exists, SECONDS)
    runner.join()
    assert outcome_hashes(begun / "run") == outcome_hashes(original / "run")


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "begins"), [("raylet", "tiny/done"), ("gcs_server", "dataset.json")]
)
def test_the_end_of_ray_itself_is_a_line_and_the_run_goes_on(
    original: Path, begun: Path, name: str, begins: str
) -> None:
    """The kernel may choose any process when memory runs out."""
    driver = subprocess.Popen(
        [COMMAND, "run", begun / "config.yaml"],
        env={**os.environ, "RAY_ADDRESS": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert until((begun / "run" / "scenes" / begins).exists, SECONDS)
    (process,) = children(driver.pid, name)
    os.kill(process, signal.SIGKILL)
    said = driver.communicate(timeout=SECONDS)[1]
    assert driver.returncode == 2
    reason = f"Ray's {name} was killed, most likely for lack of memory"
    assert said.splitlines()[-1] == f"sparc-dist: {reason}; run the same command again to resume."
    assert not go(begun).failures
    assert outcome_hashes(begun / "run") == outcome_hashes(original / "run")


JOINED = """
import os, signal, subprocess, sys, time
from pathlib import Path
from sparc_dist.pipeline import configure_ray
configure_ray()
from ray.cluster_utils import Cluster

command, folder, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": "25"}
env = {**os.environ, **patience, "RAY_ADDRESS": cluster.address}
driver = subprocess.Popen([command, "run", folder / "config.yaml"], env=env)
while driver.poll() is None and not list(folder.glob("run/scenes/tiny/done/*")):
    time.sleep(0.02)
os.kill(cluster.head_node.all_processes[name][0].process.pid, signal.SIGKILL)
print("code:", driver.wait())
"""


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("raylet", "Ray's raylet on this machine ended"),
        ("gcs_server", "The head of the Ray cluster"),
    ],
)
def test_the_end_of_a_joined_ray_is_a_line(begun: Path, name: str, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOINED, COMMAND, begun, name],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "code: 2" in done.stdout, done.stderr
    assert f"\nsparc-dist: {line}" in done.stderr


def children(parent: int, name: str) -> list[int]:
    """The children of a process with this program."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
    return [int(pid) for pid, program in rows if program == name]


NODES = """
import sys, threading, time
from pathlib import Path
from sparc_dist.pipeline import configure_ray
configure_ray()
import ray
from ray.cluster_utils import Cluster
from tests.support.running import go

folder = Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
ray.init(address=cluster.address, log_to_driver=False, logging_level=50)
outcomes = []
runner = threading.Thread(target=lambda: outcomes.append(go(folder)))
runner.start()
while runner.is_alive() and not list(folder.glob("run/scenes/tiny/done/*")):
    time.sleep(0.02)
assert runner.is_alive(), "the run ended before its node could be killed"
cluster.remove_node(node, allow_graceful=False)
runner.join()
print("failures:", outcomes[0].failures)
"""


def test_a_node_killed_in_the_middle_changes_no_byte(original: Path, begun: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NODES, begun],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert "failures: {}" in done.stdout, done.stderr
    assert outcome_hashes(begun / "run") == outcome_hashes(original / "run")


def test_a_full_disk_is_a_sentence_and_the_run_goes_on_when_there_is_space(
    original: Path, begun: Path
) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(begun / "run")]
    (begun / "run").mkdir()
    if subprocess.run(["unshare", "-m", *mount], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    # In a mount namespace of its own, with a Ray of its own; what was written is saved from it.
    steps = [
        " ".join(mount),
        f"{COMMAND} run {begun}/config.yaml",
        "code=$?",
        f"cp -r {begun}/run {begun}/saved",
        "exit $code",
    ]
    full = subprocess.run(
        ["unshare", "-m", "sh", "-c", "; ".join(steps)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "RAY_ADDRESS": ""},
        check=False,
    )
    assert full.returncode in (1, 2)
    said = full.stdout + full.stderr
    assert f"There is no space left to write {begun}/run/" in said
    assert "Traceback" not in said
    shutil.rmtree(begun / "run")
    (begun / "saved").rename(begun / "run")
    assert not go(begun).failures
    assert outcome_hashes(begun / "run") == outcome_hashes(original / "run")


def test_a_machine_without_memory_ends_the_run_with_a_sentence(begun: Path) -> None:
    """Ray ends workers when little memory is left; here it is made to think so always."""
    scarce = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "50"}
    done = sparc_dist_process("run", begun / "config.yaml", env=scarce)
    assert done.returncode == 1
    assert "A machine ran out of memory repeatedly; lower resources.scorers" in done.stdout
    assert "OOM" not in done.stdout + done.stderr


HEAD = """
import sys
from pathlib import Path
from sparc_dist.pipeline import configure_ray
configure_ray()
import ray
from ray._private.state import state
from ray.cluster_utils import Cluster
from tests.support.running import go

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
node = cluster.add_node(num_cpus=1)
ray.init(address=cluster.address, log_to_driver=False, logging_level=50)
print("failures:", go(Path(sys.argv[1])).failures)
scorers = [actor for actor in state.actor_table(None).values() if "ScoreShard" in str(actor)]
print("on the worker:", {actor["Address"]["NodeID"] for actor in scorers} == {node.node_id})
"""


def test_scorers_stay_off_a_head_without_cpus_and_leave_the_only_cpu_to_decoders(
    original: Path, begun: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD, begun],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.stdout.splitlines() == ["failures: {}", "on the worker: True"], done.stderr
    assert outcome_hashes(begun / "run") == outcome_hashes(original / "run")
