"""The cluster: join a running Ray or start a small one, and find out what it has."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import gettempdir
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import ray
from ray._private import ray_constants, services
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError, one_line
from sparc_dist.pipeline.environment import LOOPBACK_VARIABLE, configure_ray
from sparc_dist.pipeline.watch import watched
from sparc_dist.planning import Capacity
from sparc_dist.storage import FORWARDED

CONNECT_SECONDS = 5
#: How HTTP/2, and so gRPC, begins: the preface and empty SETTINGS. A server answers with its own.
HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
POLL_SECONDS = 2


@contextmanager
def cluster(resources: ResourcesConfig) -> Iterator[None]:
    """Provides a Ray to work on. A Ray that was already running keeps running."""
    if ray.is_initialized():
        yield
        return
    # Only our own lines reach the screen; workers' logs are in Ray's session folder.
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    with _silent_stderr(), _keep_sigterm():
        if os.environ.get("RAY_ADDRESS"):
            _join(quiet)
        else:
            _listen_on_loopback()
            _start(resources, quiet)
    try:
        with watched(_check_reachable):
            yield
    finally:
        ray.shutdown()


def _start(resources: ResourcesConfig, quiet: dict[str, Any]) -> None:
    """Starts a small Ray; never joins one that happens to run on this machine."""
    try:
        ray.init("local", num_cpus=resources.cpus, include_dashboard=False, **quiet)
    except Exception as error:  # Ray has no type for it
        raise UserError(
            f"Ray did not start here ({one_line(error)}); look whether memory, and disk space in "
            f"{gettempdir()}, are left, and run the same command again."
        ) from error


def _listen_on_loopback() -> None:
    """Makes the Ray that is started here listen on loopback only.

    Ray reads the variable when it is imported, which may have been before ``configure_ray``.
    """
    configure_ray()
    if os.environ[LOOPBACK_VARIABLE] == "0":
        ray_constants.ENABLE_RAY_CLUSTER = False


def _join(quiet: dict[str, Any]) -> None:
    """Joins a running cluster. Forwards the store's address to its workers, but no keys."""
    # A job's own variables reach its workers anyway, and Ray rejects a variable set twice.
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    job_variables = (job.get("runtime_env") or {}).get("env_vars") or {}
    missing = {*FORWARDED} - {*job_variables}
    forwarded = {name: os.environ[name] for name in missing if os.environ.get(name)}
    address = os.environ["RAY_ADDRESS"]
    try:
        _check_reachable(address)
    except OSError as error:
        raise UserError(
            f"No Ray answers at RAY_ADDRESS={address} ({error.strerror or error}); start it, "
            "correct the address, or unset it to start a small Ray here."
        ) from None
    try:
        ray.init(runtime_env={"env_vars": forwarded} if forwarded else None, **quiet)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise UserError(
            f"The Ray at RAY_ADDRESS={address} cannot be joined ({type(error).__name__}); if it "
            "uses token authentication, set RAY_AUTH_MODE=token and put its token into "
            "~/.ray/auth_token; otherwise correct the address."
        ) from None


def _check_reachable(address: str) -> None:
    """Raises OSError if no Ray answers at an address: Ray itself would try for minutes."""
    found = _last_started() if address == "auto" else address.removeprefix("ray://")
    host, _, port = found.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"RAY_ADDRESS={address} is no address; write host:port, such as head:6379.")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as server:
            if os.environ.get("RAY_USE_TLS") != "1":
                server.sendall(HTTP2_START)
                if server.recv(len(HTTP2_START))[3:4] != HTTP2_START[-6:-5]:
                    raise OSError("what listens there is no Ray; its port is usually 6379")
    except OSError as error:
        raise OSError(f"{found}: {error.strerror or error}") from None


def _last_started() -> str:
    """Returns the address of the Ray that was started last on this machine, dead or alive."""
    try:
        return str(services.canonicalize_bootstrap_address("auto"))
    except ConnectionError:
        raise OSError("none was started on this machine") from None


@contextmanager
def _keep_sigterm() -> Iterator[None]:
    """Keeps a handler of SIGTERM that Ray would replace with its own, which only exits."""
    handler = signal.getsignal(signal.SIGTERM)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    try:
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, handler)
    except SystemExit:  # from Ray's handler: the signal came while Ray started
        signal.raise_signal(signal.SIGTERM)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Drops what C++ code writes to standard error; Python exceptions still propagate."""
    stderr = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(devnull)
        os.close(stderr)


def cluster_capacity() -> Capacity:
    """Returns what the cluster has now."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    # A head without CPUs only manages the cluster; it decodes and scores nothing.
    working = [node for node in nodes if node.get("CPU") or node.get("GPU")]

    def total(name: str) -> float:
        return float(sum(node.get(name, 0.0) for node in working))

    return Capacity(
        cpus=total("CPU"),
        gpus=total("GPU"),
        memory=total("memory"),
        object_store=total("object_store_memory"),
        nodes=max(1, len(working)),
    )


@contextmanager
def request_workers(resources: ResourcesConfig) -> Iterator[Capacity]:
    """Provides the capacity to plan with: what the cluster has, or will have on our request.

    An autoscaling cluster may start without a single worker. Work begins when one worker of each
    kind has arrived; the others join later. A Ray that we started ourselves does not grow.
    """
    wanted = Capacity(resources.cpus or 0, resources.gpus or 0, 0, 0)
    current = cluster_capacity()
    enough = current.cpus >= wanted.cpus and current.gpus >= wanted.gpus
    if enough or not os.environ.get("RAY_ADDRESS"):
        yield current
        return
    stop = Event()
    requests = Thread(target=_keep_requesting, args=(wanted, stop), daemon=True)
    requests.start()
    try:
        _wait_for_workers(wanted, resources.no_progress_seconds)
        yield scaled_capacity(cluster_capacity(), wanted)
    finally:
        stop.set()
        requests.join()


def _keep_requesting(wanted: Capacity, stop: Event) -> None:
    """Repeats the request: Ray Data's coordinator, which outlives its job, overwrites it."""
    while not stop.is_set():
        request_resources(int(wanted.cpus), [{"GPU": 1}] * int(wanted.gpus))
        stop.wait(POLL_SECONDS)
    request_resources(0, [])


def scaled_capacity(current: Capacity, wanted: Capacity) -> Capacity:
    """Returns the capacity once all that is wanted has arrived, in nodes like the current ones."""
    cpus, gpus = max(current.cpus, wanted.cpus), max(current.gpus, wanted.gpus)
    factor = max(
        cpus / current.cpus if current.cpus else 1, gpus / current.gpus if current.gpus else 1
    )
    nodes = round(factor * current.nodes)
    return Capacity(cpus, gpus, factor * current.memory, factor * current.object_store, nodes)


def _wait_for_workers(wanted: Capacity, limit: float) -> None:
    end = time.monotonic() + limit
    print("Waiting for the cluster to start its workers …", file=sys.stderr, flush=True)
    while not _has_one_of_each(current := cluster_capacity(), wanted):
        if time.monotonic() > end:
            raise UserError(
                f"resources asks for {wanted.cpus:g} CPUs and {wanted.gpus:g} GPUs; the cluster "
                f"has {current.cpus:g} and {current.gpus:g}, and no more arrived within "
                f"resources.no_progress_seconds ({limit:g} s). Ask for less, or find out why its "
                "autoscaler starts none."
            )
        time.sleep(POLL_SECONDS)


def _has_one_of_each(current: Capacity, wanted: Capacity) -> bool:
    return current.cpus >= min(1, wanted.cpus) and current.gpus >= min(1, wanted.gpus)
