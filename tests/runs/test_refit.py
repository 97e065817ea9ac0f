"""Refitted decisions of a finished unit, compared with the golden ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparc_dist import storage
from sparc_dist.core import (
    Decision,
    Knowledge,
)
from sparc_dist.errors import UserError
from sparc_dist.runs import UnitLayout
from sparc_dist.runs.answers import spread
from sparc_dist.runs.decisions import read_decisions
from sparc_dist.runs.refit import Rule, apply_again, refit
from sparc_dist.runs.run import open_unit
from tests.support.cases import golden, golden_answer
from tests.support.final_scores import close
from tests.support.golden_unit import BROKEN, CLASSES, IDS, write_unit

FIRST_50 = {
    image_id: dict(enumerate(row.tolist()))
    for image_id, row in zip(IDS[:50], golden()[2], strict=False)
}
GIVEN = dict(enumerate(golden_answer("decisions")["sparc"]["prevalences_given"]["given"]))
SECTIONS: list[tuple[str, str, Rule]] = [
    ("sparc", "label_free", Rule()),
    ("sparc", "classes_per_image", Rule(Knowledge(per_image=3.0))),
    ("sparc", "one_prevalence_given", Rule(Knowledge({15: 0.4}))),
    ("sparc", "prevalences_given", Rule(Knowledge(GIVEN))),
    ("sparc", "labelled_50", Rule(answers=FIRST_50)),
    ("duo", "label_free", Rule()),
    ("duo", "images_0_to_49_labelled", Rule(answers=FIRST_50)),
]


def contents(unit: UnitLayout) -> dict[str, bytes]:
    root = Path(unit.root)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.*")}


def refitted(root: Path, rule: Rule) -> tuple[dict[str, Decision], dict[str, Any]]:
    """Refits; returns the stored rules and the metrics of each method."""
    unit = open_unit(str(root))
    refit(unit, rule)
    return read_decisions(unit.unit.decisions)[0], storage.read_json(unit.unit.metrics)


@pytest.mark.parametrize(("method", "section", "rule"), SECTIONS, ids=[s[1] for s in SECTIONS])
def test_refits_equal_the_golden_decisions(
    tmp_path: Path, method: str, section: str, rule: Rule
) -> None:
    expected = golden_answer("decisions")[method][section]
    unit = write_unit(tmp_path, method)
    decisions, metrics = refitted(tmp_path, rule)
    found, measured = decisions[method], metrics[method]["decisions"]
    close(found.slope, expected["slope"], 1e-4)
    close(found.prevalence, expected["prevalence"], 1e-4)
    close(found.intercept, expected["intercept"], 1e-3)
    close(found.threshold, expected.get("threshold_standardised", expected.get("threshold")), 1e-9)
    assert list(found.status) == expected["status"]
    percent = {name.lower(): value for name, value in expected.get("percent", expected).items()}
    for name in ("micro_f1", "macro_f1", "sample_f1", "precision", "recall"):
        if name in percent:
            assert measured[name] == pytest.approx(percent[name], abs=0.1)
    if method == "sparc":
        assert measured["ece"] == pytest.approx(expected["ECE"], abs=5e-4)
    for name, value in golden_answer("decisions")[method]["oracle"].items():
        assert measured[f"oracle_{name}"] == pytest.approx(value, abs=0.1)
    five = expected.get(
        "probabilities_first_5_images", expected.get("probability_of_first_5_images")
    )
    long = pq.read_table(Path(unit.root) / "labels")
    close(long["probability"].to_numpy().reshape(800, 20)[:5], five, 5e-4)
    assert sum(long["present"].to_pylist()) == expected["decisions"]
    wide = pq.read_table(Path(unit.root) / "labels-wide")
    if method == "sparc":
        assert wide["present"].to_pylist()[:5] == expected["decided_first_5_images"]


@pytest.mark.parametrize("labelled", [True, False])
def test_a_refit_without_knowledge_restores_every_byte(tmp_path: Path, labelled: bool) -> None:
    unit = write_unit(tmp_path, "duo", labelled)
    refit(open_unit(str(tmp_path)), Rule())
    assert not Path(unit.knowledge).exists()
    before = contents(unit)
    refit(open_unit(str(tmp_path)), Rule(Knowledge({3: 0.5}), threshold=0.5))
    changed = {name for name, content in contents(unit).items() if content != before.get(name)}
    folders = {Path(name).parts[0] for name in changed}
    own = {"decisions.json", "labeler.safetensors", "gallery.npz", "labels", "labels-wide"}
    assert folders == own | {"metrics.json", "knowledge.json"}
    refit(open_unit(str(tmp_path)), Rule())
    assert storage.read_json(unit.knowledge) == {}  # nothing is known any more
    after = contents(unit)
    after.pop("knowledge.json")
    assert after == before


def test_a_fixed_threshold_and_the_top_two(tmp_path: Path) -> None:
    unit = write_unit(tmp_path)
    refit(open_unit(str(tmp_path)), Rule(threshold=0.5))
    stored = storage.read_json(unit.decisions)
    assert stored["rule"] == {"threshold": 0.5}
    for row in stored["sparc"]["classes"].values():
        assert row["threshold_probability"] == pytest.approx(0.5)
    table = pq.read_table(Path(unit.root) / "labels")
    present, probability = (table[name].to_numpy() for name in ("present", "probability"))
    far = np.abs(probability - 0.5) > 1e-6
    np.testing.assert_array_equal(present[far], probability[far] >= 0.5)

    metrics = refitted(tmp_path, Rule(top=2))[1]["sparc"]["decisions"]
    assert storage.read_json(unit.decisions)["rule"] == {"top": 2}
    expected = golden_answer("decisions")["sparc"]["top_2"]["percent"]
    for name, value in expected.items():
        assert metrics[name.lower()] == pytest.approx(value, abs=0.1)
    wide = pq.read_table(Path(unit.root) / "labels-wide")
    assert {len(names) for names in wide["present"].to_pylist()} == {2}


def test_partial_answers_and_images_without_scores(tmp_path: Path) -> None:
    unit = write_unit(tmp_path)
    answers = {IDS[3]: {0: True}, IDS[700]: {2: False}, BROKEN: {0: True}, "other": {1: False}}
    done = refit(open_unit(str(tmp_path)), Rule(answers=answers))
    assert sorted(done.unknown) == [BROKEN, "other"]
    statuses = done.decision.status
    assert [i for i, status in enumerate(statuses) if status == "labelled"] == [0, 2]
    assert storage.read_json(unit.decisions)["rule"] == {"answers": 4}
    known = storage.read_json(unit.knowledge)
    with pytest.raises(UserError, match="none of its 1 images is in"):
        refit(open_unit(str(tmp_path)), Rule(answers={"other": {1: False}}))
    assert storage.read_json(unit.knowledge) == known


RULES = [
    Rule(Knowledge({3: 0.5}, per_image=2.5), FIRST_50),
    Rule(answers={IDS[3]: {0: True, 7: False}}, threshold=0.5),
    Rule(top=2),
]


@pytest.mark.parametrize("rule", RULES)
def test_what_is_known_is_applied_again_to_a_new_fit(tmp_path: Path, rule: Rule) -> None:
    unit = write_unit(tmp_path)
    fresh = open_unit(str(tmp_path))
    refit(fresh, rule)
    decided = contents(unit)
    del decided["metrics.json"]
    known = Path(unit.knowledge).read_bytes()
    refit(fresh, Rule())  # stands for a new fit
    Path(unit.knowledge).write_bytes(known)
    Path(unit.metrics).unlink()
    metrics = apply_again(fresh)
    assert contents(unit) == decided  # without metrics: the caller marks it as finished
    assert metrics["notes"][0].startswith("Applied again: ")
    # The note does not outlive what it is about.
    storage.write_json(unit.metrics, metrics)
    refit(open_unit(str(tmp_path)), Rule())
    assert storage.read_json(unit.metrics)["notes"] == []


def test_what_a_new_fit_cannot_use_is_left_out_and_counted(tmp_path: Path) -> None:
    unit = write_unit(tmp_path)
    fresh = open_unit(str(tmp_path))
    label_free = contents(unit)
    told = {
        "classes": [*CLASSES, "unicorn"],
        "prevalence": {"cat": 0.1, "unicorn": 0.2},
        "top": 2,
        "answers": {IDS[0]: {"cat": True, "unicorn": False}, "gone": {"dog": True, "cat": False}},
    }
    storage.write_json(unit.knowledge, told)
    (note,) = apply_again(fresh)["notes"]
    assert note == (
        "Applied again: 1 answer, 1 given prevalence. Left out: 2 answers about images that are "
        "gone or unreadable. Left out, because the classes have changed: 1 answer, 1 given "
        "prevalence, --top 2."
    )
    assert storage.read_json(unit.knowledge) == told  # the images may come back
    assert storage.read_json(unit.decisions)["rule"] == {"prevalence": {"cat": 0.1}, "answers": 1}

    refit(fresh, Rule())
    storage.write_json(unit.knowledge, {"classes": CLASSES, "answers": {"gone": {"dog": True}}})
    metrics = apply_again(fresh)
    assert metrics["notes"] == [
        "Applied again: nothing that was told. Left out: 1 answer about images that are gone or "
        "unreadable."
    ]
    after = contents(unit)
    after.pop("knowledge.json")
    assert after == label_free
    Path(unit.knowledge).write_bytes(b"{")
    with pytest.raises(UserError, match=r"knowledge\.json is damaged; restore it, or delete it"):
        apply_again(fresh)


@pytest.mark.parametrize("own", [None, {}, {"classes": CLASSES, "prevalence": {"cat": 0.3}}])
def test_a_unit_that_was_told_nothing_takes_over_from_another(tmp_path: Path, own: Any) -> None:
    other, unit = write_unit(tmp_path / "a"), write_unit(tmp_path / "b")
    refit(open_unit(str(tmp_path / "a")), Rule(Knowledge({3: 0.5})))
    if own is not None:
        storage.write_json(unit.knowledge, own)
    notes = apply_again(open_unit(str(tmp_path / "b")), other)["notes"]
    origin = "" if own else f" from {other.root}"
    assert notes == ([] if own == {} else [f"Applied again{origin}: 1 given prevalence."])
    if own is None:  # it needs the other run no longer
        assert storage.read_json(unit.knowledge) == storage.read_json(other.knowledge)


def test_units_that_cannot_be_refitted_say_what_to_do(tmp_path: Path) -> None:
    unit = write_unit(tmp_path)
    with pytest.raises(UserError, match=r"no backbone 'big' in .*; choose one of tiny"):
        open_unit(str(tmp_path), backbone="big")
    state = Path(unit.state("decision_statistics", 3))
    kept = state.read_bytes()
    state.write_bytes(kept[:-40])
    with pytest.raises(UserError, match=r"03\.npz is missing, damaged .* verify RUN.* start"):
        refit(open_unit(str(tmp_path)), Rule())
    state.write_bytes(kept)
    Path(unit.final(2)).write_bytes(b"")
    with pytest.raises(UserError, match=r"00002\.parquet is missing, damaged .* start"):
        refit(open_unit(str(tmp_path)), Rule())
    # Labels of some shards may be of one fit and those of others of another: it is not finished,
    # but decisions can be fitted again.
    with pytest.raises(UserError, match="is not finished"):
        open_unit(str(tmp_path))
    assert open_unit(str(tmp_path), deciding=True).classes == CLASSES
    Path(unit.metrics).unlink()
    with pytest.raises(UserError, match="is not finished"):
        open_unit(str(tmp_path))


def test_images_are_spread_over_the_ranking() -> None:
    scores = np.random.default_rng(0).normal(size=1000)
    chosen = spread(scores, 50, np.random.default_rng(1))
    ranks = np.argsort(np.argsort(scores))[chosen]
    assert sorted((ranks // 20).tolist()) == list(range(50))
    assert sorted(spread(scores[:3], 9, np.random.default_rng(1)).tolist()) == [0, 1, 2]


def test_neither_ray_nor_torch_nor_prompts_are_loaded() -> None:
    code = (
        "import sys, sparc_dist.runs.refit, sparc_dist.runs.answers;"
        "print([n for n in ('ray', 'torch', 'sparc_dist.prompts') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_golden_unit_has_the_golden_classes(tmp_path: Path) -> None:
    write_unit(tmp_path)
    assert list(open_unit(str(tmp_path)).classes) == CLASSES
