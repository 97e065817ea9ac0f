"""A unit, one data set under one backbone: the thing that succeeds, fails and resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparc_dist import storage
from sparc_dist.config import DATASET_KINDS, BackboneConfig, Config
from sparc_dist.core import METHODS
from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import Loaded
from sparc_dist.pipeline.passes import Passes
from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.pipeline.stages import Stages
from sparc_dist.runs import MarkerSummary, Provenance, UnitLayout, UnitShards
from sparc_dist.runs.decisions_file import read_decisions
from sparc_dist.runs.doubts import doubts_of

MOST_REASONS = 20  # kinds of errors that the report lists


@dataclass
class Unit:
    """One data set under one backbone.

    damaged: shards whose scores were changed after they were written, to be scored again.
    """

    config: Config
    data: Prepared
    backbone: BackboneConfig
    damaged: list[int] = field(default_factory=list)
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
        """The method that decides: the paper's on official data sets, duo on others."""
        chosen = self.config.method.primary
        if chosen != "auto":
            return chosen
        return "sparc" if DATASET_KINDS[self.data.config.kind] else "duo"

    def passes(self) -> Passes:
        """Returns passes over its scores; raises UserError unless they are complete."""
        limit = self.config.resources.no_progress_seconds
        return Passes(self._complete_summary().images, limit)

    def todo(self) -> list[int]:
        """Returns the shards that have no marker, and the damaged ones."""
        summary = self._summary()
        self._scored_by = summary.scorings
        self._check_same("prompts", self.data.bank.sha256)
        self._check_same("images", self.data.images_sha256)
        return sorted({*summary.missing, *self.damaged})

    def on_gpu(self) -> bool:
        """Whether a GPU scored any of it."""
        return any(made_by.device != "cpu" for made_by in self._summary().scorings)

    def check_weights(self, loaded: Loaded) -> None:
        """Raises UserError unless the weights are those of the stored scores and embeddings."""
        self._scored_by = self._summary().scorings
        self._check_same("weights", loaded.weights_sha256)

    def provenance(self, loaded: Loaded) -> Provenance:
        """Returns what the shards ``todo`` are scored with; it must match the other shards."""
        self._check_same("weights", loaded.weights_sha256)
        return Provenance(
            loaded.weights_sha256, self.data.bank.sha256, self.data.images_sha256, loaded.device
        )

    def reduce(self) -> dict[str, Any]:
        """Writes final scores, fusion and metrics, from complete scores; returns the metrics."""
        markers = self._complete_summary()
        phase = self._phase(markers)
        statistics = phase.score(phase.fit(self.stages), self.stages)
        decisions, counts = phase.decide(statistics, self.stages)
        agreement = phase.label(decisions, self.stages)
        precision: dict[str, Any] = {name: {"mAP": None, "AP": {}} for name in METHODS}
        if self.data.labelled:
            empty_class = self.config.empty_class
            precision = phase.evaluate(statistics, counts, agreement, empty_class)
        rules, _ = read_decisions(self.layout.decisions)
        metrics = {
            **precision,
            **_facts(markers),
            "primary": self.primary,
            "labelled": self.data.labelled,
            "notes": storage.read_json(self.layout.fusion)["notes"],
            "doubts": doubts_of(rules[self.primary].status, self.data.bank.classes),
            "stages": self.stages.summary(),
            "recovery": {
                "storage_retries": markers.retries + phase.retries,
                "shards_scored_again": len(self.damaged),
            },
        }
        storage.write_json(self.layout.metrics, metrics)
        return metrics

    def find_damaged(self) -> None:
        """Compares all scores with their hashes."""
        self.damaged = self._phase(self._summary()).damaged()
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
        if not any(summary.images):
            ((reason, count),) = summary.reasons.most_common(1)
            raise UserError(
                f"None of the {summary.errors} images of {self.data.config.name} could be read "
                f"({count} × {reason}); {storage.join(self.layout.root, 'errors')} lists them."
            )
        return summary

    def _phase(self, summary: MarkerSummary) -> ReducePhase:
        method, limit = self.config.method, self.config.resources.no_progress_seconds
        of = (self.shards, self.data.bank, method, self.primary)
        return ReducePhase(*of, summary.images, summary.key, limit)

    def _check_same(self, what: str, sha256: str) -> None:
        """Raises UserError if earlier shards were made with other weights, prompts or images."""
        if any(getattr(old, f"{what}_sha256") != sha256 for old in self._scored_by):
            raise UserError(
                f"Some shards of {self.layout.root} were scored with other {what} than the current "
                f"ones; restore the old {what}, or start over with --overwrite or --to NEW."
            )


def _facts(summary: MarkerSummary) -> dict[str, Any]:
    """Returns the part of metrics.json about the images: counts, errors, what scored them."""
    images = sum(summary.images)
    reasons: Sequence[tuple[str, int]] = sorted(
        summary.reasons.items(), key=lambda item: (-item[1], item[0])
    )
    shown = dict(reasons[:MOST_REASONS])
    if rest := sum(count for _, count in reasons[MOST_REASONS:]):
        shown["other reasons"] = rest
    scorings = sorted(summary.scorings, key=lambda scoring: scoring.device)
    return {
        "images": images,
        "errors": {
            "images": summary.errors,
            "share": summary.errors / (images + summary.errors),
            "reasons": shown,
        },
        "weights_sha256": scorings[0].weights_sha256,
        "prompts_sha256": scorings[0].prompts_sha256,
        "device": "+".join(scoring.device for scoring in scorings),
        **({"precision": summary.precision} if summary.precision else {}),
    }
