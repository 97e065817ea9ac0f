"""The ensemble of a data set's backbones: a unit whose final scores are the mean of theirs.

One pass over the members' final scores takes the place of the first three passes of the reduce; the
others are the same. It is resumed as any reduce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from sparc_dist import storage
from sparc_dist.config import ENSEMBLE, Config
from sparc_dist.core import (
    Decision,
    FinalScores,
    Labelled,
    Moments,
    ScoredState,
    Standard,
    average,
    totals_of,
)
from sparc_dist.errors import UserError
from sparc_dist.pipeline.executor import get, submit
from sparc_dist.pipeline.passes import ShardGroup
from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.reduce_phase import FINAL, Pass, ReducePhase
from sparc_dist.pipeline.stages import Stages
from sparc_dist.pipeline.unit import decided_facts, error_facts, method_of, primary_of, told_again
from sparc_dist.runs import UnitLayout, UnitShards, reduce_checkpoints, shard_groups
from sparc_dist.runs.ensemble_file import EnsembleLabeler, write_any_labeler
from sparc_dist.runs.labeler_file import read_labeler
from sparc_dist.runs.markers import READERS
from sparc_dist.runs.reduce_checkpoints import group_key
from sparc_dist.runs.results import members_key, reopen
from sparc_dist.runs.shards import ERRORS, ClassNames, error_kind, final_table, read_images


@dataclass(frozen=True)
class Member:
    """A finished unit to average. key: of its final scores."""

    name: str
    shards: UnitShards
    key: str

    def state(self, number: int, shards: range) -> tuple[ScoredState, list[str]]:
        """Returns the state of a group of shards, and the hash of each one's final scores."""
        url, key = self.shards.unit.state(FINAL.stage, number), group_key(self.key, shards)
        found = reduce_checkpoints.load(url, key, ScoredState)
        if found is None:
            raise self._damaged(url)
        return found

    def final(self, shard: int, sha256: str) -> tuple[list[str], FinalScores]:
        """Returns a shard's image ids and final scores, compared with their hash."""
        if not self.shards.has_final(shard, sha256):
            raise self._damaged(self.shards.unit.final(shard))
        return self.shards.final(shard, sha256)

    def errors(self, shard: int) -> dict[str, dict[str, Any]]:
        """Returns the rows about images of a shard that could not be read, by their ids."""
        rows = storage.read_table(self.shards.unit.errors(shard)).to_pylist()
        return {row["image_id"]: row for row in rows}

    def _damaged(self, url: str) -> UserError:
        return UserError(
            f"{url} is missing or damaged; run `sparc-dist verify RUN`, and then start the run "
            "again: it keeps the scores and computes the rest."
        )


@dataclass
class EnsembleUnit:
    """The ensemble of a data set. members: backbones with the keys of their final scores."""

    config: Config
    data: Prepared
    members: Mapping[str, str]

    def __post_init__(self) -> None:
        self.stages = Stages(*self.key)

    @property
    def key(self) -> tuple[str, str]:
        """The name of the data set, and its own."""
        return self.data.config.name, ENSEMBLE

    @property
    def layout(self) -> UnitLayout:
        """The names of its files."""
        return self.data.layout.unit(ENSEMBLE)

    def remove(self) -> None:
        """Deletes its files, the marker first; keeps what people told, for it may be made again."""
        storage.delete(self.layout.metrics)
        results = {*self.layout.files(len(self.data.sizes))} - {self.layout.knowledge}
        with ThreadPoolExecutor(READERS) as workers:
            list(workers.map(storage.delete, results))

    def make(self, metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Writes all its files; returns its metrics. metrics: those of its members."""
        reopen(self.layout, "its backbones change")
        phase, bank = self._phase(), self.data.bank
        members = [Member(name, self._shards(name), own) for name, own in self.members.items()]
        groups = shard_groups(len(phase.images))
        standards = [submit(_standard, member, groups) for member in members]
        totals = totals_of(phase.method.fusions)
        scored = phase.merged(AVERAGE, self.stages, members, bank.names, totals, *standards)
        decisions, counted = phase.decide(scored, self.stages)
        images = get(submit(_images, scored), phase.limit, "Counting the images")
        averaged = [get(own, phase.limit, "Standardising scores") for own in standards]
        rules = get(decisions, phase.limit, "Fitting decisions")
        _save(rules, self.layout, phase.primary, images, members, averaged)
        labelled = phase.label(decisions, self.stages)
        found = {
            **decided_facts(phase, (scored, counted, labelled), self.config, self.data),
            "images": images,
            "errors": self._errors(phase, images),
            "backbones": list(self.members),
            "final_key": phase.key,
            "prompts_sha256": bank.sha256,
            "device": "+".join(sorted({own["device"] for own in metrics.values()})),
            "notes": self._notes(images, metrics),
            "stages": self.stages.summary(),
            "recovery": {"storage_retries": phase.retries},
        }
        embedded = self.data.embeddings
        source = None if embedded is None else embedded.layout.unit(ENSEMBLE)
        found = told_again(self.config, self.data, self.layout, found, source)
        storage.write_json(self.layout.metrics, found)
        return found

    def _phase(self) -> ReducePhase:
        """Returns its reduce, of which the first passes are not needed."""
        config, data = self.config, self.data
        of = (data.bank, method_of(config), primary_of(config, data.config))
        key, limit = members_key(self.members) or "", config.resources.no_progress_seconds
        return ReducePhase(self._shards(ENSEMBLE), *of, data.sizes, key, limit)

    def _errors(self, phase: ReducePhase, images: int) -> dict[str, Any]:
        """Returns the part of its metrics about images that no backbone could read."""
        errors, passing, reasons = self.data.images - images, 0, Counter[str]()
        for part in phase.passes.each("errors", _reasons, phase.shards) if errors else ():
            own, more = get(part, phase.limit, "Counting errors")
            passing, reasons = passing + own, reasons + more
        return error_facts(images, errors, passing, reasons)

    def _shards(self, name: str) -> UnitShards:
        bank, layout = self.data.bank, self.data.layout
        sizes = (len(bank.classes), len(bank.compound), len(bank.background))
        return UnitShards(layout, layout.unit(name), *sizes)

    def _notes(self, images: int, metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Returns which backbones it holds, which not, and which lack images."""
        missing = [b.name for b in self.config.backbones if b.name not in self.members]
        without = f"; without {', '.join(missing)}, which did not finish" if missing else ""
        notes = [f"The mean of {', '.join(self.members)}{without}."]
        for name, own in metrics.items():
            if fewer := images - own["images"]:
                notes.append(
                    f"{fewer} images have no scores under {name} and are averaged over the others."
                )
        return notes


def _standard(member: Member, groups: Sequence[range]) -> Standard:
    """Returns what standardises a member, from the moments that its pass 3 has gathered."""
    states = (member.state(number, shards)[0] for number, shards in enumerate(groups))
    moments: Moments = reduce_checkpoints.merge([state.every for state in states])
    return Standard.of(moments)


def _averaged(
    shards: UnitShards,
    group: ShardGroup,
    members: Sequence[Member],
    names: ClassNames,
    totals: Mapping[str, Sequence[str]],
    *standards: Standard,
) -> tuple[ScoredState, list[str]]:
    """Writes the mean of the members' scores; returns their state and the hashes of the files."""
    hashes = [member.state(group.number, group.shards)[1] for member in members]
    written: list[str] = []

    def averaged(shard: int, known: Sequence[str]) -> Labelled:
        own = [member.final(shard, sha256) for member, sha256 in zip(members, known, strict=True)]
        rows = read_images(shards.dataset, shard, ["image_id", "uri"])
        scored = {image_id for ids, _ in own for image_id in ids}
        ids = [image_id for image_id in rows["image_id"].to_pylist() if image_id in scored]
        index = {image_id: row for row, image_id in enumerate(ids)}
        parts = (
            (final, standard, np.array([index[image_id] for image_id in found], dtype=np.intp))
            for (found, final), standard in zip(own, standards, strict=True)
        )
        final = average(parts, len(ids))
        _write_errors(shards, shard, members, rows, scored)
        table = final_table(pa.chunked_array([pa.array(ids, pa.string())]), final, names)
        written.append(storage.write_table(shards.unit.final(shard), table))
        return final, *shards.labels(shard, ids)

    by_shard = zip(*hashes, strict=True)
    return ScoredState.of(map(averaged, group.shards, by_shard), totals), written


def _write_errors(
    shards: UnitShards, shard: int, members: Sequence[Member], rows: pa.Table, scored: set[str]
) -> None:
    """Writes the images that no member could read, with the reason of the first that says one."""
    missing = [row for row in rows.to_pylist() if row["image_id"] not in scored]
    found: dict[str, dict[str, Any]] = {}
    for member in members if missing else ():
        found = member.errors(shard) | found
    unknown = {"error": "no backbone has scores of it", "passing": False}
    told = [
        {**row, "uri": storage.without_secrets(row["uri"])} | found.get(row["image_id"], unknown)
        for row in missing
    ]
    table = pa.Table.from_pylist(told, schema=ERRORS)
    storage.write_table(shards.unit.errors(shard), table)


def _is_written(shards: UnitShards, shard: int, sha256: str) -> bool:
    """Whether both files of a shard are there, the final scores as they were written."""
    errors = storage.read_if_exists(shards.unit.errors(shard))
    return shards.has_final(shard, sha256) and storage.seal_of(errors) is not None


def _images(scored: ScoredState) -> int:
    return scored.every.count


def _reasons(group: ShardGroup, shards: UnitShards) -> tuple[int, Counter[str]]:
    """Returns how many errors may pass, and how many there are of each kind."""
    tables = (storage.read_table(shards.unit.errors(shard)) for shard in group.shards)
    rows = [row for table in tables for row in table.to_pylist()]
    kinds = Counter(error_kind(row["error"]) for row in rows)
    return sum(row["passing"] for row in rows), kinds


def _save(
    decisions: Mapping[str, Decision],
    unit: UnitLayout,
    primary: str,
    images: int,
    members: Sequence[Member],
    standards: Sequence[Standard],
) -> None:
    """Writes the labeler; it has no use for its members' own decisions."""
    labelers = {
        member.name: replace(read_labeler(member.shards.unit.labeler), decisions={}, rule={})
        for member in members
    }
    by_name = {member.name: own for member, own in zip(members, standards, strict=True)}
    labeler = EnsembleLabeler(labelers, by_name, decisions, primary, images)
    write_any_labeler(unit.labeler, labeler)


AVERAGE = Pass(FINAL.stage, FINAL.kind, _averaged, _is_written)
