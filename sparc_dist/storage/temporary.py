"""A folder for files that are too large for memory and gone in a moment."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparc_dist.errors import UserError

#: A disk is full, a quota is, or a file is larger than a limit allows.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Provides a folder that ends with the block; raises UserError if its disk is full."""
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:  # Python tried all usual folders: none has space for a byte
        raise _full(os.environ.get("TMPDIR", "/tmp")) from None
    try:
        with tempfile.TemporaryDirectory(prefix="sparc-", dir=place) as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise _full(place) from None


def _full(place: str) -> UserError:
    return UserError(
        f"There is no space left for temporary files in {place}; free some, or set TMPDIR to a "
        "folder with more, and run the same command again to resume."
    )
