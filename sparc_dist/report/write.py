"""Writes the report's files from the stored results of the units."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

from sparc_dist import __version__, storage
from sparc_dist.config import ResourcesConfig
from sparc_dist.pipeline.executor import executor, joins_ray
from sparc_dist.pipeline.progress import heartbeat
from sparc_dist.prompts import PromptBank
from sparc_dist.report.exhibit import UnitExhibit
from sparc_dist.report.exhibits import build_exhibits
from sparc_dist.report.other_runs import OtherRun, read_other
from sparc_dist.report.pictures import Thumbnails, example_sheet
from sparc_dist.report.site import site
from sparc_dist.report.tables import to_csv, to_markdown
from sparc_dist.runs import Results, RunLayout, UnitKey, read_record, report_files


def write_report(
    run: str, against: Sequence[str] = (), resources: ResourcesConfig | None = None
) -> Results:
    """Writes ``report/`` of a run: tables.md, tables.csv, pages and example pictures.

    against: other runs that the page for comparisons offers, too. A report of the same results by
    the same version is left as it is, without reading any image. Works on the executor in use, else
    on a Ray that there is to join, else in this process. resources: of the run.
    """
    results, *others = map(read_results, (run, *against))
    marker = storage.read_json_if_exists(results.layout.report_marker)
    # Another version has other pages.
    sha256 = "+".join((__version__, *(one.sha256 for one in (results, *others))))
    if marker is None or marker.get("sha256") != sha256:
        given = resources or ResourcesConfig()
        here, limit = given.executor == "process" or not joins_ray(), given.no_progress_seconds
        with heartbeat("writing the report"), executor(given, small=here):
            exhibits = list(build_exhibits(results, limit).values())
            compared = [read_other(other, exhibits, limit) for other in others]
            # Without the pages of a unit whose files could not be read, it is written again.
            complete = len(exhibits) == len(results.metrics)
            _write(results, exhibits, compared, sha256 if complete else "")
    return results


def read_results(run: str) -> Results:
    """Returns the results of a run."""
    layout = RunLayout(run)
    return Results.read(layout, read_record(layout))


def _write(
    results: Results, exhibits: Sequence[UnitExhibit], others: Sequence[OtherRun], sha256: str
) -> None:
    """Writes all files and deletes what only an earlier report had.

    The marker names the files before they are written, so that none is left behind without a name.
    Nothing is deleted while a unit is not shown: its files may only be out of reach for a while.
    """
    layout = results.layout
    earlier = report_files(layout)
    shown = {(unit.dataset, unit.backbone) for unit in exhibits}
    whole = shown.issuperset(product(results.datasets, results.units))
    kept = {} if whole else earlier
    sheets = _sheets(layout, results)
    figures = {key: _figure(layout, key) for key in sheets}
    # Many programs show HTML in Markdown.
    tables = html.escape(to_markdown(results), quote=False)
    texts = {"tables.md": tables, "tables.csv": to_csv(results)}
    texts |= dict(site(results, exhibits, figures, others))
    contents = {name: text.encode(errors="replace") for name, text in texts.items()}
    contents |= {figures[key]: sheet for key, sheet in sheets.items()}
    names = {*contents, *_pictures(layout, exhibits, earlier)}
    named = dict.fromkeys(sorted(names.union(earlier)), "")
    storage.write_json(layout.report_marker, {"files": named})
    with ThreadPoolExecutor(32) as workers:
        list(workers.map(lambda name: _write_one(layout, name, contents), contents))
        old = (storage.join(layout.report, name) for name in named if name not in {*names, *kept})
        list(workers.map(storage.delete, old))
    for dataset in results.datasets if whole else ():
        units = (unit for unit in exhibits if unit.dataset == dataset)
        Thumbnails(layout, dataset).keep({key for unit in units for key in unit.images})
    # Those that were written elsewhere are sealed.
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    files = dict(sorted((kept | dict.fromkeys(names, "") | hashes).items()))
    storage.write_json(layout.report_marker, {"sha256": sha256, "files": files})


def _pictures(
    layout: RunLayout, exhibits: Sequence[UnitExhibit], earlier: Container[str]
) -> Iterator[str]:
    """Yields the thumbnails and their lists; of an image that cannot be read now, the earlier."""
    for unit in exhibits:
        yield layout.thumbnails(unit.dataset).removeprefix(layout.report + "/")
        for key, image in unit.images.items():
            name = layout.thumbnail(unit.dataset, key).removeprefix(layout.report + "/")
            if image.thumbnail or name in earlier:
                yield name


def _write_one(layout: RunLayout, name: str, contents: Mapping[str, bytes]) -> None:
    storage.write_bytes(storage.join(layout.report, name), contents[name])


def _sheets(layout: RunLayout, results: Results) -> dict[UnitKey, bytes]:
    """Returns the example pictures of the units that have some."""
    sheets = {}
    for (dataset, backbone), metrics in results.metrics.items():
        data = layout.dataset(dataset)
        bank = PromptBank.from_table(storage.read_table(data.prompts))
        sheet = example_sheet(data, data.unit(backbone), list(bank.classes), metrics["primary"])
        if sheet is not None:
            sheets[dataset, backbone] = sheet
    return sheets


def _figure(layout: RunLayout, key: UnitKey) -> str:
    return layout.figure(*key).removeprefix(layout.report + "/")
