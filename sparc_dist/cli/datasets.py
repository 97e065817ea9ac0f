"""sparc-dist datasets."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import new_command

TEXT = "Lists every `kind` a config may name, what it needs on disk and where to get it."


def add_parser(group: Any) -> None:
    """Adds the command."""
    new_command(group, "datasets", datasets, "list the kinds of data sets", TEXT)


def datasets(options: Namespace) -> int:
    """Prints the catalogue of data sets."""
    from sparc_dist.config import DATASET_KINDS

    for name, kind in DATASET_KINDS.items():
        print(f"{name}\n    {kind.summary}\n    needs  {kind.needs}\n    from   {kind.origin}")
    return 0
