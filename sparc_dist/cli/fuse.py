"""sparc-dist fuse."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import new_command
from sparc_dist.core import METHODS
from sparc_dist.errors import UserError

TEXT = """\
Takes singleton, auxiliary and compound scores and writes DIR/final.parquet, DIR/fusion.json
and, when there are labels, DIR/metrics.json. Two forms:

  sparc-dist fuse --scores FILE.npz --prompts FILE.json --out DIR
      FILE.npz: arrays singleton (M × N), auxiliary (M × N), compound (M × P), and optionally
      labels (M × N) and image_ids (M). FILE.json: {"classes": […], "prompts": […]}.

  sparc-dist fuse --authors-dir DIR --dataset VOC2007 --backbone ViT-B16 --out DIR
      the two pickles that the paper's authors publish; no code in them is run.
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "fuse", fuse, "fuse score matrices that already exist", TEXT)
    parser.add_argument("--scores", metavar="FILE.npz")
    parser.add_argument("--prompts", metavar="FILE.json")
    parser.add_argument("--authors-dir", metavar="DIR")
    parser.add_argument("--dataset", metavar="NAME", help="as in the pickles' names")
    parser.add_argument("--backbone", metavar="NAME", help="as in the pickles' names")
    parser.add_argument("--out", required=True, metavar="DIR", help="output folder")
    parser.add_argument(
        "--empty-class",
        choices=("skip", "zero"),
        default="skip",
        help="a class without a positive: left out of the mAP, or 0 (default: %(default)s)",
    )


def fuse(options: Namespace) -> int:
    """Fuses score matrices."""
    from sparc_dist.core import Method
    from sparc_dist.external_scores import fuse, read_authors, read_npz

    npz = (options.scores, options.prompts)
    authors = (options.authors_dir, options.dataset, options.backbone)
    if all(npz) and not any(authors):
        matrices = read_npz(*npz)
    elif all(authors) and not any(npz):
        matrices = read_authors(*authors)
    else:
        raise UserError(
            "Give either --scores and --prompts, or --authors-dir, --dataset and --backbone."
        )
    metrics = fuse(matrices, Method(), options.out, options.empty_class)
    if metrics is None:
        print("There are no labels, so there is no mAP.")
    else:
        for name in METHODS:
            value = metrics[name]["mAP"]
            print(f"{name:>8}  mAP {'–' if value is None else f'{value:.4f}'}")
    print(f"Final scores are in {options.out}/final.parquet")
    return 0
