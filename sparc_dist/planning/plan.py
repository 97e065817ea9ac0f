"""The plan of a run: which backbones share scorers, and on which resources. No Ray.

Backbones that fit into one scorer's memory form a group that processes the images together: an
image is read and decoded once for all of them. Every scorer runs every backbone of the group, so
all its units finish at the same time, whatever each one costs. Groups run one after the other, each
on the whole cluster, so that none waits for resources that another holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sparc_dist.backbones import Cost, Costs
from sparc_dist.config import BackboneConfig, Config, ResourcesConfig
from sparc_dist.errors import UserError

GB = 1e9
CGROUPS = Path("/sys/fs/cgroup")
#: Memory of a worker with torch, including its context on a GPU.
PROCESS_BYTES = 1.5e9
#: Share of the object store for decoded images; the rest is for images and scores in transit.
PIXELS_SHARE = 0.5


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


@dataclass(frozen=True)
class Scorers:
    """The number of model actors. gpus: GPU share of each. threads: CPU threads of each.

    shards: that each works on at a time: with two, one's pixels are copied and its results leave
    while a GPU encodes the other. On CPUs, encoding takes nearly all of the time anyway.
    """

    actors: int
    gpus: float
    threads: int
    shards: int = 1


@dataclass(frozen=True)
class BackboneGroup:
    """Backbones that process a data set's images together.

    scorer_bytes: memory of one scorer. decoders: number of shards decoded at a time.
    """

    dataset: str
    backbones: tuple[BackboneConfig, ...]
    costs: tuple[Cost, ...]
    scorers: Scorers
    scorer_bytes: float
    decoders: int

    @property
    def sizes(self) -> list[int]:
        """The distinct input sizes of the backbones, sorted."""
        return sorted({cost.image_size for cost in self.costs})

    def starts_early(self, capacity: Capacity) -> bool:
        """Whether scorers may load their models while texts are embedded.

        On CPUs, if there is memory for both: a scorer that held a GPU and waited for texts could
        keep it from what embeds them.
        """
        towers = min(self.scorers.actors, len(self.backbones))
        weights = 4 * max(cost.parameters for cost in self.costs)
        need = self.scorers.actors * self.scorer_bytes + towers * (PROCESS_BYTES + weights)
        return not self.scorers.gpus and need <= capacity.memory

    def alone(self, name: str) -> BackboneGroup:
        """Returns the group with only the backbone of this name."""
        members = zip(self.backbones, self.costs, strict=True)
        ((backbone, cost),) = (member for member in members if member[0].name == name)
        return replace(self, backbones=(backbone,), costs=(cost,))


def plan(config: Config, costs: Costs, capacity: Capacity) -> list[BackboneGroup]:
    """Assigns the units in ``costs`` to the cluster. Raises UserError if one does not fit."""
    groups: list[BackboneGroup] = []
    for dataset in config.datasets:
        by_name = {name: cost for (data, name), cost in costs.items() if data == dataset.name}
        members = [backbone for backbone in config.backbones if backbone.name in by_name]
        sized = [backbone.sized(dataset.resnet_size) for backbone in members]
        if sized:
            groups += _groups(config, dataset.name, sized, by_name, capacity)
    return groups


def _groups(
    config: Config,
    dataset: str,
    members: Sequence[BackboneConfig],
    costs: Mapping[str, Cost],
    capacity: Capacity,
) -> Iterator[BackboneGroup]:
    batch = min(config.batch_size, config.shard_size)
    largest = max(members, key=lambda member: scorer_bytes([costs[member.name]], batch))
    need = scorer_bytes([costs[largest.name]], batch)
    scorers = plan_scorers(config.resources, capacity, need, largest.name)
    budget = config.resources.gpu_memory_gb * GB * scorers.gpus
    if not scorers.gpus:
        budget = capacity.memory / max(scorers.actors, capacity.nodes)
    for part in _pack(members, costs, batch, budget, config.resources.backbones_per_scorer):
        part_costs = [costs[member.name] for member in part]
        yield BackboneGroup(
            dataset,
            tuple(part),
            tuple(part_costs),
            scorers,
            scorer_bytes(part_costs, batch),
            _decoders(part_costs, config.shard_size, capacity),
        )


def scorer_bytes(costs: Sequence[Cost], batch: int) -> float:
    """Returns the memory of a scorer: the weights of all backbones, and the largest batch."""
    weights = 4 * sum(cost.parameters for cost in costs)
    largest = max(batch * cost.activation_bytes + cost.product_bytes for cost in costs)
    return PROCESS_BYTES + weights + largest


def plan_scorers(
    resources: ResourcesConfig, capacity: Capacity, need: float, name: str = "the largest backbone"
) -> Scorers:
    """Returns one scorer per GPU share, or per two CPUs, each with at least ``need`` bytes.

    Raises UserError about the backbone ``name`` if the cluster cannot hold them.
    """
    share = resources.gpus_per_scorer
    if share is None:
        share = 1.0 if capacity.gpus else 0.0
    if share > capacity.gpus:
        raise UserError(
            f"resources.gpus_per_scorer asks for {share:g} GPUs, but the cluster has "
            f"{capacity.gpus:g}; set it to 0 to score on CPUs, or add GPUs."
        )
    if capacity.cpus < 1:
        raise UserError(
            "The cluster has no CPU to decode images; add at least one, or set "
            "resources.cpus and gpus to what its autoscaler should start."
        )
    if share:
        limit = _max_on_gpus(resources, share, capacity, need, name)
    else:
        limit = _max_on_cpus(capacity, need, name)
    actors = resources.scorers or limit
    if actors > limit and (share or actors * need > capacity.memory):
        needed = f"{share:g} GPUs" if share else f"{need / GB:.1f} GB"
        available = f"{capacity.gpus:g}" if share else f"{capacity.memory / GB:.1f} GB"
        raise UserError(
            f"resources.scorers asks for {actors} actors with {needed} each, but the cluster has "
            f"{available}; lower one of the two."
        )
    return Scorers(actors, share, resources.threads_per_scorer, 2 if share else 1)


def _max_on_gpus(
    resources: ResourcesConfig, share: float, capacity: Capacity, need: float, name: str
) -> int:
    memory = resources.gpu_memory_gb * GB * share
    if need > memory:
        raise UserError(
            f"{name} needs {need / GB:.1f} GB, but a scorer has {memory / GB:.1f} GB of a GPU's "
            "memory; lower batch_size, or set resources.gpu_memory_gb and gpus_per_scorer to what "
            "the GPUs have."
        )
    # A share cannot span GPUs: 0.6 fits once on each.
    return int(capacity.gpus) * int(1 / share)


def _max_on_cpus(capacity: Capacity, need: float, name: str) -> int:
    node = capacity.memory / capacity.nodes  # a scorer cannot span nodes
    fit = capacity.nodes * int(node // need)
    if not fit:
        raise UserError(
            f"{name} needs {need / GB:.1f} GB of memory, but a node has {node / GB:.1f} GB for "
            "workers; lower batch_size, or add memory."
        )
    return min(max(1, int(capacity.cpus) // 2), fit)


def _pack(
    members: Sequence[BackboneConfig],
    costs: Mapping[str, Cost],
    batch: int,
    budget: float,
    limit: int | None,
) -> Iterator[list[BackboneConfig]]:
    """Yields as many backbones at a time as fit; equal input sizes together, to resize once."""
    part: list[BackboneConfig] = []
    for member in sorted(members, key=lambda member: costs[member.name].image_size):
        costs_together = [costs[other.name] for other in (*part, member)]
        if part and (len(part) == limit or scorer_bytes(costs_together, batch) > budget):
            yield part
            part = []
        part.append(member)
    yield part


def _decoders(costs: Sequence[Cost], shard_size: int, capacity: Capacity) -> int:
    """Returns the number of decoders: one per CPU, limited by the object store."""
    sizes = {cost.image_size for cost in costs}
    shard = shard_size * 3 * sum(size * size for size in sizes)
    return max(1, min(int(capacity.cpus), int(PIXELS_SHARE * capacity.object_store / shard)))
