"""A JSON file with many items, written one at a time; and the numbers in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from sparc_dist import storage
from sparc_dist.runs.run import FinishedUnit, ShardLabels


def write_items(url: str, items: Iterable[object], before: str = "[", after: str = "]") -> None:
    """Writes a JSON list, an item per line. before, after: the JSON around the items."""
    with storage.atomic_file(url) as path, path.open("w", encoding="utf-8") as file:
        comma = ""
        file.write(before)
        for item in items:
            file.write(f"{comma}\n{json.dumps(item, ensure_ascii=False, allow_nan=False)}")
            comma = ","
        file.write(f"\n{after}\n")


def number(value: float) -> float | None:
    """Returns a probability with the digits that a float32 has; None for NaN."""
    return None if math.isnan(value) else round(float(value), 6)


def found(unit: FinishedUnit, shard: ShardLabels, row: int) -> dict[str, float | None]:
    """Returns the classes that are present in an image, with their probabilities."""
    indices = shard.present[row].nonzero()[0].tolist()
    return {unit.classes[i]: number(shard.probability[row, i]) for i in indices}
