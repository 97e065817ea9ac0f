"""The tables of the report: mAP as in the paper, decisions; cells that no spreadsheet runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sparc_dist.core import FUSIONS
from sparc_dist.runs import Results
from sparc_dist.runs.tables import Table, shown

#: Excel, LibreOffice and Google Sheets calculate cells that begin so, and follow their links.
FORMULA = r"^[=+\-@\t\r\n]"
_FORMULA = re.compile(FORMULA)


def cell(text: str) -> str:
    """Returns a text that spreadsheets show as it is: an apostrophe precedes a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def cells(table: Any) -> Any:
    """Returns an Arrow table whose names and texts spreadsheets show as they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_string(field.type):
            quoted = pc.binary_join_element_wise("", column, "'")
            column = pc.if_else(pc.match_substring_regex(column, FORMULA), quoted, column)
        table = table.set_column(place, cell(field.name), column)
    return table


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
