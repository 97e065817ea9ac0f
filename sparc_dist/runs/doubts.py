"""Doubts: the classes whose decisions deserve a second look, and what would help them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

#: What is said about the classes of a status; {names} are theirs.
SENTENCES = {
    "constant": (
        "Every image scores the same for {names}, so these answers mean nothing; reword the class "
        "or use another model."
    ),
    "prior": (
        "There are too few images or classes to estimate how many images contain {names}: a share "
        "was assumed, the same for every class; more images help, or `sparc-dist decide` with "
        "--per-image, --prevalence or --answers."
    ),
    "unclear": (
        "The scores do not show how many images contain {names}; `sparc-dist decide` with "
        "--prevalence or with --answers about 50 images helps."
    ),
    "common": (
        "Many images seem to contain {names}, and how many is hard to tell from scores; check some "
        "images, or use `sparc-dist decide` with --prevalence."
    ),
}
SHOWN = 8  # names in a sentence


def doubts_of(status: Sequence[str], classes: Sequence[str]) -> dict[str, list[str]]:
    """Returns the classes of each status that is in doubt; ``status``: of every class."""
    pairs = list(zip(status, classes, strict=True))
    found = {kind: [name for own, name in pairs if own == kind] for kind in SENTENCES}
    return {kind: names for kind, names in found.items() if names}


def sentences(doubts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a sentence for each status in doubt."""
    for kind, names in doubts.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield SENTENCES[kind].format(names=", ".join(names[:SHOWN]) + more)
