"""sparc-dist backbones."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import new_command
from sparc_dist.errors import UserError

TEXT = """\
Loads every backbone of CONFIG, one after the other, at each input size that its data sets need,
scores one image, and prints a line: name, input size, parameters, width of embeddings, seconds to
load, peak memory and the start of the weights' hash. One that fails is reported, and the others go
on. Without CONFIG, or when it names none, these are the paper's nine.
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "backbones", backbones, "try every backbone once", TEXT)
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="a YAML file")


def backbones(options: Namespace) -> int:
    """Tries each backbone and prints what it took."""
    from sparc_dist.backbones.check import TITLE, check_backbones
    from sparc_dist.config import load_config

    config = load_config(options.config) if options.config else None
    print(TITLE, flush=True)
    failed = False
    for found in check_backbones(config):
        print(found, flush=True)
        failed = failed or isinstance(found, UserError)
    return 1 if failed else 0
