"""sparc-dist experiment."""

from __future__ import annotations

import sys
from argparse import Namespace
from textwrap import fill
from typing import Any

from sparc_dist.cli.options import RUN, absolute_url, add_common, new_command, run_root
from sparc_dist.cli.output import print_failures
from sparc_dist.errors import UserError
from sparc_dist.research import EXPERIMENTS

#: Those of ``research.plug_in_scores``, which takes too long to import for a help page.
METHODS = ("tagclip", "tai-dpt", "comc", "other")
NAMES = fill(", ".join(EXPERIMENTS), 98, initial_indent="  ", subsequent_indent="  ")
TEXT = f"""\
Makes tables and figures of the paper from what a finished run has stored: scores, embeddings and
labels; no image is scored again. For each NAME it writes RUN/experiments/NAME.csv, .md, .png
and .svg, with the paper's figures beside ours where it has them. `all` makes all of them:

{NAMES}

examples:
  sparc-dist experiment all --run sparc-demo
  sparc-dist experiment histograms --run runs/coco --class cat --backbone ViT-B-32
  sparc-dist experiment plug-in --run runs/voc --scores tagclip.npz --method tagclip
  sparc-dist experiment compare --run runs/voc --variants
"""


def add_parser(group: Any) -> None:
    """Adds the command."""
    summary = "make tables and figures of the paper from a run"
    parser = new_command(group, "experiment", experiment, summary, TEXT)
    parser.add_argument("name", metavar="NAME", choices=(*EXPERIMENTS, "all"))
    parser.add_argument("--run", required=True, metavar="RUN", help=RUN)
    for name in ("dataset", "backbone"):
        parser.add_argument(
            f"--{name}", metavar="NAME", help=f"{_applies_to(name)}: only this {name}"
        )
    parser.add_argument(
        "--class",
        metavar="NAME",
        help=f"{_applies_to('class')}: the class (default: cat, or the class that gains most)",
    )
    parser.add_argument(
        "--scores",
        metavar="FILE",
        help=f"{_applies_to('scores')}: another method's scores, images × classes",
    )
    parser.add_argument(
        "--method",
        choices=METHODS,
        help=f"{_applies_to('method')}: whose scores they are (default: other)",
    )
    parser.add_argument(
        "--variants",
        action="store_const",
        const=True,
        help=f"{_applies_to('variants')}: SPARC and duo with parts switched on and off, fitted to "
        "the stored scores, in place of the run's own methods",
    )
    add_common(parser, "--wait")


def experiment(options: Namespace) -> int:
    """Makes experiments on a run."""
    from sparc_dist.research.session import Options, run_experiments
    from sparc_dist.runs import Results, RunLayout, lease, read_record

    names = tuple(EXPERIMENTS) if options.name == "all" else (options.name,)
    given = vars(options)
    for option in ("dataset", "backbone", "class", "scores", "method", "variants"):
        if given[option] is not None and not any(option in EXPERIMENTS[n].options for n in names):
            raise UserError(f"--{option} does not apply to {options.name}; leave it out.")
    if options.method is not None and options.scores is None:
        raise UserError("--method says whose --scores are given; name them too.")
    run = absolute_url("--run", run_root(options.run, "--run"))
    scores = None if options.scores is None else absolute_url("--scores", options.scores)
    chosen = Options(
        dataset=options.dataset,
        backbone=options.backbone,
        label=given["class"],
        scores=scores,
        method=options.method or "other",
        variants=bool(options.variants),
    )
    failed, layout = False, RunLayout(run)
    read_record(layout)  # where there is no run, nothing is written
    with lease.writing(run, options.wait):
        for name, found in run_experiments(names, run, chosen):
            if isinstance(found, str):
                print(f"sparc-dist: {name}: {found}", file=sys.stderr, flush=True)
                failed = True
            else:
                print(found.to_markdown(), flush=True)
    if failed and len(names) == 1:
        return 2
    failures = Results.read(layout, read_record(layout)).failures
    print_failures(failures, sys.stderr)
    print(f"Tables and figures are in {layout.experiments_index}")
    return 1 if failed or failures else 0


def _applies_to(option: str) -> str:
    names = [each.name for each in EXPERIMENTS.values() if option in each.options]
    return f"for {', '.join(names)}"
