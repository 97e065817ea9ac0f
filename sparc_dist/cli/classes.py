"""Class names as people give them: separated by commas, in a text file, or on standard input."""

from __future__ import annotations

import os
import re
import sys

from sparc_dist import storage
from sparc_dist.config import check_classes, names_in
from sparc_dist.errors import UserError, quoted
from sparc_dist.storage import is_remote

#: A class does not end like this, a file does.
_FILE_NAME = re.compile(r".*\.(txt|csv|tsv|json|ya?ml|md|names|list)|.*[/\\].*", re.I | re.S)


def read_classes(text: str) -> list[str]:
    """Returns the classes that ``--classes`` names; raises UserError if they are wrong."""
    names = _names(text)
    if len(names) == 1:
        _check_lone(names[0])
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"--classes: {error}.") from None
    return names


def _names(text: str) -> list[str]:
    if text == "-":
        lines = list(names_in(sys.stdin))
    elif is_remote(text) or os.path.isfile(text):
        lines = list(names_in(storage.read_lines(text)))
    else:
        lines = [text]
    if len(lines) == 1:  # which may list them all
        lines = [name.strip() for name in lines[0].split(",") if name.strip()]
    return lines


def _check_lone(name: str) -> None:
    """Raises UserError about a single class that is most likely not meant as one."""
    if _FILE_NAME.fullmatch(name):
        raise UserError(
            f"--classes {name}: there is no such file; check the path, or list the names with "
            "commas between them."
        )
    if ";" in name:
        raise UserError(f"--classes {quoted(name)} is one class; separate the names by commas.")
