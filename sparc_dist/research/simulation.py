"""Simulated runs: labels of images that do not exist, and scores drawn from the noise model.

A simulated run has the files of any other, at any size, without a single image.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from sparc_dist import storage
from sparc_dist.config import SIMULATED, Config, DatasetConfig, check_classes, load_config
from sparc_dist.core import Floats
from sparc_dist.datasets import SCHEMA, Manifest
from sparc_dist.errors import UserError, explain
from sparc_dist.pipeline import configure_ray
from sparc_dist.pipeline.executor import executor
from sparc_dist.pipeline.passes import Passes, ShardGroup
from sparc_dist.pipeline.prepare import Prepared, prepare
from sparc_dist.pipeline.small import is_small
from sparc_dist.pipeline.stages import Stages
from sparc_dist.prompts import Cooccurrence
from sparc_dist.research.simulation_model import (
    LABELS,
    TRAINING,
    LabelModel,
    Labels,
    Noise,
    ScoreModel,
    built_in_cooccurrence,
    stream,
)
from sparc_dist.runner import run
from sparc_dist.runs import Marker, Provenance, Results, RunLayout, UnitShards, claim
from sparc_dist.runs.markers import begin
from sparc_dist.runs.results import read_metrics
from sparc_dist.runs.shards import ClassNames, read_images, scores_table, write_shard
from sparc_dist.storage import is_remote, retries

log = logging.getLogger(__name__)

TRAINING_IMAGES = 40_000  # their labels determine the prompts
BLOCK = 4096  # images whose labels are drawn at a time


@dataclass(frozen=True)
class Settings:
    """The settings of a simulation.

    classes: their number, or their names. labels: a table of labels whose co-occurrence is used; if
    None, a built-in one. backbones: so many models see the same labels, each with noise of its own.
    """

    images: int
    classes: int | tuple[str, ...]
    seed: int = 0
    labels: str | None = None
    noise: Noise = field(default_factory=Noise)
    shard_size: int = 1024
    backbones: int = 1

    def __post_init__(self) -> None:
        limits = {"images": 1, "classes": 1, "seed": 0, "shard_size": 1, "backbones": 1}
        for name, least in limits.items():
            value = getattr(self, name)
            if isinstance(value, int) and value < least:
                raise UserError(f"{name} is {value}; it must be at least {least}.")
        try:
            check_classes(self.names)
        except ValueError as error:
            raise UserError(f"The classes of a simulation: {error}.") from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes; generated if only their number is given."""
        if not isinstance(self.classes, int):
            return self.classes
        width = max(2, len(str(self.classes)))
        return tuple(f"class {number:0{width}d}" for number in range(1, self.classes + 1))

    def facts(self) -> dict[str, Any]:
        """Returns all that determines the labels and scores, with a table's hash for its path."""
        table = "built in" if self.labels is None else storage.sha256(self.labels)
        facts = asdict(self) | {"classes": self.names, "labels": table}
        return facts | {"training_images": TRAINING_IMAGES}

    @property
    def sha256(self) -> str:
        """A hash of all that determines the labels and scores."""
        return hashlib.sha256(json.dumps(self.facts(), sort_keys=True).encode()).hexdigest()

    @property
    def models(self) -> list[str]:
        """The names of the simulated backbones."""
        return [SIMULATED, *(f"{SIMULATED}-{number}" for number in range(2, self.backbones + 1))]


def seed_of(seed: int, backbone: str) -> int:
    """Returns the seed of a backbone's scores: that of the labels for the first one."""
    number = backbone.removeprefix(SIMULATED).removeprefix("-")
    if not number:
        return seed
    return int(np.random.SeedSequence([seed, int(number)]).generate_state(1, np.uint64)[0])


def simulate(out: str, settings: Settings, overwrite: bool = False) -> Results:
    """Does what is missing of a simulated run at ``out``: labels, scores, reduce."""
    config = load_config(write_inputs(out, settings, overwrite))
    layout = RunLayout(config.output)
    claim(layout, config, overwrite)
    (dataset,) = config.datasets
    units = [layout.dataset(dataset.name).unit(name) for name in settings.models]
    if all(read_metrics(unit) for unit in units):
        return run(config, phase="reduce")
    configure_ray()
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


def score_model(root: str, dataset: DatasetConfig, backbone: str) -> ScoreModel:
    """Returns the model that drew a unit of the simulated run at ``root``, for other prompts.

    The run may have been moved: the names of the inputs come from the config, the folder from
    ``root``.
    """
    key = str(dataset.images).rsplit("/", 1)[-1].removeprefix("images-").removesuffix(".parquet")
    facts = storage.read_json(storage.join(root, _input("settings", key)))
    seed = seed_of(facts["seed"], backbone)
    return ScoreModel(Noise(**facts["noise"]), seed, len(facts["classes"]), ())


def write_inputs(out: str, settings: Settings, overwrite: bool = False) -> str:
    """Writes what is missing of the input below ``out``/input and the config. Returns its path.

    The files are named by a hash of the settings. Raises UserError if ``out`` contains a simulation
    with other settings.
    """
    out = storage.absolute(out, os.getcwd())
    key = settings.sha256[:16]
    tables = [_input(part, key) for part in ("images", "labels")]
    config = storage.join(out, "simulate.yaml")
    text = yaml.safe_dump(_config(out, settings, *tables), sort_keys=False).encode()
    if not overwrite and storage.read_if_exists(config) not in (None, text):
        raise UserError(
            f"{out} contains a simulation with other settings; use those settings or another "
            "folder, or replace it with --overwrite."
        )
    facts = storage.join(out, _input("settings", key))
    images, labels = (storage.join(out, table) for table in tables)
    if overwrite or any(map(storage.is_missing, (images, labels, facts))):
        print(f"drawing the labels of {settings.images:,} images", file=sys.stderr, flush=True)
        model = LabelModel.from_joint(_joint(settings))
        _write(images, _images(model, settings))
        _write(labels, _training(model, settings))
        storage.write_json(facts, settings.facts())
    if storage.read_if_exists(config) != text:
        storage.write_bytes(config, text)
    return config


def _input(part: str, key: str) -> str:
    return f"input/{part}-{key}.{'json' if part == 'settings' else 'parquet'}"


def _config(out: str, settings: Settings, images: str, labels: str) -> dict[str, object]:
    """Returns the run's config as a user would write it; paths are relative to the config."""
    return {
        "output": out if is_remote(out) else ".",
        "datasets": [
            {
                "name": "simulation",
                "kind": "manifest",
                "images": images,
                "classes": list(settings.names),
                "background": "none",
                "prompts": {"source": "labels", "labels": labels},
            }
        ],
        "backbones": [{"name": name, "model": SIMULATED} for name in settings.models],
        "shard_size": settings.shard_size,
    }


def _joint(settings: Settings) -> Floats:
    """Returns joint probabilities (N, N) of the classes: those of a table, or the built-in ones."""
    count = len(settings.names)
    if settings.labels is None:
        return built_in_cooccurrence(count)
    images, seen = 0, Cooccurrence.of([], count)
    for batch in Manifest(settings.labels, settings.names).labels():
        images += len(batch)
        seen += Cooccurrence.of(batch, count)
    if not seen.counts.any():
        raise UserError(f"{settings.labels} contains no labels; use a table with labels.")
    pairs: Floats = np.einsum("iij->ij", seen.counts) / images
    return pairs


def _images(model: LabelModel, settings: Settings) -> Iterator[pa.Table]:
    """Yields the manifest, one block at a time."""
    width = max(6, len(str(settings.images)))
    for block, start in enumerate(range(0, settings.images, BLOCK)):
        numbers = range(start, min(start + BLOCK, settings.images))
        ids = [f"{number:0{width}d}" for number in numbers]
        # The two slashes make it a URL, which does not depend on where the run is stored.
        uris = [f"{SIMULATED}://{image_id}" for image_id in ids]
        labels = model.draw(len(numbers), stream(settings.seed, LABELS, block))
        versions = pa.nulls(len(ids), pa.string())
        yield pa.table([pa.array(ids), pa.array(uris), _lists(labels), versions], schema=SCHEMA)


def _training(model: LabelModel, settings: Settings) -> Iterator[pa.Table]:
    """Yields the labels of other images, from which the compound prompts are made."""
    for block, start in enumerate(range(0, TRAINING_IMAGES, BLOCK)):
        count = min(BLOCK, TRAINING_IMAGES - start)
        labels = model.draw(count, stream(settings.seed, TRAINING, block))
        yield pa.table({"labels": _lists(labels)})


def _lists(labels: Labels) -> pa.ListArray:
    """Returns labels (n, N) as lists of the indices of the present classes."""
    offsets = np.concatenate([[0], np.cumsum(labels.sum(axis=1))])
    indices = np.nonzero(labels)[1].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(indices))


def _write(url: str, blocks: Iterator[pa.Table]) -> None:
    """Writes the blocks as one Parquet file."""
    first = next(blocks)
    with storage.atomic_file(url) as path, pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for block in blocks:
            writer.write_table(block)
