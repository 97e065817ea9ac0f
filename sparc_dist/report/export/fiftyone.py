"""FiftyOne: a data set in the JSON that ``fiftyone.Dataset.from_json`` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sparc_dist.report.export.json_items import found, write_items
from sparc_dist.runs.run import FinishedUnit

#: The field of a sample that holds its classes.
FIELD = "predictions"

FIELDS = {
    "filepath": "fiftyone.core.fields.StringField",
    "image_id": "fiftyone.core.fields.StringField",
    FIELD: "fiftyone.core.fields.EmbeddedDocumentField(fiftyone.core.labels.Classifications)",
}


def write(unit: FinishedUnit, url: str) -> None:
    """Writes a sample per image, with a Classification per class that is present."""
    head = {
        "name": unit.data.root.rstrip("/").rpartition("/")[2],
        "media_type": "image",
        "sample_fields": FIELDS,
        "classes": {FIELD: list(unit.classes)},
        "samples": [],
    }
    before = json.dumps(head, ensure_ascii=False).removesuffix("]}")
    write_items(url, _samples(unit), before, "]}")


def _samples(unit: FinishedUnit) -> Iterator[dict[str, Any]]:
    for shard in unit.labels():
        for row, (image_id, uri) in enumerate(zip(shard.ids, shard.uris, strict=True)):
            labels = [
                {"_cls": "Classification", "label": name, "confidence": probability}
                for name, probability in found(unit, shard, row).items()
            ]
            yield {
                "filepath": uri,
                "image_id": image_id,
                FIELD: {"_cls": "Classifications", "classifications": labels},
            }
