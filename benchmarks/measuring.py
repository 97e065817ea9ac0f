"""What all benchmarks share: the options of a script, the text of its result, a port."""

from __future__ import annotations

import socket
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, TypeVar

from sparc_dist.runs.tables import aligned

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Options = TypeVar("Options", bound=DataclassInstance)

Value = TypeVar("Value")


def option(default: Value, text: str) -> Value:
    """Returns a field of a dataclass that is an option of a script."""
    made: Value = field(default=default, metadata={"help": text})
    return made


def options_of(kind: type[Options], about: str | None) -> Options:
    """Reads the command line as an instance of a dataclass, each field of which is an option."""
    parser = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    for each in fields(kind):
        shown = f" (default: {each.default})" if each.default else ""
        parser.add_argument(
            f"--{each.name}",
            type=type(each.default),
            default=each.default,
            metavar=each.name[0].upper(),
            help=each.metadata["help"] + shown,
        )
    return kind(**vars(parser.parse_args()))


def report(title: str, figures: Mapping[str, str]) -> None:
    """Prints a title and, below it, one line per figure with the figures aligned."""
    print(title)
    print(aligned([(f"  {name}:", value) for name, value in figures.items()], "lr"), flush=True)


def free_port() -> int:
    """Returns a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
