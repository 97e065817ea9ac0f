"""plug-in: another method's scores in the place of the singleton, without SPARC and with it."""

from __future__ import annotations

from functools import partial

from sparc_dist.core.average_precision import mean_average_precision
from sparc_dist.core.fusion import Method
from sparc_dist.core.variants import STORED, ZSCLIP, Variant, Variants
from sparc_dist.experiments import paper
from sparc_dist.experiments.figures import bars
from sparc_dist.experiments.finished_run import FinishedRun
from sparc_dist.experiments.result import Result, difference
from sparc_dist.experiments.score_view import plugged_in
from sparc_dist.experiments.session import ExperimentSession, Options
from sparc_dist.experiments.variant_passes import evaluate_variants
from sparc_dist.external_scores.plug_in import METHODS
from sparc_dist.pipeline.unit import Unit
from sparc_dist.runs.tables import Cell, Table

#: What the paper calls the methods.
PRINTED = {"tagclip": "TagCLIP", "tai-dpt": "TaI-DPT", "comc": "CoMC"}
COLUMNS = (
    *("data set", "backbone", "method", "images", "alone (%)", "with SPARC (%)", "gain"),
    *("paper alone (%)", "paper with SPARC (%)", "difference"),
)


def plug_in(session: ExperimentSession) -> Result:
    """The mAP of the scores alone, and with SPARC on top."""
    run, options = session.run, session.options
    remarks: list[str] = []
    rows: list[list[Cell]] = []
    if options.scores is None:
        remarks.append(
            "No other method's scores were given: name a Parquet, CSV, NPZ or pickle file of "
            "images × classes with --scores, and with --method whether it is TagCLIP's, TaI-DPT's "
            "or CoMC's."
        )
    else:
        own, remarks = session.of_each(session.chosen(), partial(_row, run, options))
        rows += own.values()
        remarks += [f"Images without scores in {options.scores} are left out."]
    rows += _printed()
    labels = [" ".join(str(cell) for cell in row[:3] if cell) for row in rows]
    series = {
        "alone": [_either(row, 4, 7) for row in rows],
        "with SPARC": [_either(row, 5, 8) for row in rows],
    }
    remarks.append(f"Paper: {paper.tables()['complementarity']['note']}.")
    table = Table(COLUMNS, rows)
    return Result("SPARC on top of other methods", table, bars(labels, series, "mAP (%)"), remarks)


def _row(run: FinishedRun, options: Options, unit: Unit) -> list[Cell]:
    """Images, alone, with SPARC, gain; and what the paper has of that method on that data set."""
    name = options.method
    view, found = plugged_in(unit, str(options.scores), name)
    with_sparc = Variant(Method(image_debias=METHODS[name].image_debias))
    variants = Variants((ZSCLIP, with_sparc), {STORED: unit.data.bank.mentions})
    aps = evaluate_variants(unit, variants, view)
    alone, on_top = (
        mean_average_precision(aps[variant], run.config.empty_class)
        for variant in (ZSCLIP, with_sparc)
    )
    printed = PRINTED.get(name, name)
    theirs = _paper(unit, printed)
    gain = difference(on_top, alone)
    images = f"{found:,} of {unit.data.images:,}"
    apart = difference(on_top, theirs[1])
    return [*unit.key, printed, images, alone, on_top, gain, *theirs, apart]


def _paper(unit: Unit, method: str) -> tuple[float | None, float | None]:
    """The paper's figures of a method alone and with SPARC, where it has them of this backbone.

    Our compound scores are of whole images, as those in its rows with an asterisk are.
    """
    figures = paper.tables()["complementarity"].get(method, {})
    dataset = paper.dataset_name(unit.data.config)
    if not figures or figures["backbone"] != paper.backbone_name(unit.backbone):
        return None, None
    row = f"{dataset}*" if f"{dataset}*" in figures["base"] else str(dataset)
    return figures["base"].get(row), figures["plus_sparc"].get(row)


def _printed() -> list[list[Cell]]:
    """The paper's own rows."""
    return [
        [dataset, method["backbone"], f"{name}, paper", *[None] * 4, base, with_sparc, None]
        for name, method in paper.tables()["complementarity"].items()
        if name != "note"
        for dataset, base in method["base"].items()
        for with_sparc in [method["plus_sparc"][dataset]]
    ]


def _either(row: list[Cell], ours: int, theirs: int) -> float | None:
    cell = row[ours] if row[ours] is not None else row[theirs]
    return float(cell) if isinstance(cell, int | float) else None
