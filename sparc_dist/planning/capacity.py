"""The resources of a cluster or a machine."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GB = 1e9
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Capacity:
    """The resources of a cluster. memory, object_store: bytes of all nodes together."""

    cpus: float
    gpus: float
    memory: float
    object_store: float
    nodes: int = 1


def this_machine(memory_gb: float | None = None) -> Capacity:
    """Returns what a Ray started here would have, with its own memory or ``memory_gb``."""
    # torch takes seconds to import, and nothing else here needs it.
    from sparc_dist.backbones.devices import gpu_count

    memory = (memory_gb or 0) * GB or own_memory()
    # Ray's default.
    store = 0.3 * memory
    return Capacity(os.cpu_count() or 1, gpu_count(), memory - store, store)


def own_memory(cgroups: Path = CGROUPS) -> float:
    """Returns the bytes of memory of this machine, or of the container that limits this process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of cgroups v2 and v1
        # Without a limit, the first says "max", and the second a number above all memory.
        with suppress(OSError, ValueError):
            memory = min(memory, int((cgroups / name).read_text()))
    return memory
