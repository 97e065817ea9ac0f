"""Gathers what the units left and writes the report's files."""

from __future__ import annotations

from itertools import product
from typing import Any

from sparc_dist import storage
from sparc_dist.layout import RunLayout
from sparc_dist.prompts.bank import PromptBank
from sparc_dist.record import read_record
from sparc_dist.report.examples import example_sheet
from sparc_dist.report.page import to_html
from sparc_dist.report.tables import Results, to_csv, to_markdown


def write_report(run: str) -> Results:
    """Write ``report/`` of a run: tables.md, tables.csv, index.html and example pictures.

    A report that is of these very results is left as it is: no image is looked at.
    """
    layout = RunLayout(run)
    results = gather(layout, read_record(layout))
    of = {"sha256": results.sha256}
    if storage.read_own_json(layout.report_marker) != of:
        _write(layout, results)
        storage.write_json(layout.report_marker, of)
    return results


def _write(layout: RunLayout, results: Results) -> None:
    pictures = []
    for dataset, backbone in results.metrics:
        data = layout.dataset(dataset)
        bank = PromptBank.from_table(storage.read_table(data.prompts))
        sheet = example_sheet(data, data.unit(backbone), list(bank.classes))
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


def gather(layout: RunLayout, record: dict[str, Any]) -> Results:
    """The metrics of the units of a run, in the order of its config."""
    datasets = [dataset["name"] for dataset in record["config"]["datasets"]]
    backbones = [backbone["name"] for backbone in record["config"]["backbones"]]
    metrics: dict[tuple[str, str], dict[str, Any]] = {}
    failures: dict[tuple[str, str], str] = {}
    notes = {}
    for name in datasets:
        if prepared := storage.read_own_json(layout.dataset(name).marker):
            notes[name] = prepared["notes"]
    for key in product(datasets, backbones):
        if done := storage.read_own_json(layout.dataset(key[0]).unit(key[1]).metrics):
            metrics[key] = done
    for unit in record.get("units", []):
        if unit["status"] == "failed":
            failures[unit["dataset"], unit["backbone"]] = unit["error"]
    return Results(datasets, backbones, metrics, failures, notes)
