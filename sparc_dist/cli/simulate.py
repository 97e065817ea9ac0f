"""sparc-dist simulate."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import (
    OUT_TERMS,
    absolute_url,
    add_common,
    new_command,
    non_negative_int,
    positive_int,
)
from sparc_dist.cli.output import print_failures, print_report
from sparc_dist.errors import UserError, in_terms, quoted

if TYPE_CHECKING:
    from sparc_dist.research.simulation_model import Noise

TEXT = """\
Draws labels from a co-occurrence and scores from the paper's noise model (image bias, prompt bias,
OR with AND-bonus, flipped labels), writes them to DIR as a run's, and reduces them. Every stage and
experiment can then be tried at full size without a single image.

examples:
  sparc-dist simulate --like coco2014 --out simulated
  sparc-dist simulate --images 5000 --classes 20 --noise bonus=0.8 miss=0.3 --out simulated
  sparc-dist experiment rank-fusion --run simulated

rates of --noise and their defaults:
  miss 0.16, ghost 0.002, offset 0.12, offset_sd 0.013, gain_sd 0.1, base 0.05, base_sd 0.01, lift
  0.06, lift_sd 0.01, bonus 0.5, bonus_sd 0.08, prompt_sd 0.01, singleton 0.011, auxiliary 0.02,
  compound 0.03
"""
IMAGES, CLASSES = 5000, 20
#: The kinds of data sets that have a known size.
OFFICIAL = ("voc2007", "coco2014", "nuswide")


def add_parser(group: Any) -> None:
    """Adds the command."""
    summary = "draw scores of any size from the noise model"
    parser = new_command(group, "simulate", simulate, summary, TEXT)
    parser.add_argument(
        "--like",
        choices=OFFICIAL,
        help="take the number of images and classes of this data set",
    )
    parser.add_argument("--images", type=positive_int, metavar="N", help=f"(default: {IMAGES})")
    parser.add_argument(
        "--classes", metavar="N|NAMES", help=f"their number, or names (default: {CLASSES})"
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="a table of labels whose co-occurrence is used"
    )
    parser.add_argument("--noise", nargs="*", default=[], metavar="NAME=X", help="other rates")
    parser.add_argument(
        "--seed", type=non_negative_int, default=0, metavar="N", help="(default: 0)"
    )
    parser.add_argument(
        "--backbones",
        type=positive_int,
        default=1,
        metavar="N",
        help="models that see the same labels, each with noise of its own (default: 1)",
    )
    parser.add_argument(
        "--out", default="sparc-simulated", metavar="DIR", help="(default: %(default)s)"
    )
    add_common(parser, "--overwrite", "--wait")


def simulate(options: Namespace) -> int:
    """Makes a simulated run."""
    from sparc_dist.config import DATASET_KINDS
    from sparc_dist.pipeline.executor import kept
    from sparc_dist.report import write_report
    from sparc_dist.research.simulation import Settings, simulate
    from sparc_dist.runs import lease

    images, classes = IMAGES, CLASSES
    if options.like:
        like = DATASET_KINDS[options.like]
        images, classes = like.images, len(like.classes)
    named: int | tuple[str, ...] = classes
    if options.classes is not None:
        names = tuple(name.strip() for name in options.classes.split(",") if name.strip())
        named = int(names[0]) if len(names) == 1 and names[0].isdecimal() else names
    labels = None if options.labels is None else absolute_url("--labels", options.labels)
    given = (options.images or images, named, options.seed, labels, _noise(options.noise))
    settings = Settings(*given, backbones=options.backbones)
    root = absolute_url("--out", options.out)
    with in_terms(OUT_TERMS), lease.writing(root, options.wait), kept():
        done = simulate(root, settings, options.overwrite)
        print_failures(done.failures, sys.stderr)
        results = write_report(done.layout.root)
    print_report(done.layout.root, results)
    return 1 if done.failures else 0


def _noise(rates: list[str]) -> Noise:
    """Returns the rates of the noise model with the user's changes."""
    from dataclasses import fields

    from sparc_dist.research.simulation_model import Noise

    known = {field.name for field in fields(Noise)}
    given = {}
    for rate in rates:
        name, _, value = rate.partition("=")
        try:
            given[name] = float(value)
        except ValueError:
            raise UserError(f"--noise {rate}: write a rate as NAME=X, X a number.") from None
        if name not in known:
            raise UserError(f"--noise {rate}: there is no rate {quoted(name)}; see --help.")
    try:
        return Noise(**given)
    except ValueError as error:
        raise UserError(f"--noise: {error}.") from None
