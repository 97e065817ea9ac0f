"""A simulated run on Ray: scores drawn shard by shard, then reduced as those of images are."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sparc_dist import storage
from sparc_dist.config import Config
from sparc_dist.core.simulation import ScoreModel
from sparc_dist.filesystems import retries
from sparc_dist.layout import RunLayout
from sparc_dist.markers import Marker, Scoring
from sparc_dist.outcome import Outcome
from sparc_dist.pipeline.cluster import cluster
from sparc_dist.pipeline.passes import Group, Passes
from sparc_dist.pipeline.prepare import Prepared, prepare
from sparc_dist.pipeline.stages import Stages
from sparc_dist.pipeline.units import sentence
from sparc_dist.run import run
from sparc_dist.shards import UnitShards, scores_table, write_shard
from sparc_dist.simulation_inputs import Settings

log = logging.getLogger(__name__)


def draw_and_reduce(config: Config, settings: Settings) -> Outcome:
    """Do what is missing of a simulated run that is claimed and has its input."""
    layout = RunLayout(config.output)
    (dataset,), (backbone,) = config.datasets, config.backbones
    with cluster(config.resources):
        try:
            _score(config, layout, settings)
        except Exception as error:
            log.debug("simulation failed", exc_info=error)
            return Outcome(layout, failures={(dataset.name, backbone.name): sentence(error)})
        return run(config, part="reduce")


def _score(config: Config, layout: RunLayout, settings: Settings) -> None:
    """The scores of all shards to storage, a task per group of them."""
    (dataset,), (backbone,) = config.datasets, config.backbones
    limit = config.resources.no_progress_seconds
    data = prepare(dataset, layout.dataset(dataset.name), config.shard_size, limit)
    drawing = Drawing.of(data, backbone.name, settings)
    stages = Stages(dataset.name, backbone.name, data.images)
    Passes(data.sizes, limit).merged("scoring", stages.watch, partial(_draw, drawing))


@dataclass(frozen=True)
class Drawing:
    """What it takes to draw a shard."""

    shards: UnitShards
    model: ScoreModel
    scoring: Scoring

    @classmethod
    def of(cls, data: Prepared, backbone: str, settings: Settings) -> Drawing:
        """The drawing of a prepared data set."""
        bank, count = data.bank, len(data.bank.classes)
        mentioned = [prompt.class_ids for prompt in bank.compound]
        return cls(
            UnitShards(data.layout, data.layout.unit(backbone), count, len(mentioned)),
            ScoreModel(settings.noise, settings.seed, count, mentioned),
            Scoring(settings.sha256, bank.sha256, data.images_sha256, "simulated"),
        )

    def done(self, shard: int) -> bool:
        """Whether the shard is there as it was written."""
        marker = Marker.read(self.shards.unit, shard)
        ours = marker is not None and marker.scoring == self.scoring
        return ours and not self.shards.damaged(shard)

    def draw(self, shard: int) -> None:
        """Scores, errors and marker of a shard, in this order."""
        before = retries()
        rows = storage.read_row_group(self.shards.dataset.images, shard, ["image_id"])
        ids = rows["image_id"].to_pylist()
        scores = self.model.scores(shard, self.shards.labels(shard, ids)[1])
        table = scores_table(ids, scores, np.zeros((len(ids), 0), dtype=np.float32))
        marker = write_shard(self.shards.unit, shard, table, [], self.scoring)
        replace(marker, retries=retries() - before).write(self.shards.unit)


def _draw(drawing: Drawing, group: Group) -> int:
    """Draw what is missing or damaged of a group of shards; gives how many those were."""
    missing = [shard for shard in group.shards if not drawing.done(shard)]
    for shard in missing:
        drawing.draw(shard)
    return len(missing)
