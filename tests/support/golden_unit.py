"""A finished unit of the golden set in storage, made without Ray."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import Config
from sparc_dist.core import (
    CountedState,
    Decision,
    FinalScores,
    Fusions,
    Method,
    ScoredState,
    ShownState,
    agreement_of,
    can_estimate,
    decide,
    evaluate,
    fit_fusions,
    judged_by,
)
from sparc_dist.datasets.images import images_table, write_images
from sparc_dist.prompts import PromptBank
from sparc_dist.prompts.bank import descriptive_prompts
from sparc_dist.runs import (
    Provenance,
    RunLayout,
    UnitLayout,
    claim,
    reduce_checkpoints,
    shard_groups,
)
from sparc_dist.runs.decisions import doubts_of, write_decisions
from sparc_dist.runs.gallery_file import write_gallery
from sparc_dist.runs.labeler_file import FittedLabeler, write_labeler
from sparc_dist.runs.labels import long_table, wide_table
from sparc_dist.runs.shards import ERRORS, ClassNames, final_table, scores_table, write_shard
from tests.support.cases import GOLDEN, golden, golden_answer

CLASSES: list[str] = golden_answer("decisions")["classes"]
IMAGES, SHARD = 800, 47  # 18 shards, each a group: more than are merged at once
NAMES = ClassNames(CLASSES)
BROKEN = "broken"  # an image without scores, the last one
IDS = [f"{number:03d}" for number in range(IMAGES)]
SHARDS = [range(i, min(i + SHARD, IMAGES)) for i in range(0, IMAGES, SHARD)]


@cache
def golden_fusions() -> tuple[Fusions, FinalScores]:
    scores, mentions, _, _ = golden()
    fusions = fit_fusions(lambda: iter([scores]), mentions, len(CLASSES), Method())
    return fusions, fusions.final(scores)


def golden_bank() -> PromptBank:
    """The prompts of the golden set."""
    texts = json.loads((GOLDEN / "prompts.json").read_text())["prompts"]
    return PromptBank(tuple(CLASSES), tuple(descriptive_prompts(CLASSES, texts)))


def golden_prompts() -> pa.Table:
    """The prompts of the golden set, as prompts.parquet has them."""
    return golden_bank().to_table()


def write_unit(root: Path, primary: str = "sparc", labelled: bool = True) -> UnitLayout:
    """Writes all that a refit reads; its scores are those of the golden set."""
    shutil.copytree(_template(primary, labelled).name, root, dirs_exist_ok=True)
    return RunLayout(str(root)).dataset("voc").unit("tiny")


@cache
def _template(primary: str, labelled: bool) -> TemporaryDirectory[str]:
    """The unit, written once per process; the folder goes when the process ends."""
    folder = TemporaryDirectory()
    _write_unit(folder.name, primary, labelled)
    return folder


def _write_unit(root: str, primary: str, labelled: bool) -> None:
    config = Config.model_validate(
        {
            "output": root,
            "datasets": [{"name": "voc", "images": "i.csv", "classes": CLASSES}],
            "backbones": [{"name": "tiny", "model": "simulated"}],
        }
    )
    layout = RunLayout(root)
    claim(layout, config)
    data = layout.dataset("voc")
    counts = write_images(_images(labelled), data, SHARD)
    bank = golden_bank()
    storage.write_table(data.prompts, bank.to_table())
    hashes = {"prompts_sha256": bank.sha256, "images_sha256": storage.sha256(data.images)}
    storage.write_json(data.marker, {**counts, **hashes, "notes": []})
    unit = data.unit("tiny")
    _write_results(unit, primary, labelled)


def _images(labelled: bool) -> Iterator[pa.Table]:
    labels = [np.flatnonzero(row).tolist() if labelled else None for row in golden()[2]]
    uris = [f"/photos/{image_id}.jpg" for image_id in [*IDS, BROKEN]]
    yield images_table([*IDS, BROKEN], uris, [*labels, None])


def _write_results(unit: UnitLayout, primary: str, labelled: bool) -> None:
    final, labels = golden_fusions()[1], golden()[2]
    known = np.full(IMAGES, labelled)
    parts = [(final[_cut(s)], known[_cut(s)], labels[_cut(s)]) for s in SHARDS]
    assert len(shard_groups(len(SHARDS))) == len(SHARDS)
    fusions = golden_fusions()[0]
    states = [ScoredState.of([part], fusions.totals) for part in parts]
    statistics = reduce_checkpoints.merge(states)
    counted = [CountedState.of([part], statistics, fusions.totals) for part in parts]
    counts = reduce_checkpoints.merge(counted)
    decisions = {
        name: decide(moments, counts.counts[name] if can_estimate(moments) else None, 20)
        for name, moments in statistics.moments.items()
    }
    for shard, (rows, (scores, _, _)) in enumerate(zip(SHARDS, parts, strict=True)):
        ids = IDS[_cut(rows)]
        table = final_table(pa.chunked_array([ids]), scores, ClassNames(CLASSES))
        sha256 = storage.write_table(unit.final(shard), table)
        storage.write_table(unit.errors(shard), pa.Table.from_pylist([], schema=ERRORS))
        key = reduce_checkpoints.group_key("key", range(shard, shard + 1))
        url = unit.state("final_scores", shard)
        reduce_checkpoints.save(url, key, states[shard], [sha256])
        url = unit.state("decision_statistics", shard)
        reduce_checkpoints.save(url, key, counted[shard])
        judged = decisions[primary].judge(*scores.columns(primary))
        storage.write_table(unit.wide_labels(shard), wide_table(ids, CLASSES, *judged))
        storage.write_table(unit.labels(shard), long_table(ids, CLASSES, *judged))
    write_decisions(unit.decisions, decisions, CLASSES, primary)
    labeler = FittedLabeler(fusions, decisions, primary, golden_prompts(), ClassNames(CLASSES))
    write_labeler(unit.labeler, labeler)
    write_gallery(unit, _write_scores(unit, parts, decisions[primary], primary))
    agreement = agreement_of(judged_by(decisions, final[known]), labels[known])
    metrics: dict[str, Any] = {name: {"mAP": None, "AP": {}} for name in fusions.models}
    if labelled:
        metrics = evaluate(statistics, counts, agreement, CLASSES, "skip")
    doubts = doubts_of(decisions[primary].status, CLASSES)
    facts: dict[str, Any] = {"gallery_sha256": storage.sha256(unit.gallery)}
    facts |= {"primary": primary, "images": IMAGES, "labelled": IMAGES * labelled}
    facts |= {"notes": [], "stages": {}, "recovery": {}}
    errors = {"images": 0, "share": 0.0, "passing": 0, "reasons": {}}
    storage.write_json(unit.metrics, metrics | facts | {"errors": errors, "doubts": doubts})


def _write_scores(
    unit: UnitLayout,
    parts: list[tuple[FinalScores, np.ndarray, np.ndarray]],
    rule: Decision,
    primary: str,
) -> ShownState:
    """Writes scores and markers; returns the gallery."""
    made_by, shown = Provenance("w", "p", "i", "cpu"), []
    for shard, (rows, (final, *truth)) in enumerate(zip(SHARDS, parts, strict=True)):
        ids, cut = IDS[_cut(rows)], _cut(rows)
        table = scores_table(ids, golden()[0][cut], np.zeros((len(ids), 0), np.float32), NAMES)
        write_shard(unit, shard, table, [], made_by).write(unit)
        z = rule.standardise(*final.columns(primary))
        judged = rule.judge(*final.columns(primary))[1]
        shown.append(ShownState.of(shard, ids, z, judged, (truth[0], truth[1])))
    found: ShownState = reduce_checkpoints.merge(shown)
    return found


def _cut(rows: range) -> slice:
    return slice(rows.start, rows.stop)
