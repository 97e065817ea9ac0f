"""Names in a config: of its sections, of files and of classes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sparc_dist.errors import quoted
from sparc_dist.storage import is_remote, without_secrets

#: Names become folders of the run, so they must be plain.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$", max_length=80)]

KEYS_IN_URL = "may contain a user name or key; remove it, because the config is stored in the run"


def check_url(url: str) -> str:
    """Raises ValueError unless a path or URL can be used and stored."""
    if is_remote(url) and without_secrets(url) != url:
        raise ValueError(KEYS_IN_URL)
    if "\0" in url:
        raise ValueError("contains a NUL, which no path may contain; remove it")
    return url


#: A local path or a URL; it is written to run.json, so it must not contain a secret.
Url = Annotated[str, AfterValidator(check_url)]


class Section(BaseModel):
    """A part of the config; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


def words_of(text: str) -> list[str]:
    """Returns the lower-case words: runs of letters and digits of any script, with their marks."""
    characters = (
        c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text.lower()
    )
    return "".join(characters).split()


def letters(name: str) -> str:
    """Returns a class name in lower case without spaces and punctuation, as "pottedplant"."""
    return "".join(words_of(name))


def names_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Returns the names in a text with one per line; what follows a # is a comment."""
    names = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
    return tuple(name for name in names if name)


def check_classes(classes: Sequence[str]) -> None:
    """Raises ValueError if the list is empty, or if names are empty, duplicate or look the same."""
    if not classes:
        raise ValueError("there are no classes; name at least one")
    name_of: dict[str, str] = {}
    for name in classes:
        spelling = letters(name)
        if not spelling:
            raise ValueError(f"the class name {quoted(name)} has no letter or digit; rename it")
        if name_of.get(spelling) == name:
            raise ValueError(f"duplicate class {quoted(name)}; keep one")
        if spelling in name_of:
            raise ValueError(
                f"the classes {quoted(name_of[spelling])} and {quoted(name)} are spelt with the "
                "same letters, so no prompt could tell them apart; rename one"
            )
        name_of[spelling] = name
