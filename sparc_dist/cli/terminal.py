"""What commands print: names and messages of others cannot control the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparc_dist.errors import printable

GREY, PLAIN = "\x1b[90m", "\x1b[0m"


class _Printable:
    """A stream that escapes control characters other than the ends of lines, and our own grey."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        grey = text.startswith(GREY) and text.endswith(PLAIN) and self.isatty()
        inner = text[len(GREY) : -len(PLAIN)] if grey else text
        shown = printable(inner, kept="\n\t")
        self._stream.write(f"{GREY}{shown}{PLAIN}" if grey else shown)
        return len(text)


@contextmanager
def printable_output() -> Iterator[None]:
    """Within the block, what is printed does nothing to the terminal."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_Printable, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def grey(line: str) -> str:
    """Returns a line in grey on a terminal."""
    return f"{GREY}{line}{PLAIN}" if sys.stdout.isatty() else line
