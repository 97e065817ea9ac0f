"""What commands that run something print at the end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from sparc_dist.config import Config
    from sparc_dist.runs import Phase, Results, UnitKey


def run_config(config: Config, overwrite: bool, phase: Phase = "all") -> int:
    """Runs a config, writes its report and prints it; returns the exit code."""
    from sparc_dist.report import write_report

    done = run_to_end(config, overwrite, phase)
    results = write_report(done.layout.root)
    if phase == "score":
        print_failures(done.failures)
        print(f"Scores are in {done.layout.root}; --only reduce continues from them")
    else:
        print_report(done.layout.root, results)
    return 1 if done.failures else 0


def run_to_end(config: Config, overwrite: bool, phase: Phase = "all") -> Results:
    """Runs a config; says so if nothing was missing."""
    from sparc_dist.runner import run

    results = run(config, overwrite, phase)
    if results.nothing_to_do:
        print("The run was already finished; nothing was missing.", file=sys.stderr)
    for dataset, changes in results.changes.items():
        print(
            f"{dataset}: {changes}; the run keeps to its own list, --overwrite takes the new one.",
            file=sys.stderr,
        )
    return results


def print_report(root: str, results: Results) -> None:
    """Prints the main table and where everything is."""
    from sparc_dist.report import to_markdown
    from sparc_dist.runs import RunLayout

    print(to_markdown(results))
    if results.metrics:
        print(f"Scores, metrics and report are in {root}")
    if results.failures:
        units = len(results.datasets) * len(results.backbones)
        print(f"{len(results.failures)} of {units} units failed; the report says why")
    print(f"Open {RunLayout(root).report}/index.html")


def print_failures(failures: dict[UnitKey, str], file: TextIO | None = None) -> None:
    """Prints one line for each failed unit."""
    for (dataset, backbone), reason in failures.items():
        print(f"{dataset} × {backbone} failed: {reason}", file=file)
