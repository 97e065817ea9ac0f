"""The files of a report: links, escapes, what an earlier report leaves, and what is deleted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sparc_dist import storage
from sparc_dist.report import write_report
from sparc_dist.report.charts import Axis
from sparc_dist.report.exhibit import UnitExhibit
from sparc_dist.report.other_runs import OtherRun
from sparc_dist.report.scripts import PART, part_of, script
from sparc_dist.report.site import site
from sparc_dist.runs import Results, RunLayout
from sparc_dist.runs.record import discard, read_record
from tests.support.exhibits import HOSTILE, hostile, ordinary, results_of, unit
from tests.support.golden_unit import write_unit


class Links(HTMLParser):
    """Collects what a page refers to, and every tag and attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.risky: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")
            if name.startswith("on") or name == "style":
                self.risky.append(f"{tag} {name}")
        if tag == "script" and "src" not in dict(attrs):
            self.risky.append("script")


@pytest.mark.parametrize("made", [ordinary, hostile])
def test_every_link_leads_to_a_file_of_the_report(made: type, tmp_path: Path) -> None:
    folder = made(tmp_path)
    pages = list(folder.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        found = Links()
        found.feed(page.read_text(encoding="utf-8"))
        assert found.risky == []
        assert len(set(found.ids)) == len(found.ids)
        for link in found.links:
            if link != "data:,":
                assert not urlsplit(link).scheme
                assert (page.parent / urlsplit(link).path).exists(), link


def test_a_script_holds_any_text_and_ends_where_it_ends() -> None:
    text = script("images-0", HOSTILE)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text.removeprefix('window["images-0"] = ').removesuffix(";\n")) == HOSTILE


def test_parts_have_similar_sizes() -> None:
    keys = [f"{number:06d}" for number in range(40 * PART)]
    counts = [0] * 40
    for key in keys:
        counts[part_of(key, 40)] += 1
    assert max(counts) < 3 * PART


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0, 100, ["0", "20", "40", "60", "80", "100"]),
        (-0.31, 0.52, ["-0.2", "0", "0.2", "0.4"]),
        (0, 12_000, ["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000"]),
    ],
)
def test_axes_have_round_ticks(low: float, high: float, texts: list[str]) -> None:
    assert [text for _, text in Axis("x", low, high, 0, 100).ticks()] == texts


def test_another_run_can_be_compared() -> None:
    ours, theirs = results_of(unit("B32", 1)), results_of(unit("RN50", 2))
    other = Results(RunLayout("/secret/place/before"), ["voc"], ["RN50"], theirs.metrics)
    files = dict(site(ours, (), {}, [OtherRun(other)]))
    assert "before: voc × RN50: SPARC" in files["compare-data.js"]
    assert "before has no data set that this report has." in files["compare-data.js"]
    assert "secret" not in "".join(files.values())


def test_units_without_labels_have_pages() -> None:
    made = [unit(name, seed) for seed, name in enumerate(("B32", "RN50"))]
    bare = [_without_labels(one) for one in made]
    files = dict(site(results_of(*bare), bare, {}))
    page = files["voc-B32/class-c0.html"]
    assert "Just below the threshold" in page
    for told in ("Precision and recall", "Misses", "AP,", "F1", "not labelled", "right"):
        assert told not in page
    assert "AP," not in files["voc-B32/index.html"]
    assert "voc × RN50: SPARC" in files["compare-data.js"]  # their images can be compared


def _without_labels(made: UnitExhibit) -> UnitExhibit:
    classes = [
        replace(
            shown,
            rows=dict(list(shown.rows.items())[:4]),
            ap={},
            precision_recall=(),
            f1=None,
            precision=None,
            recall=None,
        )
        for shown in made.classes
    ]
    images = {key: replace(image, truth=None) for key, image in made.images.items()}
    empty: dict[str, Any] = {
        name: {"mAP": None, "AP": {}} for name in ("zsclip", "debiased", "sparc", "duo")
    }
    metrics = {**made.metrics, **empty, "labelled": 0}
    return replace(made, classes=classes, images=images, metrics=metrics)


def test_a_run_without_results_has_a_page() -> None:
    files = dict(site(Results(RunLayout("/nowhere"), ["voc"], ["B32"]), (), {}))
    assert sorted(files) == ["index.html", "report.js", "style.css"]


def test_a_report_is_written_once_and_deleted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_unit(tmp_path)
    folder = tmp_path / "report"
    write_report(str(tmp_path))
    marker = json.loads((folder / "report.json").read_text())
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == {*marker["files"], "report.json"}
    (folder / "index.html").write_text("mine")
    write_report(str(tmp_path))
    assert (folder / "index.html").read_text() == "mine"
    monkeypatch.setattr("sparc_dist.report.write.__version__", "another")
    write_report(str(tmp_path))
    assert (folder / "index.html").read_text() != "mine"

    outside = tmp_path / "mine.txt"
    outside.write_text("mine")
    (folder / "old.html").write_text("of a report before")
    earlier = {"sha256": "other", "files": {"old.html": "", "../mine.txt": ""}}
    storage.write_json(str(folder / "report.json"), earlier)
    write_report(str(tmp_path))
    assert not (folder / "old.html").exists()
    assert (folder / "index.html").read_text() != "mine"

    discard(RunLayout(str(tmp_path)), read_record(RunLayout(str(tmp_path))))
    assert not [path for path in folder.rglob("*") if path.is_file()]
    assert outside.exists()
