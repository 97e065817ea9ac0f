"""The pages of the report as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment

from sparc_dist.core import FUSIONS, PLAIN
from sparc_dist.report import charts
from sparc_dist.report.exhibit import ROWS, ClassExhibit, UnitExhibit
from sparc_dist.report.other_runs import OtherRun
from sparc_dist.report.scripts import compare_script, image_scripts, parts_of
from sparc_dist.report.tables import DECISIONS
from sparc_dist.report.templating import environment
from sparc_dist.runs import Results, UnitKey

#: The title of each row of images, and what the images have in common.
ROW_TITLES = {
    "likeliest": ("Likeliest", "The highest scores."),
    "above": ("Just above the threshold", "The lowest scores that count as present."),
    "below": ("Just below the threshold", "The highest scores that count as absent."),
    "random": ("A random sample of the rest", "Drawn from all other images."),
    "false_positives": ("False positives", "Decided present, but not labelled so."),
    "misses": ("Misses", "Labelled present, but decided absent."),
}


def site(
    results: Results,
    exhibits: Sequence[UnitExhibit],
    figures: Mapping[UnitKey, str],
    others: Sequence[OtherRun] = (),
) -> Iterator[tuple[str, str]]:
    """Yields all files of the site: names relative to ``report/``, and texts.

    figures: the example pictures of units. others: runs to compare with. Units without an exhibit
    are shown on the first page.
    """
    pages, compare = _environment(), compare_script(results, exhibits, others)
    common = {"results": results, "units": exhibits, "compared": compare is not None}
    for name in ("style.css", "report.js"):
        yield name, (files(__package__) / "templates" / name).read_text(encoding="utf-8")
    by_key = {(unit.dataset, unit.backbone): unit for unit in exhibits}
    index = pages.get_template("index.html")
    yield "index.html", index.render(root="", exhibits=by_key, figures=figures, **common)
    if compare is not None:
        yield "compare.html", pages.get_template("compare.html").render(root="", **common)
        yield "compare-data.js", compare
    for unit in exhibits:
        yield from ((f"{unit.slug}/{name}", text) for name, text in _unit(pages, unit, common))


def _unit(
    pages: Environment, unit: UnitExhibit, common: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Yields the page of a unit, those of its classes, and its image data."""
    own = {"root": "../", "unit": unit, "part_count": parts_of(unit), **common}
    yield "index.html", pages.get_template("unit.html").render(own)
    last = len(unit.classes) - 1
    for place, shown_class in enumerate(unit.classes):
        page = pages.get_template("class.html").render(
            own,
            shown=shown_class,
            rows=_rows(shown_class, unit),
            charts=_charts(shown_class, unit.primary),
            before=unit.classes[place - 1] if place else None,
            after=unit.classes[place + 1] if place < last else None,
        )
        yield f"class-{shown_class.slug}.html", page
    yield from image_scripts(unit)


def _charts(shown_class: ClassExhibit, primary: str) -> list[charts.Chart]:
    made = (
        charts.histogram(shown_class),
        charts.precision_recall(shown_class),
        charts.rank_weights(shown_class, primary),
    )
    return [chart for chart in made if chart is not None]


def _rows(shown_class: ClassExhibit, unit: UnitExhibit) -> list[tuple[object, ...]]:
    """Returns key, title, meaning and images of each row, each with its score of the class."""
    rows: list[tuple[object, ...]] = []
    for name in ROWS:
        if name in shown_class.rows:
            images = [unit.images[key] for key in shown_class.rows[name]]
            scored = [
                (image, next(one for one in image.classes if one.name == shown_class.name))
                for image in images
            ]
            rows.append((name, *ROW_TITLES[name], scored))
    return rows


@cache
def _environment() -> Environment:
    pages = environment("sparc_dist.report")
    pages.globals.update(FUSIONS=FUSIONS, PLAIN=PLAIN, DECISIONS=DECISIONS, having=_having)
    return pages


def _having(key: str, metrics: Mapping[str, Any]) -> list[str]:
    """Returns the methods whose metrics have something under a key."""
    return [method for method in FUSIONS if metrics.get(method, {}).get(key)]
