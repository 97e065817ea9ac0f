"""sparc-dist fuse."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import new_command
from sparc_dist.errors import UserError

TEXT = """\
Takes singleton, auxiliary and compound scores and writes final.parquet, labeler.safetensors,
decisions.json, labels.parquet, labels-wide.parquet and, when there are labels, metrics.json to DIR.
Two forms:

  sparc-dist fuse --scores FILE.npz --prompts FILE.json --out DIR
      FILE.npz: arrays singleton (M × N), auxiliary (M × N), compound (M × P), and optionally
      labels (M × N) and image_ids (M). FILE.json: {"classes": […], "prompts": […]}; optionally
      "background": […] names B classes that are not reported, whose columns follow those of the
      classes in singleton and auxiliary.

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
    parser.add_argument("--overwrite", action="store_true", help="replace what --out holds")


def fuse(options: Namespace) -> int:
    """Fuses score matrices."""
    from sparc_dist.config import DECIDES
    from sparc_dist.core import Method, methods_of
    from sparc_dist.external_scores import fuse, read_authors, read_npz
    from sparc_dist.runs.decisions import sentences
    from sparc_dist.runs.tables import shown

    _check_new(options.out, options.overwrite)
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
    method = Method(primary=DECIDES["official" if all(authors) else "own"])
    metrics = fuse(matrices, method, options.out, options.empty_class)
    if matrices.labels is None:
        print("There are no labels, so there is no mAP.")
    else:
        for name in methods_of(method.fusions):
            print(f"{name:>8}  mAP {shown(metrics[name]['mAP'], 4)}")
        found = metrics[metrics["primary"]]["decisions"]
        print(
            f"Decisions of {metrics['primary']}: micro-F1 {shown(found['micro_f1'])}, "
            f"with the best thresholds {shown(found['oracle_micro_f1'])}"
        )
    for remark in [*metrics["notes"], *sentences(metrics["doubts"])]:
        print(remark)
    print(f"Final scores are in {options.out}/final.parquet")
    return 0


def _check_new(out: str, overwrite: bool) -> None:
    """Raises UserError if final scores are there already, unless they may be replaced."""
    from sparc_dist import storage

    final = storage.join(out, "final.parquet")
    if not overwrite and not storage.is_missing(final):
        raise UserError(f"{final} already exists; choose another --out, or --overwrite it.")
