"""Pages of the viewer: Jinja templates with everything escaped, and the bar that links them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from sparc_dist import storage
from sparc_dist.report.templating import environment
from sparc_dist.report.view.response import Response
from sparc_dist.report.view.unit_view import UnitView
from sparc_dist.runs import RunLayout, UnitKey, report_files
from sparc_dist.runs.slugs import slugs, unit_slugs
from sparc_dist.runs.storing import matrix


@dataclass(frozen=True)
class Bar:
    """The links of a page. here: its address. view, index: the unit and class that it is about.

    unit_page, class_page: the report's addresses of them; None if there is no such page.
    """

    here: str
    view: UnitView | None = None
    index: int | None = None
    unit_page: str | None = None
    class_page: str | None = None


class ReportPages:
    """The pages of a run's report, which may not have been written, or only of some units."""

    def __init__(
        self, layout: RunLayout, datasets: Sequence[str], backbones: Sequence[str]
    ) -> None:
        self.layout, self._units = layout, unit_slugs(datasets, backbones)

    def unit(self, names: Sequence[str]) -> UnitKey | None:
        """Returns the unit that a page is about; None if it is about the whole run."""
        return next((key for key, slug in self._units.items() if slug == names[0]), None)

    def index(self, names: Sequence[str], view: UnitView) -> int | None:
        """Returns the class of a unit that a page is about; None if it is about all of them."""
        pages = self._of_classes(view)
        return pages.index("/".join(names)) if "/".join(names) in pages else None

    def bar(self, here: str, view: UnitView, index: int | None = None) -> Bar:
        """Returns the bar of a page. Reads each time which pages there are: they may change."""
        written = {*report_files(self.layout)}
        names = (
            f"{self._units[view.key]}/index.html",
            None if index is None else self._of_classes(view)[index],
        )
        unit, one = (f"/report/{name}" if name in written else None for name in names)
        return Bar(here, view, index, unit, one)

    def _of_classes(self, view: UnitView) -> list[str]:
        unit = self._units[view.key]
        return [f"{unit}/class-{slug}.html" for slug in slugs(view.unit.classes)]


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Returns a template filled in."""
    return Response(part(template, **values), status=status)


def part(template: str, **values: Any) -> bytes:
    """Returns a template filled in, for a page that has been made already."""
    return _environment().get_template(f"{template}.html").render(**values).encode()


@cache
def _environment() -> Environment:
    """The viewer's own templates, and the parts of the report's pages."""
    return environment("sparc_dist.report.view", "sparc_dist.report")


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
