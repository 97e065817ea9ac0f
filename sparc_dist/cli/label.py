"""sparc-dist label."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import Any

from sparc_dist import storage
from sparc_dist.cli.finish import run_to_end
from sparc_dist.cli.options import add_overwrite, new_command, positive_int
from sparc_dist.config import TINY, Config, parse, resolve
from sparc_dist.runs import NO_LABELS

TEXT = """\
Scores every image below FOLDER against all pairs of the classes, prints the likeliest classes of
the first images and writes those of all images to DIR/labels.csv. A score is in standard deviations
over the images of the folder: it ranks images and classes, and is not a probability.

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
    parser.add_argument(
        "--top", type=positive_int, default=3, metavar="K", help="classes per image (default: 3)"
    )
    add_overwrite(parser)


def label(options: Namespace) -> int:
    """Labels the images of a folder."""
    from sparc_dist.report import write_report
    from sparc_dist.report.labels import top_classes, write_labels

    done = run_to_end(_config(options), options.overwrite)
    root, results = done.layout.root, write_report(done.layout.root)
    if not done.metrics:
        print("\n".join(results.remarks()), file=sys.stderr)
        return 1
    url = storage.join(root, "labels.csv")
    first, count = write_labels(top_classes(root, "images", "model", options.top), url, SHOWN)
    for image_id, best in first:
        print(f"{image_id}: " + ", ".join(f"{name} {score:+.1f}" for name, score in best))
    if count > SHOWN:
        print(f"… and {count - SHOWN:,} more")
    for remark in results.remarks():
        if NO_LABELS not in remark:  # who asks for labels does not expect to have any
            print(remark)
    print(f"The classes of all {count:,} images are in {url}")
    return 1 if done.failures else 0


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
