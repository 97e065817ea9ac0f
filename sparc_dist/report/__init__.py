"""The report: tables for people and programs, a page, example pictures, a list of labels.

Belongs here: turning what a run left in storage into what people read. Does not: computing metrics
(``pipeline``). Needs no Ray. Uses: ``runs``, ``prompts``, ``images``, ``storage``, ``errors``.
"""

from sparc_dist.report.tables import to_markdown
from sparc_dist.report.write import write_report

__all__ = ["to_markdown", "write_report"]
