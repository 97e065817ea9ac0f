"""Experiments: every table and figure of the paper, from what a run has stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module

from sparc_dist import storage
from sparc_dist.experiments.ablations import ABLATIONS, Ablation
from sparc_dist.experiments.figures import to_png, to_svg
from sparc_dist.experiments.laboratory import Laboratory, Options, told
from sparc_dist.experiments.opened import open_run
from sparc_dist.experiments.result import Result
from sparc_dist.layout import EXPERIMENTS, RunLayout

log = logging.getLogger(__name__)

#: Where experiments other than ablations are made.
MODULES = {
    "main": "main_table:main_table",
    "per-class": "per_class:per_class",
    "plug-in": "plug_in:plug_in",
    "noise-model": "noise_model:noise_model",
    "theory": "theory:theory",
    "histograms": "one_class:histograms",
    "examples": "one_class:examples",
}

__all__ = ["Options", "run_experiments"]


def run_experiments(
    names: Sequence[str], url: str, options: Options
) -> Iterator[tuple[str, Result | str]]:
    """Make experiments on the run at ``url``; what fails gives a sentence, and the others go on."""
    run = open_run(url)
    storage.check_access(url)
    with Laboratory(run, options, names) as laboratory:
        for name in names:
            try:
                result = _experiment(name)(laboratory)
                _write(run.layout, name, result)
            except Exception as error:
                log.debug("experiment failed", exc_info=error)
                yield name, told(error)
            else:
                yield name, result
        _write_index(run.layout)


def _experiment(name: str) -> Callable[[Laboratory], Result]:
    """What makes an experiment; Ray is imported only for those that need it."""
    if name in ABLATIONS:
        return partial(_ablation, ABLATIONS[name])
    module, _, function = MODULES[name].partition(":")
    found: Callable[[Laboratory], Result] = getattr(
        import_module(f"sparc_dist.experiments.{module}"), function
    )
    return found


def _ablation(ablation: Ablation, laboratory: Laboratory) -> Result:
    return ablation.result(laboratory.run, *laboratory.ablations())


def _write(layout: RunLayout, name: str, result: Result) -> None:
    contents = {
        "csv": result.table.to_csv().encode(),
        "md": result.to_markdown(f"{name}.png").encode(),
        "png": to_png(result.figure),
        "svg": to_svg(result.figure),
    }
    for ending, content in contents.items():
        storage.write_bytes(layout.experiment(name, ending), content)


def _write_index(layout: RunLayout) -> None:
    """All experiments that were ever made on the run, on one page."""
    pages = [storage.read_own(layout.experiment(name, "md")) for name in EXPERIMENTS]
    content = b"\n".join(page for page in pages if page is not None)
    storage.write_bytes(layout.experiments_index, content)
