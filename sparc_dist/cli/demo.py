"""sparc-dist demo."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import OUT_TERMS, add_common, new_command, positive_int
from sparc_dist.cli.output import run_config
from sparc_dist.errors import in_terms

TEXT = """\
Draws 2,000 scenes with a fixed seed, takes compound prompts from the labels of other scenes, and
runs the whole pipeline on them with the small CLIP model of this package. Needs neither weights nor
internet; takes one or two minutes on two cores.

example:
  sparc-dist demo --out demo
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "demo", demo, "see the whole of SPARC work on drawn scenes", TEXT)
    parser.add_argument(
        "--out", default="sparc-demo", metavar="DIR", help="output folder (default: %(default)s)"
    )
    parser.add_argument(
        "--images",
        type=positive_int,
        default=2000,
        metavar="N",
        help="number of scenes to draw (default: %(default)s)",
    )
    add_common(parser, "--overwrite", "--wait")


def demo(options: Namespace) -> int:
    """Draws the demo's scenes and runs them."""
    from sparc_dist.config import load_config
    from sparc_dist.demo.inputs import write_demo
    from sparc_dist.runs import lease

    with in_terms(OUT_TERMS), lease.writing(options.out, options.wait):
        config = load_config(write_demo(options.out, options.images))
        return run_config(config, options.overwrite)
