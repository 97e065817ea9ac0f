"""Estimates images per second, hours, bytes and money of a plan, from given speeds. No Ray.

A group's scorers spend on each image the sum of its backbones' costs; decoders work in parallel.
On GPUs the slower of the two sets the pace. On CPUs both use the same cores, so their times add up.
The text tower embeds every prompt once per backbone, before the first image. Start-up and the
reduce are left out: they take minutes, not hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparc_dist.backbones import Cost
from sparc_dist.config import BackboneConfig
from sparc_dist.core import Method, columns_of, width_of
from sparc_dist.datasets import DatasetSize
from sparc_dist.planning.plan import GB, BackboneGroup, Capacity
from sparc_dist.runs import Storing
from sparc_dist.runs.storing import ALL
from sparc_dist.runs.tables import aligned

FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Speeds:
    """The assumed speeds of machines; ``benchmarks/map_phase.py`` measures the last two.

    gpu_tflops, half_tflops: TFLOP/s of CLIP models on one GPU, in float32 and in bf16 or fp16.
    core_gflops: GFLOP/s on one core. decodes: photos per second that one core reads and decodes.
    """

    gpu_tflops: float = 12.0
    half_tflops: float = 40.0
    core_gflops: float = 40.0
    decodes: float = 60.0

    def gflops(self, backbone: BackboneConfig, on_gpu: bool) -> float:
        """Returns the GFLOP/s of one GPU, or of one core, with a backbone."""
        if not on_gpu:
            return self.core_gflops
        return 1e3 * (self.gpu_tflops if backbone.precision == "fp32" else self.half_tflops)


def stored_bytes(size: DatasetSize, cost: Cost, storing: Storing = ALL) -> int:
    """Returns the bytes of scores, embeddings and final scores of a unit, before compression."""
    names = columns_of(Method().fusions)
    final = sum(width_of(name, size.classes, size.background) for name in names)
    kept = storing.bytes_per_image(size.prompts, cost.width)
    return size.images * (kept + FLOAT32 * final)


@dataclass(frozen=True)
class UnitEstimate:
    """A unit's share of the scorers' time.

    gflop: of an image with all its prompts. images_per_second: its speed if it had all of the time.
    bytes: stored, before compression.
    """

    backbone: str
    image_size: int
    gflop: float
    share: float
    images_per_second: float
    bytes: int


@dataclass(frozen=True)
class GroupEstimate:
    """The estimate of a group. bound: what sets the pace. device_hours: of GPUs, or of cores.

    text_seconds: for embedding the texts of all backbones.
    """

    group: BackboneGroup
    images: int
    units: list[UnitEstimate]
    images_per_second: float
    bound: Literal["scoring", "decoding"]
    device_hours: float
    text_seconds: float

    @property
    def hours(self) -> float:
        """The hours that the group takes."""
        return (self.images / self.images_per_second + self.text_seconds) / 3600


def estimate(
    group: BackboneGroup,
    size: DatasetSize,
    capacity: Capacity,
    speeds: Speeds,
    storing: Storing = ALL,
) -> GroupEstimate:
    """Returns what a group takes on a data set of this size."""
    scorers = group.scorers
    on_gpu = scorers.gpus > 0
    devices = scorers.actors * scorers.gpus
    if not on_gpu:
        devices = min(scorers.actors * scorers.threads, capacity.cpus)
    members = list(zip(group.backbones, group.costs, strict=True))
    seconds = [
        cost.scoring_gflop(size.prompts) / speeds.gflops(backbone, on_gpu)
        for backbone, cost in members
    ]
    scoring = sum(seconds) / devices
    decoding = 1 / (speeds.decodes * min(group.decoders, capacity.cpus))
    units = [
        UnitEstimate(
            backbone.name,
            cost.image_size,
            cost.scoring_gflop(size.prompts),
            each / sum(seconds),
            devices / each,
            stored_bytes(size, cost, storing),
        )
        for (backbone, cost), each in zip(members, seconds, strict=True)
    ]
    return GroupEstimate(
        group,
        size.images,
        units,
        1 / (max(scoring, decoding) if on_gpu else scoring + decoding),
        "scoring" if scoring >= decoding else "decoding",
        size.images * sum(seconds) / 3600,
        _text_seconds(group, size, speeds),
    )


def _text_seconds(group: BackboneGroup, size: DatasetSize, speeds: Speeds) -> float:
    """Returns the time of the text pass: backbones are spread over the scorers."""
    scorers = group.scorers
    # Texts are embedded in float32.
    gflops = 1e3 * speeds.gpu_tflops if scorers.gpus else speeds.core_gflops * scorers.threads
    seconds = [size.texts * cost.text_gflop / gflops for cost in group.costs]
    return max(max(seconds), sum(seconds) / scorers.actors)


def estimate_text(
    groups: Sequence[GroupEstimate], capacity: Capacity, price: float | None = None
) -> str:
    """Returns the estimates as text; ``price`` is that of a node for an hour."""
    head = ("data set × backbone", "input", "GFLOP/image", "share", "images/s alone", "storage")
    rows: list[tuple[str, ...]] = [head]
    for group in groups:
        rows += [_row(group.group.dataset, unit) for unit in group.units]
    hours = sum(group.hours for group in groups)
    stored = sum(unit.bytes for group in groups for unit in group.units)
    nodes = capacity.nodes
    money = "" if price is None else f", {price * nodes * hours:,.2f} at {price:g} per node-hour"
    total = f"Total: {_hours(hours)} on {_count(nodes, 'node')}, {_bytes(stored)}{money}."
    return "\n".join([aligned(rows, "lrrrrr"), "", *map(_group_line, groups), total])


def sizes_text(sizes: Mapping[str, DatasetSize]) -> str:
    """Returns one line per data set."""
    return "\n".join(
        f"{name}: {size.images:,} images, {size.classes:,} classes, "
        + (f"{size.background:,} background classes, " if size.background else "")
        + f"{size.compounds:,} compound prompts, {size.texts:,} texts to embed, "
        f"{_bytes(8 * size.rank_numbers)} of rank statistics"
        for name, size in sizes.items()
    )


def _row(dataset: str, unit: UnitEstimate) -> tuple[str, ...]:
    return (
        f"{dataset} × {unit.backbone}",
        f"{unit.image_size}",
        f"{unit.gflop:,.1f}",
        f"{100 * unit.share:.1f} %",
        _number(unit.images_per_second),
        _bytes(unit.bytes),
    )


def _group_line(estimate: GroupEstimate) -> str:
    group, scorers = estimate.group, estimate.group.scorers
    device = f"{scorers.gpus:g} GPU" if scorers.gpus else _count(scorers.threads, "thread")
    kind = "GPU" if scorers.gpus else "core"
    return (
        f"{group.dataset}: {_count(len(group.backbones), 'backbone')} on "
        f"{_count(scorers.actors, 'scorer')} with {device} and "
        f"{group.scorer_bytes / GB:.1f} GB each; {_count(group.decoders, 'CPU')} decode to "
        f"{', '.join(map(str, group.sizes))} pixels; "
        f"{_number(estimate.images_per_second)} images/s, limited by {estimate.bound}; texts "
        f"{_hours(estimate.text_seconds / 3600)}: "
        f"{_hours(estimate.hours)}, {_number(estimate.device_hours)} {kind}-hours."
    )


def _count(number: float, what: str) -> str:
    return f"{number:g} {what}" + ("" if number == 1 else "s")


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{_number(hours)} h"
    return f"{_number(60 * hours)} min" if 60 * hours >= 1 else f"{_number(3600 * hours)} s"


def _number(value: float) -> str:
    """Formats a number with three digits, or with all digits before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"
