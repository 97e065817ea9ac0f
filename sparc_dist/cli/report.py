"""sparc-dist report."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.finish import print_report
from sparc_dist.cli.options import add_config, new_command
from sparc_dist.config import find_config, load_config

TEXT = "Writes tables, page and pictures of what CONFIG's run has finished so far; needs no Ray."


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "report", report, "write the report of a run again", TEXT)
    add_config(parser)


def report(options: Namespace) -> int:
    """Writes the report of a config's run and prints it."""
    from sparc_dist.report import write_report

    config = load_config(find_config(options.config))
    print_report(config.output, write_report(config.output))
    return 0
