"""Templates: how the pages of the report and of the viewer are filled in."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from sparc_dist.runs.tables import shown

#: Where the prevalence of a class comes from.
STATUSES = {
    "clear": "its prevalence follows from the scores",
    "common": "it seems common, so its prevalence is hard to tell from the scores",
    "unclear": "the scores do not show its prevalence",
    "prior": "too few images or classes: the same prevalence is assumed for every class",
    "given": "its prevalence was given",
    "labelled": "its prevalence follows from answers about images",
    "constant": "every image scores the same, so the decisions mean nothing",
}
NAME = 60  # letters of a name where there is room for no more


def environment(*packages: str) -> Environment:
    """Returns the templates of packages; where two have the same name, the first is taken.

    Every value is escaped, because names and ids come from anywhere.
    """
    pages = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals["STATUSES"] = STATUSES
    pages.filters.update(number=_number, percent=_percent, short=_short)
    return pages


def _number(value: float | None, digits: int = 1) -> str:
    """Returns a number rounded for people; a dash for None and NaN."""
    return shown(None if value != value else value, digits)


def _percent(share: float | None) -> str:
    return _number(None if share is None else 100 * share)


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"
