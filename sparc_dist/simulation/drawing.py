"""A simulated run: draws scores shard by shard, then reduces them like any other run."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sparc_dist.config import Config
from sparc_dist.errors import explain
from sparc_dist.pipeline.executor import executor
from sparc_dist.pipeline.passes import Passes, ShardGroup
from sparc_dist.pipeline.prepare import Prepared, prepare
from sparc_dist.pipeline.small import is_small
from sparc_dist.pipeline.stages import Stages
from sparc_dist.runner import run
from sparc_dist.runs import Marker, Provenance, Results, RunLayout, UnitShards
from sparc_dist.runs.image_list import read_images
from sparc_dist.runs.marker_tables import begin
from sparc_dist.runs.shards import ClassNames, scores_table, write_shard
from sparc_dist.simulation.inputs import Settings, seed_of
from sparc_dist.simulation.model import ScoreModel
from sparc_dist.storage import retries

log = logging.getLogger(__name__)


def draw_and_reduce(config: Config, settings: Settings) -> Results:
    """Does what is missing of a simulated run that is claimed and has its input."""
    layout = RunLayout(config.output)
    (dataset,) = config.datasets
    sizes = [settings.images] * settings.backbones
    with executor(config.resources, is_small(config.resources, sizes)):
        try:
            _score(config, layout, settings)
        except Exception as error:
            log.debug("simulation failed", exc_info=error)
            failed = {(dataset.name, name): explain(error) for name in settings.models}
            return Results(layout, [dataset.name], settings.models, failures=failed)
        return run(config, phase="reduce")


def _score(config: Config, layout: RunLayout, settings: Settings) -> None:
    """Draws the scores of all shards into storage, one task per group of shards."""
    (dataset,) = config.datasets
    limit = config.resources.no_progress_seconds
    data = prepare(config, dataset, layout.dataset(dataset.name))
    for name in settings.models:
        drawing = Drawing.from_prepared(data, name, settings)
        stages = Stages(dataset.name, name)
        begin(drawing.shards.unit, len(data.sizes), len(data.sizes))
        Passes(data.sizes, limit).merged("scoring", stages, partial(_draw, drawing))


@dataclass(frozen=True)
class Drawing:
    """What is needed to draw a shard."""

    shards: UnitShards
    model: ScoreModel
    scoring: Provenance
    names: ClassNames

    @classmethod
    def from_prepared(cls, data: Prepared, backbone: str, settings: Settings) -> Drawing:
        """Returns the drawing of a prepared data set."""
        bank, count = data.bank, len(data.bank.classes)
        mentioned = [prompt.class_ids for prompt in bank.compound]
        return cls(
            UnitShards(data.layout, data.layout.unit(backbone), count, len(mentioned)),
            ScoreModel(settings.noise, seed_of(settings.seed, backbone), count, mentioned),
            Provenance(settings.sha256, bank.sha256, data.images_sha256, "simulated"),
            bank.names,
        )

    def done(self, shard: int) -> bool:
        """Whether the shard was drawn with these settings and is not damaged."""
        marker = Marker.read(self.shards.unit, shard)
        matches = marker is not None and marker.scoring == self.scoring
        return matches and not self.shards.damaged(shard)

    def draw(self, shard: int) -> None:
        """Writes the scores, errors and marker of a shard, in this order."""
        before = retries()
        rows = read_images(self.shards.dataset, shard, ["image_id"])
        ids = rows["image_id"].to_pylist()
        scores = self.model.scores(shard, self.shards.labels(shard, ids)[1])
        embedding = np.zeros((len(ids), 0), dtype=np.float32)
        table = scores_table(ids, scores, embedding, self.names)
        marker = write_shard(self.shards.unit, shard, table, [], self.scoring)
        replace(marker, retries=retries() - before).write(self.shards.unit)


def _draw(drawing: Drawing, group: ShardGroup) -> int:
    """Draws the missing or damaged shards of a group. Returns their number."""
    missing = [shard for shard in group.shards if not drawing.done(shard)]
    for shard in missing:
        drawing.draw(shard)
    return len(missing)
