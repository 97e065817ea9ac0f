"""States in groups of another size, as earlier versions kept them."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from sparc_dist.runs import UnitLayout, reduce_checkpoints


def regroup(unit: UnitLayout, stage: str, kind: type[Any], size: int) -> None:
    """Joins the kept states of a pass, which have one shard each, ``size`` by ``size``."""
    kept: list[tuple[Any, list[str], str]] = []
    while found := reduce_checkpoints.load_any(unit.state(stage, len(kept)), kind):
        kept.append(found)
    for number in range(len(kept)):
        Path(unit.state(stage, number)).unlink()
    for number, start in enumerate(range(0, len(kept), size)):
        states, hashes, keys = zip(*kept[start : start + size], strict=True)
        shards = range(start, start + len(states))
        key = reduce_checkpoints.group_key(keys[0].split(":")[0], shards)
        written = [sha256 for own in hashes for sha256 in own]
        reduce_checkpoints.save(unit.state(stage, number), key, reduce(add, states), written)
