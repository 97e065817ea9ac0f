import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import ray
import torch
from ray._private import services

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError, explain
from sparc_dist.pipeline import cluster
from sparc_dist.pipeline.cluster import scaled_capacity
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.planning import GB, Capacity


@pytest.mark.ray
def test_a_small_ray_is_started_quietly_where_there_is_none() -> None:
    program = (
        "import os\n"
        "from sparc_dist.pipeline import configure_ray\n"
        "configure_ray()\n"
        "import ray\n"
        "from sparc_dist.config import ResourcesConfig\n"
        "from sparc_dist.errors import UserError\n"
        "from sparc_dist.pipeline.cluster import cluster, request_workers\n"
        "with cluster(ResourcesConfig(cpus=3)):\n"
        "    print(ray.cluster_resources()['CPU'])\n"
        "    os.environ['RAY_ADDRESS'] = 'as if it were a cluster that grows'\n"
        "    try:\n"
        "        with request_workers(ResourcesConfig(gpus=8, no_progress_seconds=1)):\n"
        "            print('without a GPU?')\n"
        "    except UserError as error:\n"
        "        print(error)\n"
        "print(ray.is_initialized())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "RAY_ADDRESS": ""},
        timeout=120,
        check=False,
    )
    cpus, told, running = done.stdout.splitlines()
    assert (cpus, running) == ("3.0", "False")
    assert told.startswith("resources asks for 0 CPUs and 8 GPUs; the cluster has 3 and 0, and no")
    assert "logging.cc" not in done.stderr
    assert "Started a local Ray" not in done.stderr


def test_only_workers_with_models_need_torch() -> None:
    """The driver and others start in a third of the time, with a third of the memory, without."""
    steps = ("steps", "prepare", "reduce_phase", "scheduling")
    imports = "; ".join(f"import sparc_dist.pipeline.{step}" for step in steps)
    program = f"import sys; {imports}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_what_is_asked_for_is_planned_with_as_if_it_were_there() -> None:
    first = Capacity(cpus=8, gpus=1, memory=20 * GB, object_store=10 * GB, nodes=1)
    later = scaled_capacity(first, Capacity(cpus=32, gpus=4, memory=0, object_store=0))
    assert later == Capacity(32, 4, 80 * GB, 40 * GB, nodes=4)
    assert scaled_capacity(first, Capacity(0, 0, 0, 0)) == first


def test_what_one_backbone_fails_at_is_told_in_its_name() -> None:
    assert explain(UserError("What was wrong."), "Backbone b") == "What was wrong."
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    assert explain(full, "Backbone RN50x64").startswith(
        "Backbone RN50x64: the GPU's memory is full; set"
    )
    told = explain(RuntimeError("cuDNN error:\n  not initialised"), "Backbone b")
    assert told == "Backbone b: RuntimeError: cuDNN error: not initialised"


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """Provides the address of a server that says one thing to everyone."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as caller:
                caller.recv(100)
                caller.sendall(reply)

        Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def told(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns the error of joining a Ray at an address; Ray itself is never asked."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray was asked"))
    with pytest.raises(UserError) as caught, cluster.cluster(ResourcesConfig()):
        pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("127.0.0.1:1", "(127.0.0.1:1: Connection refused)"),
        ("ray://127.0.0.1:1", "(127.0.0.1:1: Connection refused)"),
        ("nonsense", "is no address; write host:port"),
    ],
)
def test_a_wrong_address_is_told_with_its_cause(
    address: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(address, monkeypatch)
    assert f"RAY_ADDRESS={address} " in said
    assert cause in said


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_server_that_is_no_ray_is_told(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"HTTP/1.1 505 HTTP Version Not Supported\r\n") as address:
        said = told(scheme + address, monkeypatch)
    assert "what listens there is no Ray; its port is usually 6379" in said


def test_a_server_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = told(f"127.0.0.1:{silent.getsockname()[1]}", monkeypatch)
    assert "timed out" in said


def test_auto_names_the_dead_head_that_ray_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "find_gcs_addresses", list)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: "127.0.0.1:1")
    assert "RAY_ADDRESS=auto (127.0.0.1:1: Connection refused)" in told("auto", monkeypatch)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda _: None)
    assert "RAY_ADDRESS=auto (none was started on this machine)" in told("auto", monkeypatch)


def test_what_speaks_grpc_is_asked_to_let_us_join(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = pytest.raises(pytest.fail.Exception, match="Ray was asked")
    with answering(bytes((0, 0, 6, 4)) + bytes(11)) as address, asked:
        told(address, monkeypatch)


def test_a_handler_of_sigterm_outlives_the_start_of_ray() -> None:
    """Ray sets its own, which exits with code 15; a signal to that one reaches ours."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        ours = signal.getsignal(signal.SIGTERM)
        with cluster._keep_sigterm():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
        assert signal.getsignal(signal.SIGTERM) is ours
        with cluster._keep_sigterm():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
            signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("cluster")
def test_work_that_shows_progress_is_waited_for() -> None:
    seen = itertools.count()
    slow = submit(lambda: time.sleep(3))
    assert get(slow, 1, "A long list", lambda: next(seen)) is None
    assert next(seen) >= 2
    with pytest.raises(UserError, match=r"A long list took longer than .* \(1 s\)"):
        get(submit(lambda: time.sleep(60)), 1, "A long list", lambda: "nothing new")
