"""What commands print: the end of a run, and names of others that cannot control the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from sparc_dist.cli.options import EXTEND
from sparc_dist.errors import printable

if TYPE_CHECKING:
    from sparc_dist.config import Config
    from sparc_dist.runs import Growing, Phase, Results, Retry, UnitKey

GREY, PLAIN = "\x1b[90m", "\x1b[0m"
#: What is said about changed images, by what was done about them.
FOLLOWS: dict[Growing | None, str] = {
    None: "the run keeps to its own list, {extend}--overwrite starts over",
    "label": "new ones are labelled with the labeler fitted on the others, and removed ones are "
    "left out; --refit fits it again over all",
    "refit": "all that are there now were fitted again",
    "extend": "new ones were added and all fitted again, removed ones stay",
}
EMBEDDED = "the embeddings are those of the images as they were"


class _Printable:
    """A stream that escapes control characters other than the ends of lines, and our own grey."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        grey = text.startswith(GREY) and text.endswith(PLAIN) and self.isatty()
        inner = text[len(GREY) : -len(PLAIN)] if grey else text
        shown = printable(inner, allowed="\n\t")
        self._stream.write(f"{GREY}{shown}{PLAIN}" if grey else shown)
        return len(text)


@contextmanager
def printable_output() -> Iterator[None]:
    """Within the block, what is printed does nothing to the terminal."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_Printable, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def grey(line: str) -> str:
    """Returns a line in grey on a terminal."""
    return f"{GREY}{line}{PLAIN}" if sys.stdout.isatty() else line


def run_config(
    config: Config,
    overwrite: bool,
    phase: Phase = "all",
    growing: Growing | None = None,
    embeddings_from: str | None = None,
    retry_errors: Retry = "passing",
) -> int:
    """Runs a config, writes its report and prints it; returns the exit code."""
    from sparc_dist.pipeline.executor import kept
    from sparc_dist.report import write_report

    with kept():
        done = run_to_end(config, overwrite, phase, growing, embeddings_from, retry_errors)
        results = write_report(done.layout.root, resources=config.resources)
    if phase == "score":
        print_failures(done.failures)
        print(f"Scores are in {done.layout.root}; --only reduce continues from them")
    else:
        print_report(done.layout.root, results)
    return 1 if done.failures else 0


def run_to_end(
    config: Config,
    overwrite: bool,
    phase: Phase = "all",
    growing: Growing | None = None,
    embeddings_from: str | None = None,
    retry_errors: Retry = "passing",
) -> Results:
    """Runs a config; says so if nothing was missing."""
    from sparc_dist.runner import run

    results = run(config, overwrite, phase, growing, embeddings_from, retry_errors)
    if results.nothing_to_do:
        print("The run was already finished; nothing was missing.", file=sys.stderr)
    what = FOLLOWS[growing].format(extend=EXTEND) if embeddings_from is None else EMBEDDED
    for dataset, changes in results.changes.items():
        print(f"{dataset}: {changes}; {what}.", file=sys.stderr)
    return results


def print_report(root: str, results: Results) -> None:
    """Prints the main table and where everything is."""
    from sparc_dist.report import to_markdown
    from sparc_dist.runs import RunLayout

    print(to_markdown(results))
    if results.metrics:
        print(f"Scores, metrics and report are in {root}")
    if results.failures:
        units = len(results.datasets) * len(results.units)
        print(f"{len(results.failures)} of {units} units failed; the report says why")
    print(f"Open {RunLayout(root).report}/index.html")


def print_failures(failures: dict[UnitKey, str], file: TextIO | None = None) -> None:
    """Prints one line for each failed unit."""
    for (dataset, backbone), reason in failures.items():
        print(f"{dataset} × {backbone} failed: {reason}", file=file)
