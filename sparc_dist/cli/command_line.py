"""The command line itself: parse, call a command, turn errors into one line and an exit code."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from sparc_dist import __version__
from sparc_dist.cli import (
    ask,
    backbones,
    bench,
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
    simulate,
    status,
)
from sparc_dist.cli.options import EPILOG
from sparc_dist.errors import UserError, explain

#: In the order in which ``--help`` lists them.
COMMANDS = (
    demo,
    label,
    run,
    plan,
    status,
    report,
    decide,
    ask,
    export,
    datasets,
    prompts,
    backbones,
    fuse,
    experiment,
    simulate,
    bench,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    if options.verbose:  # ours only: other libraries log what they send, with its signatures
        logging.getLogger("sparc_dist").setLevel(logging.DEBUG)
    try:
        code: int = options.command(options)
        return code
    except UserError as error:
        print(f"sparc-dist: {error}", file=sys.stderr)
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
        return 130


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands and their options."""
    top = argparse.ArgumentParser(
        prog="sparc-dist",
        description="Zero-shot multi-label recognition: say which of a list of classes each image "
        "contains, with a CLIP-type model and no labels.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"sparc-dist {__version__}")
    top.add_argument("--verbose", action="store_true", help="log more, and show tracebacks")
    group = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_parser(group)
    return top
