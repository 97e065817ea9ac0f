"""Ray itself: join the cluster we are on, or start a small one; what it has for scoring."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
import torch

from sparc_dist.config import ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.filesystems import FORWARDED

SECONDS_TO_ANSWER = 10


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
    known = {name: os.environ[name] for name in FORWARDED if os.environ.get(name)}
    address = os.environ["RAY_ADDRESS"]
    try:
        _knock(address)
        ray.init(runtime_env={"env_vars": known} if known else None, **quiet)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"There is no Ray to join at RAY_ADDRESS={address} ({type(error).__name__}); start "
            "it, correct the address, or unset it to start a small one here."
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


@dataclass(frozen=True)
class ScorerPlan:
    """How a unit's model actors are laid on the cluster."""

    actors: int
    gpus: float
    threads: int

    def device(self) -> str:
        """On a worker: its GPU if it holds a share of one, else the CPU.

        Ray shows a worker only its own GPUs, so "cuda" is always the right one. A cluster may
        declare GPUs that torch cannot use; the metrics then say that the CPU did the work.
        """
        return "cuda" if self.gpus and torch.cuda.is_available() else "cpu"


def plan_scorers(resources: ResourcesConfig, shards: int, has: Mapping[str, float]) -> ScorerPlan:
    """Use the GPUs the cluster ``has``, or else its CPUs; refuse what it cannot hold."""
    gpus, cpus = has.get("GPU", 0.0), has.get("CPU", 0.0)
    share = resources.gpus_per_scorer
    if share is None:
        share = 1.0 if gpus else 0.0
    if share > gpus:
        raise UserError(
            f"resources.gpus_per_scorer asks for {share:g} GPUs, the cluster has {gpus:g}; "
            "set it to 0 to score on CPUs, or add GPUs."
        )
    if cpus < 1:
        raise UserError("The cluster has no CPU to decode images with; add at least one.")
    # A share lies on one GPU: 0.6 fits once on each, however many there are.
    most = int(gpus) * int(1 / share) if share else max(1, int(cpus) // 2)
    actors = resources.scorers or most
    if share and actors > most:
        raise UserError(
            f"resources.scorers asks for {actors} actors with {share:g} GPUs each, the cluster "
            f"has {gpus:g}; lower one of the two."
        )
    return ScorerPlan(max(1, min(actors, shards)), share, resources.threads_per_scorer)
