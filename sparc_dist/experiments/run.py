"""Runs experiments on a finished run and writes their files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sparc_dist import storage
from sparc_dist.errors import explain
from sparc_dist.experiments.catalogue import EXPERIMENTS
from sparc_dist.experiments.figures import to_png, to_svg
from sparc_dist.experiments.finished_run import open_run
from sparc_dist.experiments.result import Result
from sparc_dist.experiments.session import ExperimentSession, Options
from sparc_dist.pipeline import configure_ray
from sparc_dist.runs import RunLayout

log = logging.getLogger(__name__)


def run_experiments(
    names: Sequence[str], url: str, options: Options
) -> Iterator[tuple[str, Result | str]]:
    """Yields each experiment's name with its result, or with the reason why it failed."""
    configure_ray()
    run = open_run(url, any("labels" in EXPERIMENTS[name].needs for name in names))
    storage.check_access(url)
    with ExperimentSession(run, options, names) as session:
        for name in names:
            try:
                result = EXPERIMENTS[name].run(session)
                _write(run.layout, name, result)
            except Exception as error:
                log.debug("experiment failed", exc_info=error)
                yield name, explain(error)
            else:
                yield name, result


def _write(layout: RunLayout, name: str, result: Result) -> None:
    contents = {
        "csv": result.table.to_csv().encode(),
        "md": result.to_markdown(f"{name}.png").encode(),
        "png": to_png(result.figure),
        "svg": to_svg(result.figure),
    }
    for ending, content in contents.items():
        storage.write_bytes(layout.experiment(name, ending), content)
    _write_index(layout)


def _write_index(layout: RunLayout) -> None:
    """Writes the pages of all experiments on the run, including earlier ones, to one page.

    When the run is replaced, the pictures on this page say which experiments to delete.
    """
    pages = [storage.read_if_exists(layout.experiment(name, "md")) for name in EXPERIMENTS]
    content = b"\n".join(page for page in pages if page is not None)
    storage.write_bytes(layout.experiments_index, content)
