"""sparc-dist status."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import add_common, new_command, run_root

TEXT = """\
Shows for each unit of a run how many of its images and shards are scored, how many images could not
be read, and which stage it is in; and who writes to the run now. It only reads storage: no Ray, no
model, from any machine with read access, while the run goes on or after it.

example:
  sparc-dist status s3://bucket/runs/pets
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "status", status, "show how far a run is", TEXT)
    add_common(parser, "run")


def status(options: Namespace) -> int:
    """Prints the status of a run."""
    from sparc_dist.runs.lease import writer_of
    from sparc_dist.runs.status import status, to_text

    root = run_root(options.run)
    units = status(root)
    print(to_text(units))
    if writer := writer_of(root):
        print(f"Being written by {writer}")
    return 1 if any(unit.failed for unit in units) else 0
