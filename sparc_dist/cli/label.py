"""sparc-dist label."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from sparc_dist.cli.finish import run_to_end
from sparc_dist.cli.options import add_overwrite, new_command
from sparc_dist.config import TINY, Config, parse, resolve
from sparc_dist.runs import NO_LABELS, Results

TEXT = """\
Says which of the classes each image below FOLDER contains, with a probability. Prints the first
images and writes all of them to DIR/labels.csv: image_id, class, probability, present, score, rank.
The probabilities come from a model of the scores, not from labels; docs/answers.md says what they
mean and what to do where they are wrong.

example:
  sparc-dist label photos --classes "cat,dog,sofa"

The model's weights come from the hub on first use; without internet, name a checkpoint file with
--weights, or try the small model of this package with --model sparc-tiny.
"""
SHOWN = 20  # images whose classes are printed


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "label", label, "say which classes your images show", TEXT)
    parser.add_argument("folder", metavar="FOLDER", help="a folder of images, or its URL")
    parser.add_argument(
        "--classes", required=True, metavar="NAMES", help="class names, separated by commas"
    )
    parser.add_argument(
        "--model", default="ViT-B-16-quickgelu", metavar="NAME", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--weights", metavar="TAG|FILE", help="an open_clip tag or a file (default: openai)"
    )
    parser.add_argument(
        "--out", default="sparc-labels", metavar="DIR", help="(default: %(default)s)"
    )
    add_overwrite(parser)


def label(options: Namespace) -> int:
    """Labels the images of a folder."""
    from sparc_dist.report import write_report
    from sparc_dist.report.labels import image_labels, write_labels
    from sparc_dist.runs.finished_unit import open_unit

    done = run_to_end(_config(options), options.overwrite)
    root, results = done.layout.root, write_report(done.layout.root)
    if not done.metrics:
        print("\n".join(results.remarks()), file=sys.stderr)
        return 1
    url = done.layout.labels_csv
    first, count = write_labels(image_labels(open_unit(root)), url, SHOWN)
    for image in first:
        print(_grey(image.line()) if image.empty else image.line())
    if count > SHOWN:
        print(f"… and {count - SHOWN:,} more")
    for remark in _remarks(results):
        print(remark)
    print(f"The classes of {'the image' if count == 1 else f'all {count:,} images'} are in {url}")
    return 1 if done.failures else 0


def _remarks(results: Results) -> Iterator[str]:
    """Yields what concerns the answers: they need no labels, and are duo's."""
    for remark in results.remarks():
        text = remark.removeprefix("images: ").removeprefix("images × model: ")
        if text != NO_LABELS and not text.startswith("SPARC: "):
            yield text


def _grey(line: str) -> str:
    """Returns a line in grey on a terminal."""
    return f"\x1b[90m{line}\x1b[0m" if sys.stdout.isatty() else line


def _config(options: Namespace) -> Config:
    """Returns the config of a folder of images, its classes and one model."""
    names = [name.strip() for name in options.classes.split(",") if name.strip()]
    weights = options.weights
    if weights is None and options.model != TINY:
        weights = "openai"
    raw = {
        "output": options.out,
        "datasets": [
            {"name": "images", "kind": "folder", "images": options.folder, "classes": names}
        ],
        "backbones": [{"name": "model", "model": options.model, "weights": weights}],
    }
    return resolve(parse(raw, "sparc-dist label"), os.getcwd())
