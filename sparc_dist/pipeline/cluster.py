"""Ray itself: join the cluster we are on, or start a small one; what it has for scoring."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.planning import Capacity
from sparc_dist.storage import FORWARDED

SECONDS_TO_ANSWER = 10
SECONDS_BETWEEN_LOOKS = 2


@contextmanager
def cluster(resources: ResourcesConfig) -> Iterator[None]:
    """A Ray to work on. One that runs already is left running."""
    if ray.is_initialized():
        yield
        return
    # Nothing but our own lines on the screen: workers' logs are in Ray's session folder.
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    with _silent_stderr():
        if os.environ.get("RAY_ADDRESS"):
            _join(quiet)
        else:
            # "local": not one that happens to run on this machine, for whatever purpose.
            ray.init("local", num_cpus=resources.cpus, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def _join(quiet: dict[str, Any]) -> None:
    """Join a running cluster. Its workers are told where the store is; keys are their own."""
    # What the job was submitted with reaches its workers anyway, and Ray takes nothing twice.
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    given = (job.get("runtime_env") or {}).get("env_vars") or {}
    known = {name: os.environ[name] for name in {*FORWARDED} - {*given} if os.environ.get(name)}
    address = os.environ["RAY_ADDRESS"]
    try:
        _knock(address)
    except OSError as error:
        raise UserError(
            f"There is no Ray to join at RAY_ADDRESS={address} ({type(error).__name__}); start "
            "it, correct the address, or unset it to start a small one here."
        ) from None
    try:
        ray.init(runtime_env={"env_vars": known} if known else None, **quiet)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise UserError(
            f"What answers at RAY_ADDRESS={address} cannot be joined ({type(error).__name__}); if "
            "it is a Ray that asks for a token, set RAY_AUTH_MODE=token and put its token into "
            "~/.ray/auth_token; else correct the address."
        ) from None


def _knock(address: str) -> None:
    """Whether anyone answers at ``host:port``: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Nothing that C++ says on standard error; Python's exceptions come through."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)


def address() -> str:
    """Returns the address at which other processes join the cluster."""
    return str(ray.get_runtime_context().gcs_address)


def capacity() -> Capacity:
    """What the cluster has now."""
    has = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    # A head without CPUs, which only keeps the books, decodes and scores nothing.
    working = [node for node in has if node.get("CPU") or node.get("GPU")]

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
    """What there is to plan with: what the cluster has, or will have because we ask for it.

    An autoscaling cluster may start without a single worker. Once one of each kind has come the
    work can begin; the others join it. A Ray of our own does not grow.
    """
    wanted = Capacity(resources.cpus or 0, resources.gpus or 0, 0, 0)
    has = capacity()
    enough = has.cpus >= wanted.cpus and has.gpus >= wanted.gpus
    if enough or not os.environ.get("RAY_ADDRESS"):
        yield has
        return
    over = Event()
    asking = Thread(target=_ask, args=(wanted, over), daemon=True)
    asking.start()
    try:
        _wait_for_workers(wanted, resources.no_progress_seconds)
        yield scaled_capacity(capacity(), wanted)
    finally:
        over.set()
        asking.join()


def _ask(wanted: Capacity, over: Event) -> None:
    """Ask again and again: a Ray Data that an earlier job left overwrites what is asked for."""
    while not over.is_set():
        request_resources(int(wanted.cpus), [{"GPU": 1}] * int(wanted.gpus))
        over.wait(SECONDS_BETWEEN_LOOKS)
    request_resources(0, [])


def scaled_capacity(has: Capacity, wanted: Capacity) -> Capacity:
    """What there will be once all that is wanted has come, in nodes like those that are there."""
    cpus, gpus = max(has.cpus, wanted.cpus), max(has.gpus, wanted.gpus)
    times = max(cpus / has.cpus if has.cpus else 1, gpus / has.gpus if has.gpus else 1)
    nodes = round(times * has.nodes)
    return Capacity(cpus, gpus, times * has.memory, times * has.object_store, nodes)


def _wait_for_workers(wanted: Capacity, limit: float) -> None:
    end = time.monotonic() + limit
    print("Waiting for the cluster to start its workers …", file=sys.stderr, flush=True)
    while not _has_begun(has := capacity(), wanted):
        if time.monotonic() > end:
            raise UserError(
                f"resources asks for {wanted.cpus:g} CPUs and {wanted.gpus:g} GPUs; the cluster "
                f"has {has.cpus:g} and {has.gpus:g}, and no more came in "
                f"resources.no_progress_seconds ({limit:g} s). Ask for less, or see why its "
                "autoscaler starts none."
            )
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _has_begun(has: Capacity, wanted: Capacity) -> bool:
    return has.cpus >= min(1, wanted.cpus) and has.gpus >= min(1, wanted.gpus)
