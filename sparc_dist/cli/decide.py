"""sparc-dist decide."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparc_dist.cli.options import (
    add_common,
    add_unit,
    new_command,
    positive_float,
    positive_int,
    run_root,
    unknown_class,
)
from sparc_dist.errors import UserError, quoted

if TYPE_CHECKING:
    from sparc_dist.runs.refit import Refit, Rule

TEXT = """\
Fits the decisions of a finished unit again, in seconds, with what you know about the images. Scores
stay as they are; decisions.json, labels/, labels-wide/, metrics.json and the labels.csv of
`sparc-dist label` are written again. Every call starts from the scores: earlier options are
forgotten, and a call without options restores the decisions without any knowledge. The run keeps
the options of the last call, and applies them again if its images change.

examples:
  sparc-dist decide runs/pets --prevalence cat=0.1,dog=0.3
  sparc-dist decide runs/pets --prevalence train.csv     (a table of labels, as for a data set)
  sparc-dist decide runs/pets --per-image 2.5
  sparc-dist ask runs/pets --count 50 --out answers.csv  (fill in yes or no, then:)
  sparc-dist decide runs/pets --answers answers.csv
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    summary = "decide again which classes are present, with what you know"
    parser = new_command(group, "decide", decide, summary, TEXT)
    add_unit(parser)
    parser.add_argument(
        "--prevalence",
        metavar="CLASS=SHARE,…|FILE",
        help="the share of images that contain a class; or a .csv or .parquet table of labels",
    )
    parser.add_argument(
        "--per-image", type=positive_float, metavar="X", help="mean number of classes in an image"
    )
    parser.add_argument(
        "--answers",
        metavar="FILE.csv|FOLDER",
        help="rows of image_id, class, answer (yes, no, unsure or empty), as `sparc-dist ask` "
        "writes them; or a folder of such files, as `sparc-dist view` writes them",
    )
    fixed = parser.add_mutually_exclusive_group()
    fixed.add_argument(
        "--threshold", type=_probability, metavar="P", help="present from this probability on"
    )
    fixed.add_argument(
        "--top", type=positive_int, metavar="K", help="present are the K highest of each image"
    )
    add_common(parser, "--raw-csv", "--wait")


def decide(options: Namespace) -> int:
    """Refits the decisions of a unit and prints them."""
    from sparc_dist.report.labels import update_labels
    from sparc_dist.runs import lease
    from sparc_dist.runs.decisions import doubts_of, sentences
    from sparc_dist.runs.refit import refit
    from sparc_dist.runs.run import open_unit

    root = run_root(options.run)
    open_unit(root, options.dataset, options.backbone, deciding=True)  # or else nothing is written
    with lease.writing(root, options.wait):
        unit = open_unit(root, options.dataset, options.backbone, deciding=True)
        rule = _rule(options, unit.classes)
        done = refit(unit, rule)
        update_labels(root, unit, options.raw_csv)
    print(_table(unit.classes, done, rule))
    for doubt in sentences(doubts_of(done.decision.status, unit.classes)):
        print(doubt)
    if done.unknown:
        print(
            f"{len(done.unknown)} of the {len(rule.answers)} images with answers have no scores, "
            f"such as {quoted(done.unknown[0])}; their answers were left out."
        )
    if done.before and done.after:
        for key, title in (("micro_f1", "micro-F1"), ("macro_f1", "macro-F1")):
            print(f"{title}: {_percent(done.before[key])} before, {_percent(done.after[key])} now")
    print(f"The labels are in {unit.unit.root}")
    print(f"`sparc-dist report {options.run}` updates the report")
    return 0


def _rule(options: Namespace, classes: Sequence[str]) -> Rule:
    from sparc_dist.core import Knowledge
    from sparc_dist.runs.answers import read_answers
    from sparc_dist.runs.refit import Rule

    if options.top is not None and options.top > len(classes):
        raise UserError(f"--top {options.top}: there are only {len(classes)} classes; lower it.")
    if options.per_image is not None and options.per_image > len(classes):
        raise UserError(
            f"--per-image {options.per_image:g}: there are only {len(classes)} classes; lower it."
        )
    given = _prevalences(options.prevalence, classes) if options.prevalence is not None else {}
    return Rule(
        Knowledge(given, per_image=options.per_image),
        read_answers(options.answers, classes) if options.answers is not None else {},
        options.threshold,
        options.top,
    )


def _prevalences(text: str, classes: Sequence[str]) -> dict[int, float]:
    """Returns prevalences by the index of a class, from pairs or from a table of labels."""
    if text.endswith((".csv", ".parquet")):
        return _from_table(text, classes)
    found: dict[int, float] = {}
    for part in _parts(text, classes):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            raise UserError(
                f"--prevalence {text}: {quoted(part)} is not CLASS=SHARE; write it like "
                f"{classes[0]}=0.1, or give a .csv or .parquet table of labels."
            )
        if name not in classes:
            raise unknown_class("--prevalence", name, classes)
        if classes.index(name) in found:
            raise UserError(f"--prevalence: {quoted(name)} is given twice; keep one.")
        found[classes.index(name)] = _share(name, number)
    return found


def _parts(text: str, classes: Sequence[str]) -> Iterator[str]:
    """Yields the pairs of a text; a comma within the name of a class does not separate."""
    while text:
        name = max((name for name in classes if text.startswith(f"{name}=")), key=len, default="")
        pair, _, rest = text[len(name) :].partition(",")
        yield name + pair
        text = rest.lstrip()


def _share(name: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(f"--prevalence {name}={number}: write a share between 0 and 1, like 0.1.")
    return value


def _from_table(url: str, classes: Sequence[str]) -> dict[int, float]:
    """Returns the share of a table's labelled images that contain each class."""
    from collections import Counter

    from sparc_dist.datasets.manifest import Manifest

    images, found, manifest = 0, Counter[int](), Manifest(url, classes)
    for batch in manifest.labels():
        images += len(batch)
        for labels in batch:
            found.update(labels)
    if not found:
        raise UserError(f"--prevalence {url}: no row has labels; fill in the column `labels`.")
    for note in manifest.notes:
        print(note)
    absent = [name for index, name in enumerate(classes) if not found[index]]
    if absent:
        print(f"No row of {url} contains {', '.join(absent)}; that prevalence is estimated.")
    return {index: count / images for index, count in sorted(found.items())}


def _table(classes: Sequence[str], done: Refit, rule: Rule) -> str:
    """Returns one line per class."""
    from sparc_dist.runs.tables import aligned

    rows = [("class", "prevalence", "present from", "status")]
    decision = done.decision
    numbers = zip(decision.prevalence, decision.threshold_probability, strict=True)
    for name, status, (share, threshold) in zip(classes, decision.status, numbers, strict=True):
        limit = _number(threshold) if rule.top is None else f"top {rule.top}"
        rows.append((name, _number(share), limit, status))
    return aligned(rows, "lrrl")


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ArgumentTypeError("must be a probability between 0 and 1, such as 0.5")
    return value
