"""The report: pages (``site``), tables in Markdown and CSV, pictures, labels (``export``).

Belongs here: turning the files of a run into something people read. Does not: computing metrics
(``pipeline``). Needs no Ray. Uses: ``runs``, ``prompts``, ``images``, ``storage``, ``errors``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparc_dist.report.tables import to_markdown
    from sparc_dist.report.write import read_results, write_report

__all__ = ["read_results", "to_markdown", "write_report"]

#: The module of each export, which is imported when the name is first used: the viewer writes no
#: report, and should not wait for what that needs.
_MODULES = {
    "read_results": "sparc_dist.report.write",
    "to_markdown": "sparc_dist.report.tables",
    "write_report": "sparc_dist.report.write",
}

if not TYPE_CHECKING:  # mypy would take any name for one of the package

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_MODULES[name]), name)
        return value
