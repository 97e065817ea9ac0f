"""Turns labels as users write them into class indices, and counts unknown ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sparc_dist.errors import UserError, quoted


class LabelReader:
    """Reads the label cells of a table: lists of names or indices, or "cat;dog"."""

    def __init__(self, classes: Sequence[str], where: str) -> None:
        self._index_of = {name: index for index, name in enumerate(classes)}
        self._where = where
        self._known = 0
        self._unknown: Counter[str] = Counter()

    def read(self, value: Any, row: int) -> list[int] | None:
        """Returns the class indices of a cell; None if the labels are unknown."""
        if value is None:
            return None
        items = value
        if isinstance(value, str):
            items = [name for name in value.split(";") if name.strip()]
        if not isinstance(items, list):
            raise UserError(
                f"{self._where}, row {row}: labels must be a list, not {quoted(items)}; correct it."
            )
        indices = [index for item in items if (index := self._index(item)) is not None]
        if len(set(indices)) < len(indices):
            raise UserError(
                f"{self._where}, row {row}: duplicate label; list each class in the image once."
            )
        return sorted(indices)

    def _index(self, item: Any) -> int | None:
        index = item
        if isinstance(item, str):
            name = item.strip()
            # In a CSV an index is text too; a class may also be called "7".
            number = int(name) if name.isdecimal() and len(name) < 10 else None
            index = self._index_of.get(name, number)
        # True and False are integers in Python, but not meant as indices.
        if (
            isinstance(index, int)
            and not isinstance(index, bool)
            and 0 <= index < len(self._index_of)
        ):
            self._known += 1
            return index
        self._unknown[str(item)] += 1
        return None

    def notes(self) -> list[str]:
        """Returns a note on unknown labels; raises UserError if no label is known."""
        if not self._unknown:
            return []
        example = self._unknown.most_common(1)[0][0]
        if not self._known:
            raise UserError(
                f"{self._where}: no label is one of the {len(self._index_of)} classes (an example "
                f"is {quoted(example)}); correct the labels or the classes."
            )
        return [
            f"{sum(self._unknown.values())} labels of {len(self._unknown)} unknown classes, such "
            f"as {quoted(example)}, were left out."
        ]
