"""Label Studio: tasks with predictions, and the labelling config that they fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from sparc_dist import storage
from sparc_dist.report.export.json_items import found, number, write_items
from sparc_dist.runs.run import FinishedUnit, ShardLabels

#: The names of the config's two tags, to which the results of a prediction refer.
CONTROL, IMAGE = "classes", "image"


def write(unit: FinishedUnit, url: str) -> None:
    """Writes a task per image, whose prediction chooses the classes that are present."""
    write_items(url, _tasks(unit))


def write_config(unit: FinishedUnit, url: str) -> None:
    """Writes the labelling config: an image, and a choice of any number of classes."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in unit.classes)
    text = (
        f'<View>\n  <Image name="{IMAGE}" value="${IMAGE}"/>\n'
        f'  <Choices name="{CONTROL}" toName="{IMAGE}" choice="multiple">\n'
        f"{choices}  </Choices>\n</View>\n"
    )
    storage.write_bytes(url, text.encode())


def _tasks(unit: FinishedUnit) -> Iterator[dict[str, Any]]:
    for shard in unit.labels():
        sureness = _sureness(shard)
        for row, (image_id, uri) in enumerate(zip(shard.ids, shard.uris, strict=True)):
            classes = found(unit, shard, row)
            prediction = {
                "model_version": f"sparc-dist {unit.primary}",
                "score": number(sureness[row]),
                "result": [_result(list(classes))] if classes else [],
            }
            data = {IMAGE: uri, "image_id": image_id, "probability": classes}
            yield {"data": data, "predictions": [prediction]}


def _result(names: list[str]) -> dict[str, Any]:
    value = {"choices": names}
    return {"from_name": CONTROL, "to_name": IMAGE, "type": "choices", "value": value}


def _sureness(shard: ShardLabels) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns the probability of each image's least sure decision (n,); NaN without any."""
    sure = np.where(shard.present, shard.probability, 1 - shard.probability)
    least = np.where(np.isnan(sure), np.inf, sure).min(axis=1)
    return np.where(np.isinf(least), np.nan, least)
