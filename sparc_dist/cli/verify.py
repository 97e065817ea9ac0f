"""sparc-dist verify."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import add_common, new_command, run_root

TEXT = """\
Reads every file of a run and compares it with the checksum that was taken when it was written.
Names each file that is damaged or missing, with what mends it, and marks what is made from other
files as unfinished: repeat the command of the run, and it is made again.

Works in this process, or on the cluster that RAY_ADDRESS names.

exit codes of this command: 0 all files are as they were written; 1 some are not.

example:
  sparc-dist verify runs/pets
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "verify", verify, "check every file of a run", TEXT)
    add_common(parser, "run")


def verify(options: Namespace) -> int:
    """Verifies a run and prints what is wrong with it."""
    from sparc_dist.pipeline.verify import verify

    found = verify(run_root(options.run))
    for fault in found.faults:
        print(fault)
    if found.faults:
        print(f"{len(found.faults)} of {found.files:,} files are damaged or missing")
        return 1
    print(f"All {found.files:,} files are as they were written")
    return 0
