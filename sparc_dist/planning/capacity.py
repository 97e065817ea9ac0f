"""What a cluster or a machine has to work with."""

from __future__ import annotations

import os
from dataclasses import dataclass

GB = 1e9


@dataclass(frozen=True)
class Capacity:
    """What a cluster has; memory and object_store in bytes, of all nodes together."""

    cpus: float
    gpus: float
    memory: float
    object_store: float
    nodes: int = 1


def this_machine(memory_gb: float | None = None) -> Capacity:
    """What a Ray started here would have, or one with so much memory."""
    # torch takes seconds to import, and nothing else here needs it.
    from sparc_dist.backbones.devices import gpu_count

    memory = (memory_gb or 0) * GB or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # As Ray divides it.
    store = 0.3 * memory
    return Capacity(os.cpu_count() or 1, gpu_count(), memory - store, store)
