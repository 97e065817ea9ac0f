"""plug-in: another method's scores in place of the singleton's, without SPARC and with it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress
from typing import Any

from sparc_dist.core import Method, mean_average_precision
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.unit import Unit
from sparc_dist.research import paper
from sparc_dist.research.plug_in_scores import (
    METHODS,
    MethodName,
    PlugIn,
    none_found,
    prepared,
    read_plug_in,
)
from sparc_dist.research.result import Result, bars, difference
from sparc_dist.research.score_view import STORED, ScoreView
from sparc_dist.research.session import ExperimentSession, FinishedRun, Options
from sparc_dist.research.variants import ZSCLIP, Variant, Variants, evaluate_variants
from sparc_dist.runs import UnitShards
from sparc_dist.runs.shards import image_shards
from sparc_dist.runs.tables import Cell, Table

#: The paper's names of the methods.
PAPER_NAMES = {"tagclip": "TagCLIP", "tai-dpt": "TaI-DPT", "comc": "CoMC"}
COLUMNS = (
    *("data set", "backbone", "method", "images", "alone (%)", "with SPARC (%)", "gain"),
    *("paper alone (%)", "paper with SPARC (%)", "difference"),
)


def plug_in(session: ExperimentSession) -> Result:
    """Returns the mAP of the scores alone, and with SPARC on top."""
    run, options = session.run, session.options
    remarks: list[str] = []
    rows: list[list[Cell]] = []
    if options.scores is None:
        remarks.append(
            "No scores of another method were given: name a Parquet, CSV, NPZ or pickle file of "
            "images × classes with --scores, and its method (TagCLIP, TaI-DPT or CoMC) with "
            "--method."
        )
    else:
        by_unit, remarks = session.for_each(session.selected_units(), partial(_row, run, options))
        rows += by_unit.values()
        remarks += [f"Images without scores in {options.scores} are left out."]
    rows += _paper_rows()
    labels = [" ".join(str(cell) for cell in row[:3] if cell) for row in rows]
    series = {
        "alone": [_first_number(row, 4, 7) for row in rows],
        "with SPARC": [_first_number(row, 5, 8) for row in rows],
    }
    remarks.append(f"Paper: {paper.tables()['complementarity']['note']}.")
    table = Table(COLUMNS, rows)
    return Result("SPARC on top of other methods", table, bars(labels, series, "mAP (%)"), remarks)


def _row(run: FinishedRun, options: Options, unit: Unit) -> list[Cell]:
    """Returns the row of a unit, with the paper's numbers for the same method and data set."""
    name = options.method
    view, scored = _view(unit, str(options.scores), name)
    with_sparc = Variant(Method(image_debias=METHODS[name]))
    bank = unit.data.bank
    # Another method has no scores of background classes; they remain in pairs and auxiliaries.
    variants = Variants((ZSCLIP, with_sparc), {STORED: bank.mentions[: len(bank.classes)]})
    aps = evaluate_variants(unit, variants, view)
    alone, on_top = (
        mean_average_precision(aps[variant], run.config.empty_class)
        for variant in (ZSCLIP, with_sparc)
    )
    paper_name = PAPER_NAMES.get(name, name)
    printed = _paper_pair(unit, paper_name)
    gain = difference(on_top, alone)
    images = f"{scored:,} of {unit.data.images:,}"
    gap = difference(on_top, printed[1])
    return [*unit.key, paper_name, images, alone, on_top, gain, *printed, gap]


def _view(unit: Unit, url: str, method: MethodName) -> tuple[Any, int]:
    """Returns a reference to a view with another method's scores, and the number of its images.

    The file is read on a worker because its matrix may be large.
    """
    limit = unit.config.resources.no_progress_seconds
    given = (unit.shards, unit.data.bank.classes, url, method)
    view, images = submit(_read_view, *given, returns=2)
    return view, get(images, limit, f"Reading {url}")


def _read_view(
    shards: UnitShards, classes: Sequence[str], url: str, method: MethodName
) -> tuple[ScoreView, int]:
    """Returns the view with the file's scores, and the number of its images."""
    plug_in = prepared(read_plug_in(url, classes), method)
    # All ids at once: this also finds images of different shards that match the same row.
    parts = image_shards(shards.dataset, ["image_id"])
    ids = [image_id for rows in parts for image_id in rows["image_id"].to_pylist()]
    scored, scores = plug_in.rows(ids)
    if not len(scores):
        raise none_found(plug_in, ids)
    names = list(compress(ids, scored))
    return ScoreView(plug_in=PlugIn(names, scores, plug_in.url)), len(names)


def _paper_pair(unit: Unit, method: str) -> tuple[float | None, float | None]:
    """Returns the paper's mAP of a method alone and with SPARC; None unless of this backbone.

    Our compound scores are of whole images, as in the paper's rows with an asterisk.
    """
    table = paper.tables()["complementarity"].get(method, {})
    dataset = paper.dataset_name(unit.data.config)
    if not table or table["backbone"] != paper.backbone_name(unit.backbone):
        return None, None
    row = f"{dataset}*" if f"{dataset}*" in table["base"] else str(dataset)
    return table["base"].get(row), table["plus_sparc"].get(row)


def _paper_rows() -> list[list[Cell]]:
    """Returns the rows of the paper."""
    return [
        [dataset, method["backbone"], f"{name}, paper", *[None] * 4, base, with_sparc, None]
        for name, method in paper.tables()["complementarity"].items()
        if name != "note"
        for dataset, base in method["base"].items()
        for with_sparc in [method["plus_sparc"][dataset]]
    ]


def _first_number(row: list[Cell], ours: int, printed: int) -> float | None:
    cell = row[ours] if row[ours] is not None else row[printed]
    return float(cell) if isinstance(cell, int | float) else None
