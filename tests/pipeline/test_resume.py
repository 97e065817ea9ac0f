"""A run that was stopped at any point goes on from there, and only from there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparc_dist import storage
from sparc_dist.config import load_config
from sparc_dist.errors import UserError
from sparc_dist.runner import run
from sparc_dist.runs import STAGES, Results, RunLayout, claim
from tests.support.command import outcome_hashes, sparc_dist
from tests.support.running import go
from tests.support.sealed import edit_json

WriteConfig = Callable[..., str]


def recovery(outcome: Results) -> dict[str, int]:
    found: dict[str, int] = outcome.metrics["scenes", "tiny"]["recovery"]
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_the_reduce_goes_on_after_the_last_whole_pass(
    original: Path, finished: Path, stage: str
) -> None:
    unit = finished / "run" / "scenes" / "tiny"
    (unit / "metrics.json").unlink()
    kept, lost = STAGES[: STAGES.index(stage)], STAGES[STAGES.index(stage) :]
    for name in lost:
        shutil.rmtree(unit / "reduce" / name)
    before = {
        path: path.stat().st_mtime_ns
        for name in kept
        for path in (unit / "reduce" / name).iterdir()
    }
    if stage == STAGES[-1]:
        shutil.rmtree(unit / "scores")  # nothing before this pass is looked at again
    outcome = go(finished)
    assert not outcome.failures
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert recovery(outcome)["shards_scored_again"] == 0


def test_damaged_scores_are_found_by_their_hash_and_made_again(
    original: Path, finished: Path
) -> None:
    unit = finished / "run" / "scenes" / "tiny"
    (unit / "metrics.json").unlink()
    shutil.rmtree(unit / "reduce")
    first, second = unit / "scores" / "00001.parquet", unit / "scores" / "00004.parquet"
    first.write_bytes(first.read_bytes()[:-1] + b"X")
    second.unlink()
    intact = (unit / "scores" / "00000.parquet").stat().st_mtime_ns
    outcome = go(finished)
    assert recovery(outcome)["shards_scored_again"] == 2
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")
    assert first.read_bytes() == (original / "run/scenes/tiny/scores/00001.parquet").read_bytes()
    assert (unit / "scores" / "00000.parquet").stat().st_mtime_ns == intact


def test_damaged_states_markers_finals_and_metrics_are_made_again(
    original: Path, finished: Path
) -> None:
    unit = finished / "run" / "scenes" / "tiny"
    (unit / "metrics.json").write_text('{"images": 6')
    (unit / "done" / "00002.json").write_text("{}")
    for stage in STAGES[:2]:
        state = unit / "reduce" / stage / "00.npz"
        content = bytearray(state.read_bytes())
        content[len(content) // 2] ^= 1
        state.write_bytes(content)
    final = unit / "final" / "00003.parquet"
    final.write_bytes(final.read_bytes() + b"!")
    outcome = go(finished)
    assert not outcome.failures
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")
    assert outcome.metrics["scenes", "tiny"]["stages"]["scoring"]["images"] == 10


def test_lost_texts_are_embedded_again_for_the_labeler(original: Path, finished: Path) -> None:
    unit = finished / "run" / "scenes" / "tiny"
    for name in ("metrics.json", "labeler.safetensors", "texts.parquet"):
        (unit / name).unlink()
    config = load_config(str(finished / "config.yaml"))
    (why,) = run(config, phase="reduce").failures.values()
    assert "tiny/texts.parquet is missing or incomplete" in why
    assert "without --only" in why
    outcome = run(config)
    assert not outcome.failures
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")
    assert (unit / "texts.parquet").exists()


def test_a_finished_run_looks_at_no_image_and_writes_nothing(finished: Path) -> None:
    config = finished / "config.yaml"
    run_folder = finished / "run"
    before = {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")}
    done = sparc_dist("run", config)
    assert done.returncode == 0
    assert "nothing was missing" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in run_folder.rglob("*")} == before
    # A report that was not finished is written from the metrics alone.
    shutil.rmtree(run_folder / "report")
    assert sparc_dist("run", config).returncode == 0
    assert (run_folder / "report" / "index.html").exists()


def test_another_config_is_refused_kept_apart_or_put_in_its_place(
    original: Path, finished: Path
) -> None:
    config = finished / "config.yaml"
    changed = json.loads(config.read_text()) | {"method": {"merge": False}, "shard_size": 30}
    config.write_text(json.dumps(changed))
    done = sparc_dist("run", config)
    assert done.returncode == 2
    assert "(method.merge: True → False; shard_size: 10 → 30); go back" in done.stderr
    assert "--to NEW, or replace it with --overwrite" in done.stderr
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")

    there = finished / "elsewhere"
    assert sparc_dist("run", config, "--to", there).returncode == 0
    assert outcome_hashes(finished / "run") == outcome_hashes(original / "run")
    assert len(list((there / "scenes" / "tiny" / "final").iterdir())) == 2

    (finished / "run" / "notes.txt").write_text("mine")
    assert not run(load_config(str(config)), overwrite=True).failures
    assert outcome_hashes(finished / "run") == outcome_hashes(there)
    unit = finished / "run" / "scenes" / "tiny"
    for folder in ("scores", "errors", "done", "final"):
        assert len(list((unit / folder).iterdir())) == 2, folder
    assert (finished / "run" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("content", ["{", "{}", "[1]", None])
def test_a_run_whose_record_is_damaged_is_not_guessed_at(
    finished: Path, content: str | None
) -> None:
    record = finished / "run" / "run.json"
    if content is None:
        record.unlink()
    else:
        record.write_text(content)
    told = "is damaged, so it is unknown which run" if content else "but no run.json of a run"
    with pytest.raises(UserError, match=told):
        go(finished)
    # What is started anew takes nothing over, not even under the same names.
    config = load_config(str(finished / "config.yaml"))
    claim(RunLayout(config.output), config, overwrite=True)
    unit = finished / "run" / "scenes" / "tiny"
    assert not list(unit.glob("done/*")) + list(unit.glob("metrics.json"))


def remove_a_marker(run_folder: Path, **changes: str) -> Path:
    """Removes one of a finished unit's markers and changes the others; returns the unit."""
    unit = run_folder / "scenes" / "tiny"
    (unit / "metrics.json").unlink()
    first, *others = sorted((unit / "done").iterdir())
    first.unlink()
    for path in others:
        edit_json(path, lambda marker: marker["scoring"].update(changes))
    return unit


@pytest.mark.usefixtures("cluster")
def test_weights_that_changed_in_mid_run_are_not_mixed_in_by_scorers_that_start_early(
    finished: Path,
) -> None:
    unit = remove_a_marker(finished / "run", weights_sha256="0" * 64)
    assert "scored with other weights than the current" in go(finished).failures["scenes", "tiny"]
    assert not (unit / "done" / "00000.json").exists()


def test_shards_of_different_weights_are_not_reduced_together(finished: Path) -> None:
    """As after a scorer that was alone has ended, and begun again on a node with another file."""
    unit = finished / "run" / "scenes" / "tiny"
    (unit / "metrics.json").unlink()
    path = unit / "done" / "00001.json"
    edit_json(path, lambda marker: marker["scoring"].update(weights_sha256="0" * 64))
    assert "scored with other weights than the current" in go(finished).failures["scenes", "tiny"]
    assert not (unit / "metrics.json").exists()


def test_prompts_or_images_that_changed_in_mid_run_are_not_mixed_in(finished: Path) -> None:
    (finished / "run" / "scenes" / "tiny" / "metrics.json").unlink()
    marker = finished / "run" / "scenes" / "dataset.json"
    facts = storage.read_json(str(marker))
    storage.write_json(str(marker), facts | {"images_sha256": "other"})
    assert "scored with other images than the current" in go(finished).failures["scenes", "tiny"]
    storage.write_json(str(marker), facts | {"prompts_sha256": "other"})
    assert (
        "prompts.parquet was changed after it was written"
        in go(finished).failures["scenes", "tiny"]
    )
