"""The map phase without images: embeddings of another run in, scores in storage.

A shard is one product of its embeddings with the texts. No image is opened, and no worker holds a
model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparc_dist.errors import OVERWRITE, UserError
from sparc_dist.pipeline.embed import Embedded, Texts
from sparc_dist.pipeline.executor import current, get, submit
from sparc_dist.pipeline.map_phase import Row, ShardOutcome, Todo
from sparc_dist.pipeline.steps import Target
from sparc_dist.runs import DatasetLayout, UnitLayout, shard_groups
from sparc_dist.runs.embedded_run import EmbeddedShard
from sparc_dist.runs.layout import SEGMENT
from sparc_dist.runs.shards import read_images, scores_table, write_shard
from sparc_dist.runs.storing import ALL, similarities
from sparc_dist.storage import retries

WHAT = "Scoring stored embeddings"


@dataclass(frozen=True)
class EmbeddedPhase:
    """Everything needed to score the shards of a data set from stored embeddings.

    sources, targets: by the name of the backbone, the unit with the embeddings and that of the
    scores.
    """

    dataset: DatasetLayout
    sources: Mapping[str, UnitLayout]
    targets: Mapping[str, Target]

    def run(self, todo: Todo, texts: Any, limit: float) -> Iterator[ShardOutcome]:
        """Scores the shards of ``todo`` with the backbones it names; yields each as it finishes.

        texts: as embed_prompts returns them.
        """
        for rows in todo.segments(SEGMENT):
            parts = [rows[part.start : part.stop] for part in shard_groups(len(rows))]
            jobs = [submit(_score, self, part, texts) for part in parts]
            for job in current().finished(jobs, limit, WHAT):
                yield from get(job, limit, WHAT)

    def score(self, shard: int, names: Sequence[str], texts: Texts) -> ShardOutcome:
        """Scores a shard; a backbone's failure does not affect the others."""
        done, failures, errors, seconds = [], {}, 0, []
        for name in names:
            try:
                errors, taken = self._write(shard, name, texts[name])
                done.append(name)
                seconds.append(taken)
            except UserError as error:
                failures[name] = str(error)
        return ShardOutcome(shard, done, failures, errors, seconds)

    def _write(self, shard: int, name: str, embedded: Embedded) -> tuple[int, float]:
        """Writes a shard's scores under one backbone.

        Returns the number of unreadable images, and the seconds that the texts took.
        """
        if isinstance(embedded, str):
            raise UserError(embedded)
        before = retries()
        target, source = self.targets[name], self.sources[name]
        texts, loaded = embedded
        width = texts.singleton.shape[1]
        found = EmbeddedShard.read(source, shard, loaded.weights_sha256, width)
        self._check_images(shard, found, source)
        scores = similarities(found.embedding, texts.by_kind)
        storing = replace(target.storing or ALL, kept_sha256=loaded.kept_sha256)
        table = scores_table(found.ids, scores, found.embedding, target.names, storing)
        # The device is the one that embedded the images.
        scoring = target.scoring(loaded.weights_sha256, found.marker.scoring.device)
        marker = write_shard(target.unit, shard, table, found.errors, scoring)
        spent = retries() - before
        made = found.marker
        replace(marker, retries=spent, input=made.input, checkpoint=made.checkpoint).write(
            target.unit
        )
        return len(found.errors), loaded.text_seconds

    def _check_images(self, shard: int, found: EmbeddedShard, source: UnitLayout) -> None:
        """Raises UserError unless the embeddings are those of the shard's images."""
        images = read_images(self.dataset, shard, ["image_id"])
        ids = [*found.ids, *(error["image_id"] for error in found.errors)]
        if sorted(ids) != sorted(images["image_id"].to_pylist()):
            raise UserError(
                f"{source.scores(shard)} has other images than shard {shard} of "
                f"{self.dataset.images}; run without --embeddings-from, or start over with "
                f"{OVERWRITE}."
            )


def _score(phase: EmbeddedPhase, rows: Sequence[Row], texts: Texts) -> list[ShardOutcome]:
    return [phase.score(row["shard"], row["backbones"], texts) for row in rows]
