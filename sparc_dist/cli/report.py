"""sparc-dist report."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import add_common, new_command, run_root
from sparc_dist.cli.output import print_report

TEXT = "Writes tables, page and pictures of what a run has finished so far; needs no Ray."


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "report", report, "write the report of a run again", TEXT)
    add_common(parser, "run")
    parser.add_argument(
        "--against",
        metavar="RUN",
        nargs="+",
        default=[],
        help="other runs that the report's page for comparisons offers, too",
    )
    add_common(parser, "--wait")


def report(options: Namespace) -> int:
    """Writes the report of a run and prints it."""
    from sparc_dist.report import write_report
    from sparc_dist.runs import RunLayout, lease, read_record

    root = run_root(options.run)
    read_record(RunLayout(root))  # where there is no run, nothing is written
    with lease.writing(root, options.wait):
        results = write_report(root, [run_root(run) for run in options.against])
    print_report(root, results)
    return 1 if results.failures else 0
