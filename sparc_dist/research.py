"""What the commands of researchers do, once their options are read."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from sparc_dist import storage
from sparc_dist.layout import EXPERIMENTS, RunLayout


def experiment(options: Namespace) -> int:
    """sparc-dist experiment."""
    from sparc_dist.experiments import Options, run_experiments

    names = EXPERIMENTS if options.name == "all" else (options.name,)
    chosen = Options(
        options.dataset, options.backbone, options.label, options.scores, options.method
    )
    failed = False
    run = storage.absolute(options.run, os.getcwd())  # for workers, wherever they are
    for name, found in run_experiments(names, run, chosen):
        if isinstance(found, str):
            print(f"sparc-dist: {name}: {found}", file=sys.stderr, flush=True)
            failed = True
        else:
            table = (found.summary or found.table).to_markdown()
            remarks = "\n".join(f"- {remark}" for remark in found.remarks)
            print(f"# {found.title}\n\n{table}\n{remarks}\n", flush=True)
    if failed and len(names) == 1:
        return 2
    print(f"Tables and figures are in {RunLayout(options.run).experiments_index}")
    return 1 if failed else 0
