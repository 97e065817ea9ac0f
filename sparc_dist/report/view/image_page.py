"""The page of an image: what every class scores there."""

from __future__ import annotations

from typing import Any

from sparc_dist import storage
from sparc_dist.report.view.bar import Bar
from sparc_dist.report.view.pages import page
from sparc_dist.report.view.response import Response
from sparc_dist.report.view.unit_view import UnitView
from sparc_dist.runs.storing import matrix


def image_page(view: UnitView, shard: int, row: int, bar: Bar) -> Response:
    """Returns the page of an image, the highest score first; of an unreadable one, the reason."""
    images, unit = view.images(shard), view.unit
    classes: list[tuple[int, str, float, float, bool]] = []
    error = None
    if row in images.scored:
        scored = images.scored.index(row)
        final = storage.read_table(unit.unit.final(shard), [unit.primary])
        labels = storage.read_table(unit.unit.labels(shard), ["probability", "present"])
        scores = matrix(final[unit.primary], len(unit.classes))
        judged = (
            labels[name].to_numpy().reshape(scores.shape)[scored] for name in labels.column_names
        )
        columns = (part.tolist() for part in (scores[scored], *judged))
        classes = list(zip(range(len(unit.classes)), unit.classes, *columns, strict=True))
        classes.sort(key=lambda found: -found[2])
    else:
        errors = storage.read_table(unit.unit.errors(shard), ["image_id", "error"]).to_pylist()
        reasons = {found["image_id"]: found["error"] for found in errors}
        error = reasons.get(images.ids[row], "it has no scores")
    place: dict[str, Any] = {"shard": shard, "row": row, "image_id": images.ids[row]}
    uri = storage.without_secrets(images.uris[row])
    return page("image", bar=bar, view=view, classes=classes, error=error, uri=uri, **place)
