"""Reads untrusted pickles.

A pickle is a program that can call any function by name. Here a name resolves to a stand-in that
the reader provides, and to nothing else.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Mapping
from typing import Any


class RestrictedUnpickler(pickle.Unpickler):
    """Reads a pickle. stand_ins: by module and name, what a pickle may call."""

    def __init__(self, content: bytes, stand_ins: Mapping[tuple[str, str], Any]) -> None:
        _check_memo(content)
        super().__init__(io.BytesIO(content))
        self._stand_ins = stand_ins

    def find_class(self, module: str, name: str) -> Any:
        """Returns a stand-in; raises UnpicklingError for any other name."""
        if (module, name) not in self._stand_ins:
            raise pickle.UnpicklingError(f"it refers to {f'{module}.{name}'!r}")
        return self._stand_ins[module, name]


def _check_memo(content: bytes) -> None:
    """Rejects a memo index beyond the number of opcodes: the memo would fill all memory."""
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= (argument or 0) <= number:
            raise pickle.UnpicklingError(f"it remembers a value as number {argument}")
