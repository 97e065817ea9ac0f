"""sparc-dist report."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.finish import print_report
from sparc_dist.cli.options import RUN, new_command, run_root

TEXT = "Writes tables, page and pictures of what a run has finished so far; needs no Ray."


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "report", report, "write the report of a run again", TEXT)
    default = "SPARC_CONFIG, or sparc.yaml in this folder"
    parser.add_argument("run", metavar="RUN", nargs="?", help=f"{RUN} (default: {default})")


def report(options: Namespace) -> int:
    """Writes the report of a run and prints it."""
    from sparc_dist.report import write_report

    root = run_root(options.run)
    print_report(root, write_report(root))
    return 0
