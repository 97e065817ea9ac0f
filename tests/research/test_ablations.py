"""Ablations over several data sets and backbones, compared with the paper's numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.unit import Unit
from sparc_dist.prompts import CompoundPrompt, PromptBank, all_pairs, pair_prompt
from sparc_dist.prompts.compound import background_pairs, triplet_prompt
from sparc_dist.research.ablations import ABLATIONS, Aps
from sparc_dist.research.noise_model import SHOWN, _columns
from sparc_dist.research.plug_in import _paper_pair
from sparc_dist.research.score_view import (
    ALL_PAIRS,
    ALL_TEMPLATES,
    PAIRS,
    RANDOM,
    STORED,
    Columns,
    in_template,
    prompts_of,
)
from sparc_dist.research.session import FinishedRun
from sparc_dist.research.variants import DEBIASED, SPARC, Variant
from sparc_dist.runs.tables import Table
from tests.support.finished_runs import finished_run

THREE = ["coco2014", "voc2007", "nuswide"]
TEMPLATES = ABLATIONS["templates"]
CLASSES = ("cat", "dog", "sofa")


def aps_of(run: FinishedRun, values: dict[Variant, float]) -> Aps:
    """For every unit, the AP of a variant on one class and None on a class without positives."""
    return {key: {variant: [ap, None] for variant, ap in values.items()} for key in run.keys}


def all_variants(value: float) -> dict[Variant, float]:
    return {condition.variant: value for condition in TEMPLATES.conditions}


def cells(table: Table, *condition: str) -> dict[str, Any]:
    """Returns the row of a condition by column name."""
    (row,) = (row for row in table.rows if tuple(row[: len(condition)]) == condition)
    return dict(zip(table.columns, row, strict=True))


def test_a_complete_run_is_compared_with_every_number_of_the_paper() -> None:
    run = finished_run(THREE)
    result = TEMPLATES.result(run, aps_of(run, all_variants(50.0)), [])
    assert result.summary is not None
    row = cells(result.summary, "A or B", "no")
    assert row["coco2014 (%)"] == 50.0
    assert row["coco2014, paper (%)"] == 67.0
    assert row["coco2014, difference"] == pytest.approx(-17.0)
    assert row["average, paper (%)"] == 67.2
    assert row["average, difference"] == pytest.approx(50 - 67.2)
    # The CSV also has each backbone, for which the paper prints nothing.
    assert cells(result.table, "A or B", "no", "voc2007", "RN50")["paper (%)"] is None
    assert cells(result.table, "A or B", "no", "voc2007", "average")["paper (%)"] == 88.4
    assert len(result.table.rows) == len(TEMPLATES.conditions) * (3 * 10 + 1)


def test_means_over_other_backbones_are_not_subtracted_from_the_papers() -> None:
    run = finished_run(["voc2007"], [{"name": "mine", "model": "sparc-tiny"}])
    result = TEMPLATES.result(run, aps_of(run, all_variants(50.0)), ["a remark"])
    assert result.summary is not None
    row = cells(result.summary, "A and B", "yes")
    assert (row["voc2007 (%)"], row["voc2007, paper (%)"]) == (50.0, 89.2)
    assert row["COCO, paper (%)"] == 68.3  # though the run has no COCO
    assert not [name for name in result.summary.columns if "difference" in name]
    assert result.remarks[-1] == "a remark"
    assert any("lacks COCO, NUSWIDE" in remark for remark in result.remarks)


def test_rows_are_averages_over_the_same_backbones() -> None:
    """A backbone without its text tower is in the CSV, but in no average."""
    two = [{"name": name, "model": "sparc-tiny"} for name in ("one", "two")]
    run = finished_run(["voc2007"], two)
    aps = {key: dict(variants) for key, variants in aps_of(run, all_variants(50.0)).items()}
    aps["voc2007", "two"] = {DEBIASED: [90.0], SPARC: [90.0]}
    result = TEMPLATES.result(run, aps, [])
    assert result.summary is not None
    assert [row[2] for row in result.summary.rows] == [50.0] * len(TEMPLATES.conditions)
    assert cells(result.table, "A and B", "yes", "voc2007", "two")["mAP (%)"] == 90.0
    # If it is the only backbone, its values are shown.
    alone = finished_run(["voc2007"], two[1:])
    summary = TEMPLATES.result(alone, {("voc2007", "two"): aps["voc2007", "two"]}, []).summary
    assert summary is not None
    assert cells(summary, "A or B", "no")["voc2007 (%)"] is None
    assert cells(summary, "A and B", "yes")["voc2007 (%)"] == 90.0


def test_a_class_without_positives_counts_as_configured() -> None:
    run = finished_run(["voc2007"], [{"name": "mine", "model": "sparc-tiny"}])
    zero = FinishedRun(
        run.layout, run.config.model_copy(update={"empty_class": "zero"}), run.results
    )
    for configured, expected in ((run, 50.0), (zero, 25.0)):
        summary = TEMPLATES.result(configured, aps_of(configured, all_variants(50.0)), []).summary
        assert summary is not None
        assert cells(summary, "none", "no")["voc2007 (%)"] == expected


def test_a_run_with_another_method_says_so() -> None:
    run = finished_run(["voc2007"])
    method = replace(run.config.method, k=2)
    other = FinishedRun(run.layout, run.config.model_copy(update={"method": method}), run.results)
    assert run.is_sparc
    assert not other.is_sparc
    assert any("`method` is not the paper's" in remark for remark in other.remarks())


def test_noise_models_are_compared_with_the_papers_of_the_same_backbones() -> None:
    backbones = [{"name": "b", "model": "ViT-B-32-quickgelu", "weights": "openai"}]
    run = finished_run(["voc2007"], backbones)
    columns = _columns(run, {("voc2007", "b"): dict.fromkeys(SHOWN, 0.5)})
    assert columns["voc2007, paper"]["only_or"] == 0.136
    assert columns["voc2007, difference"]["only_or"] == pytest.approx(0.5 - 0.136)
    assert columns["COCO, paper"]["static_bonus"] == pytest.approx(0.521, abs=5e-4)


def unit_of(kind: str, model: str) -> Unit:
    run = finished_run([kind], [{"name": "b", "model": model, "weights": "openai"}])
    bank = PromptBank(CLASSES, ())
    data = Prepared(run.config.datasets[0], run.layout.dataset(kind), bank, [100], 100, "")
    return Unit(run.config, data, run.config.backbones[0])


@pytest.mark.parametrize(
    ("kind", "model", "method", "expected"),
    [
        ("coco2014", "ViT-B-16-quickgelu", "TagCLIP", (70.9, 75.6)),
        ("coco2014", "RN50-quickgelu", "TagCLIP", (None, None)),  # not the paper's backbone
        ("voc2007", "RN50-quickgelu", "TaI-DPT", (88.0, 90.2)),  # whole images: the row with *
        ("voc2007", "RN50-quickgelu", "CoMC", (None, None)),  # not in the paper
        ("voc2007", "RN50-quickgelu", "mine", (None, None)),
    ],
)
def test_plug_ins_are_compared_with_the_matching_row_of_the_paper(
    kind: str, model: str, method: str, expected: tuple[float | None, float | None]
) -> None:
    assert _paper_pair(unit_of(kind, model), method) == expected


def test_prompt_sets_use_stored_columns_if_there_are_any() -> None:
    stored = (
        pair_prompt(CLASSES, 0, 1),
        pair_prompt(CLASSES, 1, 2, "or"),
        triplet_prompt(CLASSES, 0, 1, 2),
    )
    columns = Columns(PromptBank(CLASSES, stored))
    # The pairs are of these classes, whatever template the run used.
    assert [list(found) for found in columns.mentions(PAIRS)] == [[0], [0, 3], [3]]
    assert [prompt.text for prompt in columns.extra] == ["dog and sofa"]
    assert [sorted(found) for found in columns.mentions(in_template("or"))] == [[4], [1, 4], [1]]
    assert not columns.is_stored(PAIRS)
    # "A and not B" is used together with "A and B", as in the paper.
    assert [len(found) for found in columns.mentions(in_template("and not"))] == [2, 4, 2]
    assert [len(found) for found in columns.mentions(ALL_TEMPLATES)] == [5, 10, 5]
    assert [len(found) for found in columns.mentions(RANDOM)] == [30, 30, 30]
    assert len({prompt.text for prompt in columns.extra}) == len(columns.extra)


def test_a_bank_without_a_pair_has_no_set_of_pairs() -> None:
    sentence = CompoundPrompt("a cat asleep", (0,), "descriptive")
    columns = Columns(PromptBank(CLASSES, (sentence,)))
    assert columns.is_available("stored")
    assert not columns.is_available(PAIRS)
    assert not columns.is_available(in_template("or"))
    assert columns.is_available("all pairs")


def test_sets_are_of_classes_only_if_the_run_has_background_classes() -> None:
    pairs = (*all_pairs(CLASSES), *background_pairs(CLASSES, ["boat"]))
    bank = PromptBank(CLASSES, pairs, ("boat",))
    assert list(prompts_of(PAIRS, bank)) == all_pairs(CLASSES)
    assert list(prompts_of(ALL_PAIRS, bank)) == all_pairs(CLASSES)
    assert len(Columns(bank).mentions(STORED)) == len(CLASSES)
