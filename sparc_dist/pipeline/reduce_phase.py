"""The reduce phase: from stored scores to final scores, decisions and AP, in passes over shards.

The state of each group is kept in storage; a second start resumes from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from sparc_dist import storage
from sparc_dist.backbones.texts import in_kinds, stored_texts, texts_of
from sparc_dist.config import SIMULATED
from sparc_dist.core import (
    CountedState,
    Decision,
    EmptyClass,
    FinalScores,
    Fitting,
    Fusions,
    Labelled,
    LabelledState,
    Method,
    ScoredState,
    ShownState,
    States,
    agreement_of,
    decide,
    evaluate,
    judged_by,
    totals_of,
)
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import get, share, submit
from sparc_dist.pipeline.passes import Passes, ShardGroup, Watch, total
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import UnitLayout, UnitShards, reduce_checkpoints
from sparc_dist.runs.decisions import write_decisions
from sparc_dist.runs.gallery_file import write_gallery
from sparc_dist.runs.labeler_file import FittedLabeler, ImageModel, write_labeler
from sparc_dist.runs.labels import write_labels
from sparc_dist.runs.layout import AFTER_FIT
from sparc_dist.runs.shards import ClassNames, final_table


@dataclass
class ReducePhase:
    """Reduces a unit.

    primary: the method that decides. images: the number of scored images of each shard. key: a hash
    of all scores. limit: seconds without progress after which a pass fails.
    """

    shards: UnitShards
    bank: PromptBank
    method: Method
    primary: str
    images: Sequence[int]
    key: str
    limit: float

    def __post_init__(self) -> None:
        parts = [self.key, self.bank.sha256, asdict(self.method), self.primary]
        decisive = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        self.passes = Passes(self.images, self.limit, decisive)

    @property
    def final_key(self) -> str:
        """A hash of all that decides the final scores."""
        return self.passes.key

    @property
    def retries(self) -> int:
        """The number of storage requests that had to be repeated."""
        return self.passes.retries

    def fit(self, watch: Watch) -> Any:
        """The first passes: fits the fusions; returns a reference to them."""
        start = Fitting.start(self.bank.mentions, len(self.bank.classes), self.method)
        fitting = share(start)
        for stage, kinds in start.passes:
            merged = self.merged(Pass(stage, kinds, _gathered), watch, fitting)
            fitting = submit(Fitting.after, fitting, merged)
        return submit(_fusions, fitting)

    def score(self, fusions: Any, watch: Watch) -> Any:
        """Writes final scores; returns a reference to their state."""
        return self.merged(FINAL, watch, fusions, self.bank.names)

    def decide(self, scored: Any, watch: Watch) -> tuple[Any, Any]:
        """Counts final scores, fits and saves decisions; returns references to them and counts."""
        counted = self.merged(COUNTS, watch, scored, totals_of(self.method.fusions))
        place = (self.bank.classes, self.shards.unit.decisions, self.primary)
        return submit(_decide, scored, counted, *place), counted

    def save(self, fusions: Any, decisions: Any, model: ImageModel) -> list[str]:
        """Writes the labeler; returns the notes of its fusions."""
        place = (self.shards.unit, self.bank, self.primary, model)
        notes: list[str] = get(
            submit(_save, fusions, decisions, *place), self.limit, "Writing the labeler"
        )
        return notes

    def label(self, decisions: Any, watch: Watch) -> Any:
        """Writes labels and the gallery; returns a reference to their state."""
        labelled = self.merged(LABELS, watch, decisions, self.bank.classes, self.primary)
        saving = submit(_save_gallery, labelled, self.shards.unit)
        get(saving, self.limit, "Writing the gallery")
        return labelled

    def evaluate(
        self, scored: Any, counted: Any, labelled: Any, empty_class: EmptyClass
    ) -> dict[str, Any]:
        """Returns AP per class and mAP of all methods, and how good the decisions are."""
        places = (self.bank.classes, empty_class)
        summary = submit(_evaluate, scored, counted, labelled, *places)
        found: dict[str, Any] = get(summary, self.limit, "The last step of the mAP")
        return found

    def damaged(self) -> list[int]:
        """Returns the shards whose scores were changed after they were written."""
        parts = self.passes.each("comparing_hashes", _damaged, self.shards)
        found = (get(part, self.limit, "Comparing hashes") for part in parts)
        return [shard for part in found for shard in part]

    def merged(self, step: Pass, watch: Watch, *arguments: Any) -> Any:
        """Runs a pass, or resumes it; returns a reference to the sum of its states."""
        work = partial(_resumed, step, self.shards)
        return self.passes.merged(step.stage, watch, work, *arguments)


@dataclass(frozen=True)
class Pass:
    """A pass over all shards: ``work`` returns a group's state and the hashes of its files.

    kind: restores the state from arrays; its type, or ``Kinds``. written: whether a shard still has
    the file with a hash, for passes that write one per shard.
    """

    stage: str
    kind: Any
    work: Callable[..., tuple[Any, list[str]]]
    written: Callable[[UnitShards, int, str], bool] = lambda shards, shard, sha256: True


def _resumed(step: Pass, shards: UnitShards, group: ShardGroup, *arguments: Any) -> Any:
    """Returns the state of a group: the one kept from an earlier start, or a new one."""
    url = shards.unit.state(step.stage, group.number)
    kept = reduce_checkpoints.load(url, group.key, step.kind)
    if kept is not None:
        pairs = zip(group.shards, kept[1], strict=False)
        if all(step.written(shards, shard, sha256) for shard, sha256 in pairs):
            return kept[0]
    state, hashes = step.work(shards, group, *arguments)
    reduce_checkpoints.save(url, group.key, state, hashes)
    return state


def _damaged(group: ShardGroup, shards: UnitShards) -> list[int]:
    return [shard for shard in group.shards if shards.damaged(shard)]


def _gathered(
    shards: UnitShards, group: ShardGroup, fitting: Fitting
) -> tuple[States[Any], list[str]]:
    state, embedded = fitting.gather(), fitting.needs_embeddings
    return total(state(shards.scores(i, embedded)[1]) for i in group.shards), []


def _fusions(fitting: Fitting) -> Fusions:
    return fitting.fusions


def _save(
    fusions: Fusions,
    decisions: Mapping[str, Decision],
    unit: UnitLayout,
    bank: PromptBank,
    primary: str,
    model: ImageModel,
) -> list[str]:
    texts = {}
    if model.backbone["model"] != SIMULATED:
        rows = stored_texts(unit.texts, model.weights_sha256, texts_of(bank))
        if rows is None:
            raise UserError(
                f"{storage.without_secrets(unit.texts)} is missing or incomplete, and the labeler "
                "needs it; repeat the command without --only to embed the prompts again."
            )
        texts = asdict(in_kinds(rows, bank))
    fitted = (fusions, decisions, primary, bank.to_table(), bank.names, texts, model)
    write_labeler(unit.labeler, FittedLabeler(*fitted))
    return fusions.notes


def _final_scores(
    shards: UnitShards, group: ShardGroup, fusions: Fusions, names: ClassNames
) -> tuple[ScoredState, list[str]]:
    hashes: list[str] = []

    def written(shard: int) -> Labelled:
        ids, scores = shards.scores(shard, fusions.needs_embeddings)
        final = fusions.final(scores)
        table = final_table(ids, final, names)
        hashes.append(storage.write_table(shards.unit.final(shard), table))
        return final, *shards.labels(shard, ids.to_pylist())

    return ScoredState.of(map(written, group.shards), fusions.totals), hashes


def _read_final(
    shards: UnitShards, group: ShardGroup
) -> list[Callable[[], tuple[int, list[str], FinalScores]]]:
    """Returns for each shard of a group what reads its final scores, checked by their hashes."""
    written = reduce_checkpoints.load(
        shards.unit.state(FINAL.stage, group.number), group.key, FINAL.kind
    )
    hashes = written[1] if written else [""] * len(group.shards)

    def reader(shard: int, sha256: str) -> Callable[[], tuple[int, list[str], FinalScores]]:
        return lambda: (shard, *shards.final(shard, sha256))

    return [reader(*pair) for pair in zip(group.shards, hashes, strict=True)]


def _counts(
    shards: UnitShards,
    group: ShardGroup,
    scored: ScoredState,
    totals: Mapping[str, Sequence[str]],
) -> tuple[CountedState, list[str]]:
    def labelled(shard: int, ids: list[str], final: FinalScores) -> Labelled:
        return final, *shards.labels(shard, ids)

    found = (labelled(*read()) for read in _read_final(shards, group))
    return CountedState.of(found, scored, totals), []


def _decide(
    scored: ScoredState, counted: CountedState, classes: Sequence[str], url: str, primary: str
) -> dict[str, Decision]:
    """Fits the rule of each fusion and saves them."""
    found = {
        name: decide(moments, counted.counts[name], len(classes))
        for name, moments in scored.moments.items()
    }
    write_decisions(url, found, classes, primary)
    return found


def _labels(
    shards: UnitShards,
    group: ShardGroup,
    decisions: Mapping[str, Decision],
    classes: Sequence[str],
    primary: str,
) -> tuple[LabelledState, list[str]]:
    def of(shard: int, ids: list[str], final: FinalScores) -> LabelledState:
        scores, rule = final.columns(primary), decisions[primary]
        judged = rule.judge(*scores)
        hashes.append(write_labels(shards.unit, shard, ids, classes, judged))
        labelled, labels = truth = shards.labels(shard, ids)
        agreement = agreement_of(judged_by(decisions, final[labelled]), labels[labelled])
        shown = ShownState.of(shard, ids, rule.standardise(*scores), judged[1], truth)
        return LabelledState(agreement, shown)

    hashes: list[str] = []
    return total(of(*read()) for read in _read_final(shards, group)), hashes


def _save_gallery(labelled: LabelledState, unit: UnitLayout) -> None:
    write_gallery(unit, labelled.shown)


def _evaluate(
    scored: ScoredState,
    counted: CountedState,
    labelled: LabelledState,
    classes: Sequence[str],
    empty_class: EmptyClass,
) -> dict[str, Any]:
    return evaluate(scored, counted, labelled.agreement, classes, empty_class)


FINAL = Pass(AFTER_FIT[0], ScoredState, _final_scores, UnitShards.has_final)
COUNTS = Pass(AFTER_FIT[1], CountedState, _counts)
LABELS = Pass(AFTER_FIT[2], LabelledState, _labels, UnitShards.has_labels)
