"""The bar: links from every page to what the viewer and the report show of the same class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparc_dist.report.view.unit_view import UnitView
from sparc_dist.runs import RunLayout, UnitKey, report_files
from sparc_dist.runs.slugs import slugs, unit_slugs


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
