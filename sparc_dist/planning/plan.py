"""The plan of a run: which backbones share scorers, and on what. Knows no Ray.

Backbones that fit into one scorer's memory together go through the images together: an image is
read and decoded once for all of them, every scorer does the same work in proportion to what each
backbone costs, and so all units of a data set finish at the same moment, whatever the mix. Groups
follow one another, each on the whole cluster: no two wait for what the other holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparc_dist.backbones import Cost, Costs
from sparc_dist.config import BackboneConfig, Config, ResourcesConfig
from sparc_dist.errors import UserError
from sparc_dist.planning.capacity import GB, Capacity

#: A worker with torch, and on a GPU its context.
PROCESS_BYTES = 1.5e9
#: Of the object store, for decoded images; the rest is for what is scored and on its way.
PIXELS_SHARE = 0.5


@dataclass(frozen=True)
class Scorers:
    """How model actors are laid on the cluster. threads: of each, on the CPU."""

    actors: int
    gpus: float
    threads: int


@dataclass(frozen=True)
class BackboneGroup:
    """Backbones that see a data set's images together.

    scorer_bytes: what one scorer holds. decoders: how many shards are decoded at a time.
    """

    dataset: str
    backbones: tuple[BackboneConfig, ...]
    costs: tuple[Cost, ...]
    scorers: Scorers
    scorer_bytes: float
    decoders: int

    @property
    def sizes(self) -> list[int]:
        """The input sizes of its backbones, each once."""
        return sorted({cost.image_size for cost in self.costs})

    def alone(self, name: str) -> BackboneGroup:
        """One of its backbones by itself."""
        members = zip(self.backbones, self.costs, strict=True)
        ((backbone, cost),) = (member for member in members if member[0].name == name)
        return replace(self, backbones=(backbone,), costs=(cost,))


def plan(config: Config, costs: Costs, has: Capacity) -> list[BackboneGroup]:
    """Lay the units whose costs are given on what the cluster ``has``, or refuse."""
    groups: list[BackboneGroup] = []
    for dataset in config.datasets:
        own = {name: cost for (of, name), cost in costs.items() if of == dataset.name}
        members = [backbone for backbone in config.backbones if backbone.name in own]
        sized = [backbone.sized(dataset.resnet_size) for backbone in members]
        if sized:
            groups += _groups(config, dataset.name, sized, own, has)
    return groups


def _groups(
    config: Config,
    dataset: str,
    members: Sequence[BackboneConfig],
    costs: Mapping[str, Cost],
    has: Capacity,
) -> Iterator[BackboneGroup]:
    batch = min(config.batch_size, config.shard_size)
    largest = max(members, key=lambda member: scorer_bytes([costs[member.name]], batch))
    need = scorer_bytes([costs[largest.name]], batch)
    scorers = plan_scorers(config.resources, has, need, largest.name)
    budget = config.resources.gpu_memory_gb * GB * scorers.gpus
    if not scorers.gpus:
        budget = has.memory / max(scorers.actors, has.nodes)
    for part in _packed(members, costs, batch, budget, config.resources.backbones_per_scorer):
        own = [costs[member.name] for member in part]
        yield BackboneGroup(
            dataset,
            tuple(part),
            tuple(own),
            scorers,
            scorer_bytes(own, batch),
            _decoders(own, config.shard_size, has),
        )


def scorer_bytes(costs: Sequence[Cost], batch: int) -> float:
    """What a scorer of these backbones holds: all their weights, one batch of one of them."""
    weights = 4 * sum(cost.parameters for cost in costs)
    return PROCESS_BYTES + weights + batch * max(cost.activation_bytes for cost in costs)


def plan_scorers(
    resources: ResourcesConfig, has: Capacity, need: float, name: str = "the largest backbone"
) -> Scorers:
    """One scorer per GPU share, or per two CPUs, each with ``need`` bytes of memory at least."""
    share = resources.gpus_per_scorer
    if share is None:
        share = 1.0 if has.gpus else 0.0
    if share > has.gpus:
        raise UserError(
            f"resources.gpus_per_scorer asks for {share:g} GPUs, the cluster has {has.gpus:g}; "
            "set it to 0 to score on CPUs, or add GPUs."
        )
    if has.cpus < 1:
        raise UserError(
            "The cluster has no CPU to decode images with; add at least one, or set "
            "resources.cpus and gpus to what its autoscaler should start."
        )
    if share:
        most = _most_on_gpus(resources, share, has, need, name)
    else:
        most = _most_on_cpus(has, need, name)
    actors = resources.scorers or most
    if actors > most and (share or actors * need > has.memory):
        what = f"{share:g} GPUs" if share else f"{need / GB:.1f} GB"
        there = f"{has.gpus:g}" if share else f"{has.memory / GB:.1f} GB"
        raise UserError(
            f"resources.scorers asks for {actors} actors with {what} each, the cluster has "
            f"{there}; lower one of the two."
        )
    return Scorers(actors, share, resources.threads_per_scorer)


def _most_on_gpus(
    resources: ResourcesConfig, share: float, has: Capacity, need: float, name: str
) -> int:
    memory = resources.gpu_memory_gb * GB * share
    if need > memory:
        raise UserError(
            f"{name} needs {need / GB:.1f} GB and a scorer has {memory / GB:.1f} GB of a GPU's "
            "memory; lower batch_size, or set resources.gpu_memory_gb and gpus_per_scorer to what "
            "the GPUs have."
        )
    # A share lies on one GPU: 0.6 fits once on each, however many there are.
    return int(has.gpus) * int(1 / share)


def _most_on_cpus(has: Capacity, need: float, name: str) -> int:
    node = has.memory / has.nodes  # a scorer lies on one
    fit = has.nodes * int(node // need)
    if not fit:
        raise UserError(
            f"{name} needs {need / GB:.1f} GB of memory and a node has {node / GB:.1f} GB for "
            "workers; lower batch_size, or add memory."
        )
    return min(max(1, int(has.cpus) // 2), fit)


def _packed(
    members: Sequence[BackboneConfig],
    costs: Mapping[str, Cost],
    batch: int,
    budget: float,
    most: int | None,
) -> Iterator[list[BackboneConfig]]:
    """As many together as fit; equal input sizes next to each other, to be resized once."""
    part: list[BackboneConfig] = []
    for member in sorted(members, key=lambda member: costs[member.name].image_size):
        wider = [costs[other.name] for other in (*part, member)]
        if part and (len(wider) > (most or len(wider)) or scorer_bytes(wider, batch) > budget):
            yield part
            part = []
        part.append(member)
    yield part


def _decoders(costs: Sequence[Cost], shard_size: int, has: Capacity) -> int:
    """As many as there are CPUs, while what they make fits into the object store."""
    sizes = {cost.image_size for cost in costs}
    shard = shard_size * 3 * sum(size * size for size in sizes)
    return max(1, min(int(has.cpus), int(PIXELS_SHARE * has.object_store / shard)))
