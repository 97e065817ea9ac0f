"""The main table, as in the paper, and one of the decisions.

The main table has one row per data set and method, one column per backbone, and their ensemble.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparc_dist.core import FUSIONS
from sparc_dist.runs import Results
from sparc_dist.runs.tables import Table, shown

#: What is shown of decisions: the key in metrics.json, the title, the digits. The best F1 is that
#: of the best threshold of each class, which only labels tell.
DECISIONS = (
    ("micro_f1", "micro F1 (%)", 1),
    ("oracle_micro_f1", "best micro F1 (%)", 1),
    ("macro_f1", "macro F1 (%)", 1),
    ("oracle_macro_f1", "best macro F1 (%)", 1),
    ("sample_f1", "F1 per image (%)", 1),
    ("precision", "precision (%)", 1),
    ("recall", "recall (%)", 1),
    ("ece", "calibration error", 3),
)


def to_markdown(results: Results) -> str:
    """Returns tables.md."""
    columns = ["data set", "method", *results.columns]
    rows = [[dataset, FUSIONS[method].title, *values] for dataset, method, values in results.rows()]
    remarks = "".join(f"- {remark}\n" for remark in results.remarks())
    warnings = "".join(f"{warning}\n\n" for warning in results.warnings())
    page = f"# mAP (%)\n\n{warnings}{Table(columns, rows).to_markdown()}"
    parts = [page, *_decisions(results), *([remarks] if remarks else [])]
    return "\n".join(parts)


def _decisions(results: Results) -> Iterator[str]:
    """Yields how good the decisions of labelled units are; nothing if there are none."""
    rows = [
        [
            *key,
            FUSIONS[method].title,
            *(shown(found[name], digits) for name, _, digits in DECISIONS),
        ]
        for key, metrics in results.metrics.items()
        for method in FUSIONS
        if (found := metrics.get(method, {}).get("decisions"))
    ]
    if rows:
        columns = ["data set", "backbone", "method", *(title for _, title, _ in DECISIONS)]
        yield f"## Decisions\n\n{Table(columns, rows).to_markdown()}"


def to_csv(results: Results) -> str:
    """Returns tables.csv: one line per data set, backbone and method."""
    rows = [
        [dataset, backbone, method, value]
        for dataset, method, values in results.rows()
        for backbone, value in zip(results.columns, values, strict=True)
    ]
    return Table(("dataset", "backbone", "method", "mAP"), rows).to_csv()
