"""Text in the cells of CSV files, which spreadsheets take for formulas if it begins like one."""

from __future__ import annotations

import re
from typing import Any

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
