"""The report: tables for people and programs, a page, example pictures. From storage alone."""

from sparc_dist.report.write import write_report

__all__ = ["write_report"]
