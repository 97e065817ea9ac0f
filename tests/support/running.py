"""Running a config in this process."""

from __future__ import annotations

from pathlib import Path

from sparc_dist.config import load_config
from sparc_dist.report import write_report
from sparc_dist.runner import run
from sparc_dist.runs import Results


def go(folder: Path) -> Results:
    """Run the config of a folder in this process."""
    outcome = run(load_config(str(folder / "config.yaml")))
    write_report(outcome.layout.root)
    return outcome
