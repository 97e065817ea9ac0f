"""What the parsers of all commands have in common."""

from __future__ import annotations

import argparse
from typing import Any

EPILOG = """\
exit codes: 0 all done; 1 a unit failed, the others are done; 2 the input was refused, or the
command could not go on; 130 stopped by Ctrl-C, the same command goes on from there.
"""


def command(group: Any, name: str, does: Any, summary: str, text: str) -> Any:
    """A command with its help; gives its parser."""
    parser = group.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{text}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=does)
    return parser


def add_config(command: Any) -> None:
    """The config, which need not be named."""
    command.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        help="a YAML file (default: that of SPARC_CONFIG, or sparc.yaml here)",
    )


def add_overwrite(command: Any) -> None:
    """The wish to start anew."""
    command.add_argument(
        "--overwrite", action="store_true", help="delete what an earlier run left there first"
    )


def positive(text: str) -> int:
    """A whole number from 1 on."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def count(text: str) -> int:
    """A whole number from 0 on."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def amount(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value
