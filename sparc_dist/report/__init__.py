"""The report: tables in Markdown and CSV, an HTML page, example pictures, labels (``export``).

Belongs here: turning the files of a run into something people read. Does not: computing metrics
(``pipeline``). Needs no Ray. Uses: ``runs``, ``prompts``, ``images``, ``storage``, ``errors``.
"""

from sparc_dist.report.tables import to_markdown
from sparc_dist.report.write import write_report

__all__ = ["to_markdown", "write_report"]
