"""The commands of researchers: parse, call."""

from __future__ import annotations

import argparse
from dataclasses import fields
from textwrap import fill
from typing import Any

from sparc_dist import commands, research
from sparc_dist.core.simulation import Noise
from sparc_dist.layout import EXPERIMENTS
from sparc_dist.options import add_overwrite, count, positive
from sparc_dist.options import command as new_command
from sparc_dist.plug_in import METHODS
from sparc_dist.research import SIZES


def fuse_parser(group: Any) -> None:
    """sparc-dist fuse."""
    text = """\
Takes singleton, auxiliary and compound scores and writes DIR/final.parquet, DIR/fusion.json
and, when there are labels, DIR/metrics.json. Two forms:

  sparc-dist fuse --scores FILE.npz --prompts FILE.json --out DIR
      FILE.npz: arrays singleton (M × N), auxiliary (M × N), compound (M × P), and optionally
      labels (M × N) and image_ids (M). FILE.json: {"classes": […], "prompts": […]}.

  sparc-dist fuse --authors-dir DIR --dataset VOC2007 --backbone ViT-B16 --out DIR
      the two pickles that the paper's authors publish; nothing in them is run.
"""
    command = new_command(
        group, "fuse", commands.fuse, "fuse score matrices that already exist", text
    )
    command.add_argument("--scores", metavar="FILE.npz")
    command.add_argument("--prompts", metavar="FILE.json")
    command.add_argument("--authors-dir", metavar="DIR")
    command.add_argument("--dataset", metavar="NAME", help="as in the pickles' names")
    command.add_argument("--backbone", metavar="NAME", help="as in the pickles' names")
    command.add_argument("--out", required=True, metavar="DIR", help="where the results go")
    command.add_argument(
        "--empty-class",
        choices=("skip", "zero"),
        default="skip",
        help="a class without a positive: left out of the mAP, or 0 (default: %(default)s)",
    )


def bench_parser(group: Any) -> None:
    """sparc-dist bench."""
    text = """\
Times parts of the pipeline beside something to compare them with, on this machine's CPUs, and
prints ratios: machines differ and are shared, so a time by itself says little. All, or those named:

  reduce  the reduce on Ray, from and to storage, beside plain NumPy in memory
  decode  decoding once for the paper's nine backbones, beside once for each
  map     the map phase, JPEG files to stored scores, beside a bare loop of ViT-B/32 over pixels
  units   nine small units together, beside one after the other
  growth  a run beside one with four times the images: time an image, and the driver's memory

All took half an hour on two busy cores. Two figures are for sparc-dist plan.
"""
    command = new_command(group, "bench", commands.bench, "measure how the pipeline fares", text)
    command.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        type=_benchmark,
        help="reduce, decode, map, units or growth (default: all)",
    )
    command.add_argument(
        "--images", metavar="DIR", help="photos of your own for decode, map and units"
    )
    command.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that all works; no figures to keep"
    )


def _benchmark(text: str) -> str:
    # Not by `choices`, which argparse would hold against no name at all.
    if text not in commands.BENCHMARKS:
        raise argparse.ArgumentTypeError(f"there is {', '.join(commands.BENCHMARKS)}")
    return text


def experiment_parser(group: Any) -> None:
    """sparc-dist experiment."""
    text = f"""\
Makes tables and figures of the paper from what a finished run has stored: scores, embeddings and
labels; no image is scored again. For each NAME it writes RUN_URI/experiments/NAME.csv, .md, .png
and .svg, with the paper's figures beside ours where it has them. `all` makes all of them:

  {", ".join(EXPERIMENTS[:7])},
  {", ".join(EXPERIMENTS[7:])}

examples:
  sparc-dist experiment all --run sparc-demo
  sparc-dist experiment histograms --run runs/coco --class cat --backbone ViT-B-32
  sparc-dist experiment plug-in --run runs/voc --scores tagclip.npz --method tagclip
"""
    summary = "make tables and figures of the paper from a run"
    parser = new_command(group, "experiment", research.experiment, summary, text)
    parser.add_argument("name", metavar="NAME", choices=(*EXPERIMENTS, "all"))
    parser.add_argument("--run", required=True, metavar="RUN_URI", help="the run's `output`")
    for name, help_text in (
        ("dataset", "for plug-in, histograms and examples: of this data set"),
        ("backbone", "and under this backbone"),
    ):
        parser.add_argument(f"--{name}", metavar="NAME", help=help_text)
    parser.add_argument(
        "--class",
        dest="label",
        metavar="NAME",
        help="for histograms and examples (default: cat, or the class that gains most)",
    )
    parser.add_argument(
        "--scores", metavar="FILE", help="for plug-in: another method's scores, images × classes"
    )
    parser.add_argument(
        "--method",
        choices=tuple(METHODS),
        default="other",
        help="for plug-in: whose scores they are (default: %(default)s)",
    )


def simulate_parser(group: Any) -> None:
    """sparc-dist simulate."""
    rates = ", ".join(f"{field.name} {field.default:g}" for field in fields(Noise))
    text = f"""\
Draws labels from a co-occurrence and scores from the paper's noise model (image bias, prompt bias,
OR with AND-bonus, flipped labels), writes them to DIR as a run's, and reduces them. Every stage and
experiment can then be tried at full size without a single image.

examples:
  sparc-dist simulate --like coco2014 --out simulated
  sparc-dist simulate --images 5000 --classes 20 --noise bonus=0.8 miss=0.3 --out simulated
  sparc-dist experiment rank-fusion --run simulated

rates of --noise and their defaults:
{fill(rates, 98, initial_indent="  ", subsequent_indent="  ")}
"""
    summary = "draw scores of any size from the noise model"
    parser = new_command(group, "simulate", research.simulate, summary, text)
    parser.add_argument(
        "--like", choices=tuple(SIZES), help="as many images and classes as this data set has"
    )
    parser.add_argument("--images", type=positive, metavar="N", help="(default: 5000)")
    parser.add_argument(
        "--classes", metavar="N|NAMES", help="their number, or names with commas (default: 20)"
    )
    parser.add_argument(
        "--labels", metavar="FILE", help="a table of labels: take its co-occurrence over"
    )
    parser.add_argument("--noise", nargs="*", default=[], metavar="NAME=X", help="other rates")
    parser.add_argument("--seed", type=count, default=0, metavar="N", help="(default: 0)")
    parser.add_argument(
        "--out", default="sparc-simulated", metavar="DIR", help="(default: %(default)s)"
    )
    add_overwrite(parser)
