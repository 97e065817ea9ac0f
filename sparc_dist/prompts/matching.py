"""Which classes a sentence mentions.

Words are compared in lower case without punctuation. A class matches in singular and plural, with
or without spaces ("pottedplant", "potted plants"). The longest match wins and consumes its words,
so that "hot dog" does not mention "dog" where both are classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sparc_dist.config import words_of

_IRREGULAR = {
    "person": "people",
    "child": "children",
    "man": "men",
    "woman": "women",
    "mouse": "mice",
    "goose": "geese",
    "foot": "feet",
    "tooth": "teeth",
    "ox": "oxen",
    "knife": "knives",
    "leaf": "leaves",
    "shelf": "shelves",
    "wolf": "wolves",
    "calf": "calves",
    "half": "halves",
    "loaf": "loaves",
    "scarf": "scarves",
    "wife": "wives",
    "life": "lives",
    "thief": "thieves",
}
# Compounds such as "policeman" and "bookshelf" form the plural of their last part.
_IRREGULAR_ENDINGS = ("man", "shelf", "knife", "child", "mouse", "foot", "person")


def plurals(word: str) -> set[str]:
    """Returns the possible plurals of ``word``, taken as a singular."""
    forms = {word + "s"}
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        forms.add(word + "es")
    if word.endswith("y") and word[-2:-1] not in set("aeiou"):
        forms.add(word[:-1] + "ies")
    for tail, plural in _IRREGULAR.items():
        if word == tail or (tail in _IRREGULAR_ENDINGS and word.endswith(tail)):
            forms.add(word[: len(word) - len(tail)] + plural)
    return forms


def singulars(word: str) -> set[str]:
    """Returns the words that ``word`` may be the plural of."""
    candidates = {word[:-1], word[:-2], word[:-3] + "y"}
    for tail, plural in _IRREGULAR.items():
        if word.endswith(plural):
            candidates.add(word[: len(word) - len(plural)] + tail)
    return {candidate for candidate in candidates if candidate and word in plurals(candidate)}


class ClassMatcher:
    """Finds the classes that a text mentions; ``aliases`` are other spellings of some of them."""

    def __init__(self, classes: Sequence[str], aliases: Mapping[str, str] | None = None) -> None:
        self._forms: dict[str, int] = {}
        names = [(words_of(name), index) for index, name in enumerate(classes)]
        for alias, name in (aliases or {}).items():
            if name in classes:
                names.append((words_of(alias), classes.index(name)))
        self._longest = 1 + max((len(words) for words, _ in names), default=0)
        # Exact names come first: "glasses" is a class of that name rather than a plural of "glass".
        for words, index in names:
            self._forms.setdefault("".join(words), index)
        for words, index in names:
            if words:
                for last in plurals(words[-1]) | singulars(words[-1]):
                    self._forms.setdefault("".join([*words[:-1], last]), index)

    def classes_in(self, text: str) -> tuple[int, ...]:
        """Returns the sorted indices of the classes that ``text`` mentions."""
        found = set()
        # Words are joined only within a phrase: "cat, fish" does not mention "catfish".
        for phrase in re.split(r"[,;:!?()]", text):
            words = words_of(phrase)
            free = [True] * len(words)
            for start, stop, index in self._candidates(words):
                if all(free[start:stop]):
                    free[start:stop] = [False] * (stop - start)
                    found.add(index)
        return tuple(sorted(found))

    def _candidates(self, words: Sequence[str]) -> Iterable[tuple[int, int, int]]:
        """Returns every span of words that spells a class, longest text first."""
        spans = []
        for start in range(len(words)):
            for stop in range(start + 1, min(start + self._longest, len(words)) + 1):
                joined = "".join(words[start:stop])
                if joined in self._forms:
                    spans.append((-len(joined), start, stop, self._forms[joined]))
        return [(start, stop, index) for _, start, stop, index in sorted(spans)]
