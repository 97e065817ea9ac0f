"""The command line itself: parse, call a command, turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, current_thread, main_thread
from typing import NoReturn

from sparc_dist import __version__
from sparc_dist.cli import (
    apply,
    ask,
    backbones,
    completion,
    datasets,
    decide,
    demo,
    experiment,
    export,
    fuse,
    label,
    plan,
    prompts,
    report,
    run,
    serve,
    simulate,
    status,
    verify,
    view,
)
from sparc_dist.cli.options import EPILOG, add_common
from sparc_dist.cli.output import printable_output
from sparc_dist.errors import UserError, did_you_mean, explain, printable

#: In the order in which ``--help`` lists them.
COMMANDS = (
    demo,
    label,
    apply,
    run,
    plan,
    status,
    verify,
    report,
    view,
    decide,
    ask,
    export,
    serve,
    datasets,
    prompts,
    backbones,
    fuse,
    experiment,
    simulate,
    completion,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    with printable_output():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if options.verbose:  # ours only: other libraries log what they send, with its signatures
        logging.getLogger("sparc_dist").setLevel(logging.DEBUG)
    terminated = Event()
    try:
        with _sigterm_stops(terminated):
            code: int = options.command(options)
            return code
    except UserError as error:
        print(f"sparc-dist: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as head, has closed the pipe; Python must not write to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sparc-dist: {where}{error.strerror or error}.", file=sys.stderr)
        return 2
    except Exception as error:  # from a storage library, or a bug of ours
        if options.verbose:
            raise
        print(f"sparc-dist: {explain(error)}; --verbose shows more.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sparc-dist: stopped; run the same command again to resume.", file=sys.stderr)
        return 143 if terminated.is_set() else 130


@contextmanager
def _sigterm_stops(terminated: Event) -> Iterator[None]:
    """Raises KeyboardInterrupt on SIGTERM, so that everything ends as it does on Ctrl-C.

    terminated: set then. An exception of its own type would not do: Ray replaces it with a new
    KeyboardInterrupt.
    """
    if current_thread() is not main_thread():  # only that may handle signals
        yield
        return

    def stop(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the end
        terminated.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Parser(argparse.ArgumentParser):
    """A parser that suggests the closest of several choices."""

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits."""
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            message += did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        super().error(message)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands and their options."""
    top = Parser(
        prog="sparc-dist",
        description="Zero-shot multi-label recognition: say which of a list of classes each image "
        "contains, with a CLIP-type model and no labels.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"sparc-dist {__version__}")
    add_common(top, "--verbose")
    top.set_defaults(verbose=False)
    group = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_parser(group)
    return top
