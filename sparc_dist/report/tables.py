"""The main table, as in the paper: one row per data set and method, one column per backbone."""

from __future__ import annotations

from sparc_dist.runs import TITLES, Results
from sparc_dist.runs.tables import Table


def to_markdown(results: Results) -> str:
    """Returns tables.md."""
    columns = ["data set", "method", *results.backbones, "average"]
    rows = [[dataset, TITLES[method], *values] for dataset, method, values in results.rows()]
    remarks = "".join(f"- {remark}\n" for remark in results.remarks())
    warnings = "".join(f"{warning}\n\n" for warning in results.warnings())
    page = f"# mAP (%)\n\n{warnings}{Table(columns, rows).to_markdown()}"
    return f"{page}\n{remarks}" if remarks else page


def to_csv(results: Results) -> str:
    """Returns tables.csv: one line per data set, backbone and method."""
    backbones = [*results.backbones, "average"]
    rows = [
        [dataset, backbone, method, value]
        for dataset, method, values in results.rows()
        for backbone, value in zip(backbones, values, strict=True)
    ]
    return Table(("dataset", "backbone", "method", "mAP"), rows).to_csv()
