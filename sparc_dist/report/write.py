"""Writes the report's files from the stored results of the units."""

from __future__ import annotations

from sparc_dist import storage
from sparc_dist.prompts import PromptBank
from sparc_dist.report.examples import example_sheet
from sparc_dist.report.page import to_html
from sparc_dist.report.tables import to_csv, to_markdown
from sparc_dist.runs import Results, RunLayout, read_record


def write_report(run: str) -> Results:
    """Writes ``report/`` of a run: tables.md, tables.csv, index.html and example pictures.

    A report of the same results is left as it is, without reading any image.
    """
    layout = RunLayout(run)
    results = Results.read(layout, read_record(layout))
    marker = {"sha256": results.sha256}
    if storage.read_json_if_exists(layout.report_marker) != marker:
        _write(layout, results)
        storage.write_json(layout.report_marker, marker)
    return results


def _write(layout: RunLayout, results: Results) -> None:
    pictures = []
    for (dataset, backbone), metrics in results.metrics.items():
        data = layout.dataset(dataset)
        bank = PromptBank.from_table(storage.read_table(data.prompts))
        sheet = example_sheet(
            data, data.unit(backbone), list(bank.classes), metrics.get("primary", "sparc")
        )
        if sheet is not None:
            url = layout.figure(dataset, backbone)
            pictures.append(url.removeprefix(layout.report + "/"))
            storage.write_bytes(url, sheet)
    texts = {
        "tables.md": to_markdown(results),
        "tables.csv": to_csv(results),
        "index.html": to_html(results, pictures),
    }
    for name, text in texts.items():
        storage.write_bytes(storage.join(layout.report, name), text.encode())
