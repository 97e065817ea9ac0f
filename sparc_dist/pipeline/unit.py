"""A unit, one data set under one backbone: the thing that succeeds, fails and resumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import (
    DATASET_KINDS,
    SIMULATED,
    BackboneConfig,
    Config,
    DatasetConfig,
)
from sparc_dist.core import FUSIONS, Method, methods_of
from sparc_dist.errors import NEW_OUTPUT, OVERWRITE, UserError
from sparc_dist.pipeline.apply import applied_facts, make_gallery
from sparc_dist.pipeline.embed import Loaded, TextTower
from sparc_dist.pipeline.map_phase import Compaction
from sparc_dist.pipeline.passes import Passes
from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.pipeline.stages import Stages
from sparc_dist.pipeline.steps import Target
from sparc_dist.prompts import TextEmbeddings
from sparc_dist.runs import MarkerSummary, Provenance, Storing, UnitLayout, UnitShards
from sparc_dist.runs.decisions import doubts_of, read_decisions, write_decisions
from sparc_dist.runs.labeler_file import FittedLabeler, ImageModel, read_labeler, write_labeler
from sparc_dist.runs.markers import forget
from sparc_dist.runs.refit import apply_again
from sparc_dist.runs.run import FinishedUnit

MOST_REASONS = 20  # kinds of errors that the report lists


@dataclass
class Unit:
    """One data set under one backbone.

    damaged: shards whose scores were changed after they were written, to be scored again.
    compaction: of its markers, once ``todo`` has read them.
    """

    config: Config
    data: Prepared
    backbone: BackboneConfig
    damaged: list[int] = field(default_factory=list)
    compaction: Compaction | None = None
    _scored_by: set[Provenance] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.backbone = self.backbone.sized(self.data.config.resnet_size)
        self.stages = Stages(*self.key)

    @property
    def key(self) -> tuple[str, str]:
        """The names of data set and backbone."""
        return self.data.config.name, self.backbone.name

    @property
    def layout(self) -> UnitLayout:
        """The names of its files."""
        return self.data.layout.unit(self.backbone.name)

    @property
    def shards(self) -> UnitShards:
        """Reads its shards."""
        bank = self.data.bank
        sizes = (len(bank.classes), len(bank.compound), len(bank.background))
        return UnitShards(self.data.layout, self.layout, *sizes)

    @property
    def primary(self) -> str:
        """The method that decides."""
        return primary_of(self.config, self.data.config)

    def passes(self) -> Passes:
        """Returns passes over its scores; raises UserError unless they are complete."""
        limit = self.config.resources.no_progress_seconds
        return Passes(self._complete_summary().images, limit)

    def todo(self) -> NDArray[np.int64]:
        """Returns the shards that have no marker, and the damaged ones."""
        summary = self._summary()
        self._scored_by = summary.scorings
        self._check_same("prompts", self.data.bank.sha256)
        self._check_same("images", self.data.images_sha256)
        todo = np.union1d(summary.missing, self.damaged).astype(np.int64)
        self.compaction = Compaction(self.layout, summary, todo)
        return todo

    def on_gpu(self) -> bool:
        """Whether a GPU scored any of it."""
        return any(made_by.device != "cpu" for made_by in self._summary().scorings)

    def check_weights(self, loaded: Loaded) -> None:
        """Raises UserError unless the weights are those of the stored scores and embeddings."""
        known = frozenset(old.weights_sha256 for old in self._summary().scorings)
        SameModel(self.layout.root, known, None, self.backbone)(loaded)

    @cached_property
    def labeler(self) -> FittedLabeler | None:
        """The labeler that labels the shards ``todo``; None if the unit fits its own."""
        if self.data.applied_from is None:
            return None
        return read_labeler(self.config.labeler or self.layout.labeler)

    @property
    def jpeg_scaling(self) -> bool:
        """Whether its large JPEGs are decoded at a smaller scale: as the labeler's fit did."""
        known = None if self.labeler is None else self.labeler.image_model
        return self.config.jpeg_scaling if known is None else known.jpeg_scaling

    @property
    def texts(self) -> TextEmbeddings | None:
        """The embeddings of its prompts that its labeler has."""
        known = {} if self.labeler is None else self.labeler.texts
        return TextEmbeddings(**known) if known else None

    @property
    def text_tower(self) -> TextTower:
        """What embeds its prompts, if its weights are those of the other shards and the labeler."""
        known = frozenset(old.weights_sha256 for old in self._scored_by)
        model = None if self.labeler is None else self.labeler.image_model
        check = SameModel(self.layout.root, known, model, self.backbone)
        keeps = self.layout if self._keeps_prompts else None
        return TextTower(self.backbone, self.layout.texts, self.texts, check, keeps)

    @property
    def target(self) -> Target:
        """Where the shards ``todo`` go."""
        bank, config = self.data.bank, self.config
        hashes = (bank.sha256, self.data.images_sha256)
        storing = Storing(config.store, config.stored_precision) if not config.labeler else None
        return Target(self.layout, *hashes, bank.names, self.labeler, storing)

    @property
    def _keeps_prompts(self) -> bool:
        return self.config.store == "embeddings" and self.config.labeler is None

    @property
    def needs_texts(self) -> bool:
        """Whether texts are to be embedded even if no image is: they are missing or damaged.

        The labeler that is fitted needs them, and scores where only embeddings are kept.
        """
        needed = [self.layout.texts] if self.labeler is None else []
        needed += [self.layout.prompt_embeddings] if self._keeps_prompts else []
        return any(storage.seal_of(storage.read_if_exists(url)) is None for url in needed)

    def reduce(self) -> dict[str, Any]:
        """Writes final scores, labeler and metrics, from complete scores; returns the metrics."""
        markers = self._complete_summary()
        if self.labeler is not None:
            return self._applied(self.labeler, markers)
        phase = self._phase(markers)
        fusions = phase.fit(self.stages)
        scored = phase.score(fusions, self.stages)
        decisions, counted = phase.decide(scored, self.stages)
        notes = phase.save(fusions, decisions, self._image_model(markers))
        labelled = phase.label(decisions, self.stages)
        metrics = {
            **decided_facts(phase, (scored, counted, labelled), self.config, self.data),
            **_facts(markers),
            "final_key": phase.final_key,
            "notes": [*notes, *left_out(self.config, self.primary)],
            "stages": self.stages.summary(),
            "recovery": {
                "storage_retries": markers.retries + phase.retries,
                "shards_scored_again": len(self.damaged),
            },
        }
        metrics = told_again(self.config, self.data, self.layout, metrics, self._source)
        storage.write_json(self.layout.metrics, metrics)
        return metrics

    @property
    def _source(self) -> UnitLayout | None:
        """The unit of another run whose embeddings it uses."""
        embedded = self.data.embeddings
        return None if embedded is None else embedded.unit(self.backbone)

    def _applied(self, labeler: FittedLabeler, markers: MarkerSummary) -> dict[str, Any]:
        """Writes the labeler that was applied, and metrics: all labels are written already."""
        classes, primary = labeler.names.classes, labeler.primary
        if self.config.labeler is not None:
            write_labeler(self.layout.labeler, labeler)
            told = (labeler.decisions, classes, primary, labeler.rule)
            write_decisions(self.layout.decisions, *told)
        limit = self.config.resources.no_progress_seconds
        make_gallery(Passes(markers.images, limit), self.shards, labeler, self.stages)
        metrics = {
            **_unknown(labeler.fusions.names),
            **_facts(markers),
            **applied_facts(labeler, markers.debiased),
            "primary": primary,
            "labelled": 0,
            "doubts": doubts_of(labeler.decisions[primary].status, classes),
            "gallery_sha256": storage.sha256(self.layout.gallery),
            "stages": self.stages.summary(),
            "recovery": {"storage_retries": markers.retries, "shards_scored_again": 0},
        }
        storage.write_json(self.layout.metrics, metrics)
        return metrics

    def _image_model(self, markers: MarkerSummary) -> ImageModel:
        scoring = min(markers.scorings, key=lambda scoring: scoring.device)
        return ImageModel(
            self.backbone.model_dump(mode="json"),
            scoring.weights_sha256,
            scoring.device,
            markers.input,
            self.config.shard_size,
            self.config.batch_size,
            self.config.jpeg_scaling,
            markers.checkpoint,
        )

    def find_damaged(self) -> None:
        """Compares all scores with their hashes."""
        self.damaged = self._phase(self._summary()).damaged()
        for shard in self.damaged:
            forget(self.layout, shard)
        count = len(self.damaged)
        self.stages.say(f"{count} shards were changed after they were written; scoring them again")

    def _summary(self) -> MarkerSummary:
        return MarkerSummary.of(self.layout, len(self.data.sizes))

    def _complete_summary(self) -> MarkerSummary:
        summary = self._summary()
        if summary.missing:
            raise UserError(
                f"{len(summary.missing)} of the {len(self.data.sizes)} shards of "
                f"{self.layout.root} have no scores, {self.layout.marker(summary.missing[0])} "
                "among them; score them first."
            )
        if len({by.weights_sha256 for by in summary.scorings}) > 1:
            # A scorer that was alone has ended, and another node has another file under its path.
            raise _changed(self.layout.root, "weights")
        if not any(summary.images):
            ((reason, count),) = summary.reasons.most_common(1)
            raise UserError(
                f"None of the {summary.errors} images of {self.data.config.name} could be read "
                f"({count} × {reason}); {storage.join(self.layout.root, 'errors')} lists them."
            )
        return summary

    def _phase(self, summary: MarkerSummary) -> ReducePhase:
        method, limit = method_of(self.config), self.config.resources.no_progress_seconds
        of = (self.shards, self.data.bank, method, self.primary)
        return ReducePhase(*of, summary.images, summary.key, limit)

    def _check_same(self, what: str, sha256: str) -> None:
        """Raises UserError if earlier shards were made with other prompts or images."""
        known = {sha256, *(self.data.earlier if what == "images" else ())}
        if any(getattr(old, f"{what}_sha256") not in known for old in self._scored_by):
            raise _changed(self.layout.root, what)


@dataclass(frozen=True)
class SameModel:
    """Checks that a backbone is the one that has scored other shards of a unit.

    root: the unit. weights: the hashes of those. image_model: that of the labeler, if there is one.
    """

    root: str
    weights: frozenset[str]
    image_model: ImageModel | None
    backbone: BackboneConfig

    def __call__(self, loaded: Loaded) -> None:
        """Raises UserError if a backbone that was loaded is another one."""
        if self.weights - {loaded.weights_sha256}:
            raise _changed(self.root, "weights")
        if self.image_model is not None:
            self.image_model.check(loaded.weights_sha256, loaded.input)
            self.image_model.check_features(self.backbone)


def _changed(root: str, what: str) -> UserError:
    """Returns the error about earlier shards that were made with something else."""
    return UserError(
        f"Some shards of {root} were scored with other {what} than the current ones; restore the "
        f"old {what}, or start over with {OVERWRITE} or {NEW_OUTPUT}."
    )


def method_of(config: Config) -> Method:
    """Returns the method of a run, without fusions whose embeddings of images are not stored."""
    simulated = any(backbone.model == SIMULATED for backbone in config.backbones)
    has_none = simulated or config.store == "scores"
    return config.method.with_scores_alone() if has_none else config.method


def left_out(config: Config, primary: str) -> list[str]:
    """Returns notes about the fusions that are listed and cannot be computed."""
    left = method_of(config).fusions
    return [
        f"{FUSIONS[name].title} is left out, because it needs the embeddings of images, which the "
        f"run does not store; {FUSIONS[primary].title} decides."
        for name in config.method.fusions
        if name not in left
    ]


def primary_of(config: Config, dataset: DatasetConfig) -> str:
    """Returns the fusion that decides: the paper's on official data sets."""
    return method_of(config).deciding(DATASET_KINDS[dataset.kind].decides)


def decided_facts(
    phase: ReducePhase, states: tuple[Any, Any, Any], config: Config, data: Prepared
) -> dict[str, Any]:
    """Returns the part of metrics.json about a reduce: how good its scores and decisions are.

    states: references to those of passes 3 to 5
    """
    precision = _unknown(phase.method.fusions)
    if data.labelled:
        precision = phase.evaluate(*states, config.empty_class)
    unit = phase.shards.unit
    rules, _ = read_decisions(unit.decisions)
    return {
        **precision,
        "primary": phase.primary,
        "labelled": data.labelled,
        "doubts": doubts_of(rules[phase.primary].status, data.bank.classes),
        "gallery_sha256": storage.sha256(unit.gallery),
    }


def told_again(
    config: Config,
    data: Prepared,
    unit: UnitLayout,
    metrics: dict[str, Any],
    source: UnitLayout | None,
) -> dict[str, Any]:
    """Applies what people told a unit before; returns its metrics, which mark it as finished."""
    bank, identity = data.bank, config.identity()
    sizes = (bank.classes, len(bank.background))
    fitted = FinishedUnit(data.layout, unit, *sizes, metrics["primary"], metrics, identity)
    return apply_again(fitted, source)


def error_facts(images: int, errors: int, passing: int, reasons: Counter[str]) -> dict[str, Any]:
    """Returns the part about images that could not be read, the most frequent reasons first.

    passing: the number of errors that may pass
    """
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    shown = dict(ordered[:MOST_REASONS])
    if rest := sum(count for _, count in ordered[MOST_REASONS:]):
        shown["other reasons"] = rest
    share = errors / (images + errors)
    return {"images": errors, "share": share, "passing": passing, "reasons": shown}


def _unknown(fusions: Iterable[str]) -> dict[str, Any]:
    """Returns the metrics of each method of a unit without labels."""
    return {name: {"mAP": None, "AP": {}} for name in methods_of(fusions)}


def _facts(summary: MarkerSummary) -> dict[str, Any]:
    """Returns the part of metrics.json about the images: counts, errors, what scored them."""
    images = sum(summary.images)
    scorings = sorted(summary.scorings, key=lambda scoring: scoring.device)
    return {
        "images": images,
        "errors": error_facts(images, summary.errors, summary.passing, summary.reasons),
        "weights_sha256": scorings[0].weights_sha256,
        "prompts_sha256": scorings[0].prompts_sha256,
        "device": "+".join(scoring.device for scoring in scorings),
        **({"checkpoint": summary.checkpoint} if summary.checkpoint else {}),
        **({"precision": summary.precision} if summary.precision else {}),
    }
