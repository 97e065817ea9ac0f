"""plug-in: another method's scores in the place of the singleton, without SPARC and with it."""

from __future__ import annotations

from typing import Any

from sparc_dist.core.average_precision import mean_average_precision
from sparc_dist.core.fusion import Method
from sparc_dist.core.trials import STORED, ZSCLIP, Trial, Trials
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars
from sparc_dist.experiments.laboratory import Laboratory
from sparc_dist.experiments.opened import Opened
from sparc_dist.experiments.result import Cell, Result, Table, difference
from sparc_dist.pipeline.looks import plugged_in
from sparc_dist.pipeline.trials import try_all
from sparc_dist.pipeline.unit import Unit
from sparc_dist.plug_in import METHODS, MethodName

#: What the paper calls the methods.
PRINTED = {"tagclip": "TagCLIP", "tai-dpt": "TaI-DPT", "comc": "CoMC"}
COLUMNS = (
    *("data set", "backbone", "method", "alone (%)", "with SPARC (%)", "gain"),
    *("paper alone (%)", "paper with SPARC (%)", "difference"),
)


def plug_in(laboratory: Laboratory) -> Result:
    """The mAP of the scores alone, and with SPARC on top."""
    run, options = laboratory.run, laboratory.options
    remarks, rows = [], []
    if options.scores is None:
        remarks.append(
            "No other method's scores were given: name a Parquet, CSV, NPZ or pickle file of "
            "images × classes with --scores, and with --method whether it is TagCLIP's, TaI-DPT's "
            "or CoMC's."
        )
    else:
        for unit in laboratory.chosen():
            looks, found = plugged_in(unit, options.scores, options.method)
            rows.append(_row(run, unit, looks, options.method))
            images = unit.data.images
            if found < images:
                remarks.append(
                    f"{' × '.join(unit.key)}: {options.scores} has scores for {found:,} of "
                    f"{images:,} images; the others are left out."
                )
    rows += _printed()
    labels = [" ".join(str(cell) for cell in row[:3] if cell) for row in rows]
    series = {
        "alone": [_either(row, 3, 6) for row in rows],
        "with SPARC": [_either(row, 4, 7) for row in rows],
    }
    remarks.append(f"Paper: {paper.tables()['complementarity']['note']}.")
    table = Table(COLUMNS, rows)
    return Result("SPARC on top of other methods", table, bars(labels, series, "mAP (%)"), remarks)


def _row(run: Opened, unit: Unit, looks: Any, name: MethodName) -> list[Cell]:
    """alone, with SPARC, gain; and what the paper has of that method on that data set."""
    with_sparc = Trial(Method(image_debias=METHODS[name].image_debias))
    trials = Trials((ZSCLIP, with_sparc), {STORED: unit.data.bank.mentions})
    aps = try_all(unit, trials, looks)
    alone, on_top = (
        mean_average_precision(aps[trial], run.config.empty_class) for trial in (ZSCLIP, with_sparc)
    )
    printed = PRINTED.get(name, name)
    figures = paper.tables()["complementarity"].get(printed, {})
    dataset = paper.dataset_name(unit.data.config) or ""
    theirs = [figures.get(key, {}).get(dataset) for key in ("base", "plus_sparc")]
    gain = difference(on_top, alone)
    return [*unit.key, printed, alone, on_top, gain, *theirs, difference(on_top, theirs[1])]


def _printed() -> list[list[Cell]]:
    """The paper's own rows."""
    return [
        [dataset, method["backbone"], f"{name}, paper", None, None, None, base, with_sparc, None]
        for name, method in paper.tables()["complementarity"].items()
        if name != "note"
        for dataset, base in method["base"].items()
        for with_sparc in [method["plus_sparc"][dataset]]
    ]


def _either(row: list[Cell], ours: int, theirs: int) -> float | None:
    cell = row[ours] if row[ours] is not None else row[theirs]
    return float(cell) if isinstance(cell, int | float) else None
