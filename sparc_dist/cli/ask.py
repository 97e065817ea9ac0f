"""sparc-dist ask."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from sparc_dist.cli.options import (
    add_unit,
    check_no_key,
    new_command,
    non_negative_int,
    positive_int,
    run_root,
    unknown_class,
)

TEXT = """\
Writes a CSV file with rows image_id, uri, class, answer. Fill in yes or no under `answer`, by hand
or in a spreadsheet, and give the file to `sparc-dist decide RUN --answers FILE`. Rows may stay
empty; images are in random order, so stop when you like.

Images are taken at random, every class of each; with --class they are spread evenly over the scores
of that class. Not the uncertain ones: their answers look only at the border, and say little about
how frequent a class is. On photos of COCO, asking about 200 uncertain images gave 0.89 of the best
possible micro-F1, about 200 images at random 0.95.

example:
  sparc-dist ask runs/pets --count 50 --out answers.csv
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    summary = "list images and classes whose answers would improve decisions"
    parser = new_command(group, "ask", ask, summary, TEXT)
    add_unit(parser)
    parser.add_argument(
        "--count",
        type=positive_int,
        default=50,
        metavar="N",
        help="number of images (default: %(default)s)",
    )
    parser.add_argument("--out", required=True, metavar="FILE.csv", help="a new file")
    parser.add_argument("--class", dest="name", metavar="NAME", help="ask only about this class")
    parser.add_argument(
        "--seed",
        type=non_negative_int,
        default=0,
        metavar="N",
        help="another seed asks about other images (default: %(default)s)",
    )


def ask(options: Namespace) -> int:
    """Writes the questions about a unit."""
    from sparc_dist.runs.answers import check_new, questions, write_questions
    from sparc_dist.runs.run import open_unit

    check_no_key("--out", options.out)
    check_new(options.out)
    unit = open_unit(run_root(options.run), options.dataset, options.backbone)
    if options.name is not None and options.name not in unit.classes:
        raise unknown_class("--class", options.name, unit.classes)
    asked = list(questions(unit, options.count, options.seed, options.name))
    write_questions(options.out, asked)
    images = len({question.image_id for question in asked})
    chosen = "".join(
        f" --{what} {name}"
        for what, name in (("dataset", options.dataset), ("backbone", options.backbone))
        if name is not None
    )
    print(
        f"{len(asked)} questions about {images} images are in {options.out}. Fill in yes or no, "
        f"then: sparc-dist decide {options.run}{chosen} --answers {options.out}"
    )
    return 0
