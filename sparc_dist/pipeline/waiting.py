"""Waiting for Ray, always with a limit."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from sparc_dist.errors import UserError


def get_with_timeout(reference: Any, limit: float, what: str) -> Any:
    """Returns the value of a reference; raises UserError after ``limit`` seconds."""
    try:
        return ray.get(reference, timeout=limit)
    except GetTimeoutError:
        ray.cancel(reference, force=True)
        raise stalled(what, limit) from None


def stalled(what: str, limit: float) -> UserError:
    """Returns the error for work that takes too long."""
    has, free = ray.cluster_resources(), ray.available_resources()
    shown = ", ".join(
        f"{free.get(name, 0.0):g} of {has.get(name, 0.0):g} {name}s" for name in ("CPU", "GPU")
    )
    return UserError(
        f"{what} took longer than resources.no_progress_seconds ({limit:g} s); the cluster has "
        f"{shown} free. Give it what it lacks, or raise the limit if the machine is slow."
    )
