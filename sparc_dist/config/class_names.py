"""Class names: which words and letters they consist of, and whether a list of them can be used."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from sparc_dist.errors import quoted


def words_of(text: str) -> list[str]:
    """Lower-case words: runs of letters and digits of any script, with their marks."""
    kept = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text.lower())
    return "".join(kept).split()


def letters(name: str) -> str:
    """A class name without what its spellings differ in: "Potted Plant" as "pottedplant"."""
    return "".join(words_of(name))


def check_classes(classes: Sequence[str]) -> None:
    """Raise ValueError when class names are missing, empty, repeated or look the same."""
    if not classes:
        raise ValueError("there is no class; name at least one")
    spelt: dict[str, str] = {}
    for name in classes:
        spelling = letters(name)
        if not spelling:
            raise ValueError(f"the class name {quoted(name)} has no letter or digit; give it one")
        if spelt.get(spelling) == name:
            raise ValueError(f"the class {quoted(name)} stands twice; keep one")
        if spelling in spelt:
            raise ValueError(
                f"the classes {quoted(spelt[spelling])} and {quoted(name)} are spelt with the same "
                "letters, so no prompt could tell them apart; rename one"
            )
        spelt[spelling] = name
