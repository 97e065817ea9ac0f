"""sparc-dist label."""

from __future__ import annotations

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import OUT_TERMS, add_common, new_command
from sparc_dist.cli.output import grey, run_to_end
from sparc_dist.errors import UserError, in_terms, quoted

if TYPE_CHECKING:
    from sparc_dist.runs import Growing, Results

TEXT = """\
Says which of the classes each image contains, with a probability. IMAGES are photos, folders with
their subfolders, patterns or URLs. Prints the first images and writes all of them to
DIR/labels.csv: image_id, class, probability, present, score, rank. An image that cannot be read has
one row, in which `present` is `unreadable`. Run it again after photos were added or removed: only
new ones are read.
The probabilities come from a model of the scores, not from labels; docs/answers.md says what they
mean and what to do where they are wrong.

examples:
  sparc-dist label photos --classes "cat,dog,sofa"
  sparc-dist label one.jpg "holiday/*.png" --classes classes.txt

The model's weights come from the hub on first use; without internet, name a checkpoint file with
--weights, or try the small model of this package with --model sparc-tiny.
"""
SHOWN = 20  # images whose classes are printed
#: A class does not end like this, a file does.
_FILE_NAME = re.compile(r".*\.(txt|csv|tsv|json|ya?ml|md|names|list)|.*[/\\].*", re.I | re.S)


def add_parser(group: Any) -> None:
    """Adds the command."""
    parser = new_command(group, "label", label, "say which classes your images show", TEXT)
    parser.add_argument(
        "images", metavar="IMAGES", nargs="+", help="photos, folders, patterns or URLs"
    )
    parser.add_argument(
        "--classes",
        required=True,
        metavar="NAMES|FILE|-",
        help="class names separated by commas, a text file with one per line (# starts a comment), "
        "or - for standard input",
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
        "--refit", action="store_true", help="fit again over all images, reading only new ones"
    )
    add_common(parser, "--retry-errors", "--overwrite", "--raw-csv", "--wait")


def label(options: Namespace) -> int:
    """Labels images."""
    from sparc_dist.config import label_terms
    from sparc_dist.pipeline.executor import kept

    terms = label_terms("IMAGES", "--classes", "--model", "--weights", "--out")
    with in_terms({**terms, **OUT_TERMS}), kept(options.wait):
        return _label(options)


def _label(options: Namespace) -> int:
    from sparc_dist.config import label_config

    classes = read_classes(options.classes)
    config = label_config(options.images, classes, options.out, options.model, options.weights)
    # Only now: what is wrong with the options is said at once.
    from sparc_dist.report import read_results, write_report
    from sparc_dist.report.labels import image_labels, is_ours, labelled_images, write_labels
    from sparc_dist.runs.run import open_unit

    growing: Growing = "refit" if options.refit else "label"
    retry = options.retry_errors
    done = run_to_end(config, options.overwrite, growing=growing, retry_errors=retry)
    root, results = done.layout.root, read_results(done.layout.root)
    if not results.metrics:
        print("\n".join(_remarks(results)), file=sys.stderr)
        return 1
    url = done.layout.labels_csv
    # After photos were added, those are what one wants to see.
    known = labelled_images(url) if done.changes and is_ours(url) else set()
    shown, count = write_labels(image_labels(open_unit(root)), url, SHOWN, known, options.raw_csv)
    for image in shown:
        print(grey(image.line()) if image.empty else image.line())
    if count > len(shown):
        print(f"… and {count - len(shown):,} more")
    for remark in _remarks(results):
        print(remark)
    print(f"The classes of {'the image' if count == 1 else f'all {count:,} images'} are in {url}")
    # Last: thumbnails take longer than the answer.
    write_report(root)
    print(f"Open {done.layout.report}/index.html")
    return 1 if done.failures else 0


def _remarks(results: Results) -> Iterator[str]:
    """Yields what concerns the answers: they need no labels, and are duo's."""
    from sparc_dist.runs import NO_LABELS

    for remark in results.remarks():
        text = remark.removeprefix("images: ").removeprefix("images × model: ")
        if text != NO_LABELS and not text.startswith("SPARC: "):
            yield text


def read_classes(text: str) -> list[str]:
    """Returns the classes that ``--classes`` names; raises UserError if they are wrong.

    text: names separated by commas, a text file, or - for standard input.
    """
    from sparc_dist.config import check_classes

    names = _names(text)
    if len(names) == 1:
        _check_lone(names[0])
    try:
        check_classes(names)
    except ValueError as error:
        raise UserError(f"--classes: {error}.") from None
    return names


def _names(text: str) -> list[str]:
    from sparc_dist import storage
    from sparc_dist.config import names_in

    if text == "-":
        lines = list(names_in(sys.stdin))
    elif storage.is_remote(text) or os.path.isfile(text):
        lines = list(names_in(storage.read_lines(text)))
    else:
        lines = [text]
    if len(lines) == 1:  # which may list them all
        lines = [name.strip() for name in lines[0].split(",") if name.strip()]
    return lines


def _check_lone(name: str) -> None:
    """Raises UserError about a single class that is most likely not meant as one."""
    if _FILE_NAME.fullmatch(name):
        raise UserError(
            f"--classes {name}: there is no such file; check the path, or list the names with "
            "commas between them."
        )
    if ";" in name:
        raise UserError(f"--classes {quoted(name)} is one class; separate the names by commas.")
