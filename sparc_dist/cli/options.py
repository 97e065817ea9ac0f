"""What the parsers of all commands have in common."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from sparc_dist.errors import NEW_OUTPUT, Option, UserError, quoted

EXTEND = Option("--extend adds new images, ")
#: The terms of commands with --out, none of which has --extend.
OUT_TERMS = {NEW_OUTPUT: "--out NEW", EXTEND: ""}
RUN = "a run: its folder, its URL, or its config"
EPILOG = """\
exit codes: 0 all done; 1 a unit failed, the others are done; 2 the input is wrong, or the command
could not continue; 130 stopped by Ctrl-C, 143 by SIGTERM: run the same command again to resume.
"""
#: Arguments and options of several commands.
COMMON: dict[str, dict[str, Any]] = {
    "config": {
        "metavar": "CONFIG",
        "nargs": "?",
        "help": "a YAML file (default: SPARC_CONFIG, or sparc.yaml in this folder)",
    },
    "run": {
        "metavar": "RUN",
        "nargs": "?",
        "help": f"{RUN} (default: SPARC_CONFIG, or sparc.yaml in this folder)",
    },
    "--dataset": {"metavar": "NAME", "help": "which dataset, if there are several"},
    "--backbone": {"metavar": "NAME", "help": "which backbone, if there are several"},
    "--retry-errors": {
        "choices": ("all", "passing", "none"),
        "default": "passing",
        "help": "which images that could not be read are tried again: passing are those that were "
        "absent or refused (default: %(default)s)",
    },
    "--overwrite": {
        "action": "store_true",
        "help": "first delete what an earlier run left there",
    },
    "--raw-csv": {
        "action": "store_true",
        "help": "leave texts such as =1+1 in CSV files as they are, which spreadsheets calculate",
    },
    # It may stand before the command, too; with a default, that of the command would count.
    "--verbose": {
        "action": "store_true",
        "default": argparse.SUPPRESS,
        "help": "log more, and show tracebacks",
    },
    "--wait": {"action": "store_true", "help": "wait while another process writes to the run"},
}


def new_command(
    group: Any, name: str, does: Callable[[argparse.Namespace], int], summary: str, text: str
) -> Any:
    """Adds a command with its help; returns its parser."""
    parser = group.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{text}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_common(parser, "--verbose")
    parser.set_defaults(command=does)
    return parser


def add_common(parser: Any, *names: str) -> None:
    """Adds arguments and options that several commands have."""
    for name in names:
        parser.add_argument(name, **COMMON[name])


def run_root(text: str | None, option: str = "RUN") -> str:
    """Returns where a run is, which an option names by its folder, its URL or its config."""
    from sparc_dist.config import find_config, load_config

    if text is None or text.endswith((".yaml", ".yml")):
        return load_config(find_config(text)).output
    check_no_key(option, text)
    return text


def check_no_key(option: str, url: str) -> None:
    """Raises UserError if a URL holds a key: it will be printed."""
    from sparc_dist import storage

    if storage.without_secrets(url) != url:
        raise UserError(f"{option} contains a key; leave it out and set it in the environment.")


def unknown_class(option: str, name: str, classes: Sequence[str]) -> UserError:
    """Returns the error about a class that the run does not have."""
    more = ", …" if len(classes) > 10 else ""
    return UserError(
        f"{option}: unknown class {quoted(name)}; the classes are {', '.join(classes[:10])}{more}."
    )


def add_unit(parser: Any, name: str = "RUN", text: str = RUN) -> None:
    """Adds a finished run, and which of its units."""
    parser.add_argument(name.lower(), metavar=name, help=text)
    add_common(parser, "--dataset", "--backbone")


def positive_int(text: str) -> int:
    """Parses a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def non_negative_int(text: str) -> int:
    """Parses a whole number of at least 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def positive_float(text: str) -> float:
    """Parses a number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def absolute_url(option: str, url: str) -> str:
    """Returns a URL as workers see it; it will be printed, so it must not hold a key."""
    from sparc_dist import storage

    check_no_key(option, url)
    return storage.absolute(url, os.getcwd())
