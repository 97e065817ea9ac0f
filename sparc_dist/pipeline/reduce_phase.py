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
    DecidedStatistics,
    Decision,
    DecisionStatistics,
    EmptyClass,
    FinalScores,
    FinalStatistics,
    Fusions,
    GalleryStatistics,
    Labelled,
    LabelStatistics,
    Method,
    PromptStatistics,
    RankStatistics,
    decide,
    evaluate,
)
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.passes import Passes, ShardGroup, Watch, total
from sparc_dist.prompts import PromptBank
from sparc_dist.runs import STAGES, UnitLayout, UnitShards, reduce_checkpoints
from sparc_dist.runs.decisions_file import write_decisions
from sparc_dist.runs.gallery_file import write_gallery
from sparc_dist.runs.labeler_file import FittedLabeler, ImageModel, write_labeler
from sparc_dist.runs.labels import write_labels
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
        """Passes 1 and 2: fits and saves both fusions; returns a reference to them."""
        mentions = self.bank.mentions
        prompts = self.merged(PROMPTS, watch, self.method)
        ranks = self.merged(RANKS, watch, prompts, mentions, self.method)
        return submit(_fit, prompts, ranks, self.bank, self.method)

    def score(self, fusions: Any, watch: Watch) -> Any:
        """Pass 3: writes final scores; returns a reference to their statistics."""
        return self.merged(FINAL, watch, fusions, self.bank.names)

    def decide(self, statistics: Any, watch: Watch) -> tuple[Any, Any]:
        """Pass 4: fits and saves decisions; returns references to them and to its statistics."""
        counts = self.merged(COUNTS, watch, statistics)
        place = (self.bank.classes, self.shards.unit.decisions, self.primary)
        return submit(_decide, statistics, counts, *place), counts

    def save(self, fusions: Any, decisions: Any, model: ImageModel) -> list[str]:
        """Writes the labeler; returns the notes of both fusions."""
        place = (self.shards.unit, self.bank, self.primary, model)
        notes: list[str] = get(
            submit(_save, fusions, decisions, *place), self.limit, "Writing the labeler"
        )
        return notes

    def label(self, decisions: Any, watch: Watch) -> Any:
        """Pass 5: writes labels and the gallery; returns a reference to its statistics."""
        decided = self.merged(LABELS, watch, decisions, self.bank.classes, self.primary)
        saving = submit(_save_gallery, decided, self.shards.unit)
        get(saving, self.limit, "Writing the gallery")
        return decided

    def evaluate(
        self, statistics: Any, counts: Any, decided: Any, empty_class: EmptyClass
    ) -> dict[str, Any]:
        """Returns AP per class and mAP of all methods, and how good the decisions are."""
        places = (self.bank.classes, empty_class)
        summary = submit(_evaluate, statistics, counts, decided, *places)
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

    written: whether a shard still has the file with a hash, for passes that write one per shard.
    """

    stage: str
    kind: type[Any]
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


def _prompts(
    shards: UnitShards, group: ShardGroup, method: Method
) -> tuple[PromptStatistics, list[str]]:
    return total(PromptStatistics.of(shards.scores(i)[1], method) for i in group.shards), []


def _ranks(
    shards: UnitShards, group: ShardGroup, prompts: PromptStatistics, mentions: Any, method: Method
) -> tuple[RankStatistics, list[str]]:
    state = RankStatistics.maker(prompts, mentions, method)
    return total(state(shards.scores(i)[1]) for i in group.shards), []


def _fit(
    prompts: PromptStatistics,
    ranks: RankStatistics,
    bank: PromptBank,
    method: Method,
) -> Fusions:
    return Fusions.fit(prompts, ranks, bank.mentions, len(bank.classes), method)


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
) -> tuple[FinalStatistics, list[str]]:
    hashes: list[str] = []

    def written(shard: int) -> Labelled:
        ids, scores = shards.scores(shard)
        final = fusions.final(scores)
        table = final_table(ids, final, names)
        hashes.append(storage.write_table(shards.unit.final(shard), table))
        return final, *shards.labels(shard, ids.to_pylist())

    return FinalStatistics.of(map(written, group.shards)), hashes


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
    shards: UnitShards, group: ShardGroup, statistics: FinalStatistics
) -> tuple[DecisionStatistics, list[str]]:
    def labelled(shard: int, ids: list[str], final: FinalScores) -> Labelled:
        return final, *shards.labels(shard, ids)

    found = (labelled(*read()) for read in _read_final(shards, group))
    return DecisionStatistics.of(found, statistics), []


def _decide(
    statistics: FinalStatistics,
    counts: DecisionStatistics,
    classes: Sequence[str],
    url: str,
    primary: str,
) -> dict[str, Decision]:
    """Fits the rule of each method and saves them."""
    found = {
        name: decide(moments, counts.counts[name], len(classes))
        for name, moments in statistics.moments.items()
    }
    write_decisions(url, found, classes, primary)
    return found


def _labels(
    shards: UnitShards,
    group: ShardGroup,
    decisions: Mapping[str, Decision],
    classes: Sequence[str],
    primary: str,
) -> tuple[DecidedStatistics, list[str]]:
    def of(shard: int, ids: list[str], final: FinalScores) -> DecidedStatistics:
        scores, rule = final.columns(primary), decisions[primary]
        judged = rule.judge(*scores)
        hashes.append(write_labels(shards.unit, shard, ids, classes, judged))
        labelled, labels = truth = shards.labels(shard, ids)
        agreement = LabelStatistics.of(final[labelled], labels[labelled], decisions)
        shown = GalleryStatistics.of(shard, ids, rule.standardise(*scores), judged[1], truth)
        return DecidedStatistics((agreement, shown))

    hashes: list[str] = []
    return total(of(*read()) for read in _read_final(shards, group)), hashes


def _save_gallery(decided: DecidedStatistics, unit: UnitLayout) -> None:
    write_gallery(unit, decided.parts[1])


def _evaluate(
    statistics: FinalStatistics,
    counts: DecisionStatistics,
    decided: DecidedStatistics,
    classes: Sequence[str],
    empty_class: EmptyClass,
) -> dict[str, Any]:
    return evaluate(statistics, counts, decided.parts[0], classes, empty_class)


PROMPTS = Pass(STAGES[0], PromptStatistics, _prompts)
RANKS = Pass(STAGES[1], RankStatistics, _ranks)
FINAL = Pass(STAGES[2], FinalStatistics, _final_scores, UnitShards.has_final)
COUNTS = Pass(STAGES[3], DecisionStatistics, _counts)
LABELS = Pass(STAGES[4], DecidedStatistics, _labels, UnitShards.has_labels)
