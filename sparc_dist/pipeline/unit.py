"""A unit, one data set under one backbone: the thing that succeeds, fails and resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, Config
from sparc_dist.errors import UserError
from sparc_dist.pipeline.embed import Loaded
from sparc_dist.pipeline.passes import Passes
from sparc_dist.pipeline.prepare import Prepared
from sparc_dist.pipeline.reduce_phase import ReducePhase
from sparc_dist.pipeline.stages import Stages
from sparc_dist.runs import METHODS, MarkerSummary, Provenance, UnitLayout, UnitShards

MOST_REASONS = 20  # of errors that the report tells apart


@dataclass
class Unit:
    """What is done and to be done of a data set under a backbone.

    damaged: shards that were found not to be what was written, and are scored again.
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
        """Where it lies."""
        return self.data.layout.unit(self.backbone.name)

    @property
    def shards(self) -> UnitShards:
        """Reads what it left."""
        bank = self.data.bank
        return UnitShards(self.data.layout, self.layout, len(bank.classes), len(bank.compound))

    def passes(self) -> Passes:
        """To look at all its scores once more; it must be complete."""
        limit = self.config.resources.no_progress_seconds
        return Passes(self._complete_tally().images, limit)

    def todo(self) -> list[int]:
        """The shards that have no marker, and the damaged ones."""
        tally = self._tally()
        self._scored_by = tally.scorings
        self._check_same("prompts", self.data.bank.sha256)
        self._check_same("images", self.data.images_sha256)
        return sorted({*tally.missing, *self.damaged})

    def on_gpu(self) -> bool:
        """Whether a GPU scored any of it."""
        return any(scoring.device != "cpu" for scoring in self._tally().scorings)

    def check_weights(self, loaded: Loaded) -> None:
        """Refuse weights that are not those of the stored scores and embeddings."""
        self._scored_by = self._tally().scorings
        self._check_same("weights", loaded.weights_sha256)

    def scoring(self, loaded: Loaded) -> Provenance:
        """By what the shards ``todo`` are scored; refuses what would not fit the others."""
        self._check_same("weights", loaded.weights_sha256)
        return Provenance(
            loaded.weights_sha256, self.data.bank.sha256, self.data.images_sha256, loaded.device
        )

    def reduce(self) -> dict[str, Any]:
        """Final scores, fusion and metrics to storage, from complete scores; gives the metrics."""
        tally = self._complete_tally()
        phase = self._phase(tally)
        positives = phase.score(phase.fit(self.stages), self.stages)
        summary: dict[str, Any] = {name: {"mAP": None, "AP": {}} for name in METHODS}
        if self.data.labelled:
            summary = phase.evaluate(positives, self.config.empty_class, self.stages)
        metrics = {
            **summary,
            **_facts(tally),
            "labelled": self.data.labelled,
            "notes": storage.read_json(self.layout.fusion)["notes"],
            "stages": self.stages.summary(),
            "recovery": {
                "storage_retries": tally.retries + phase.retries,
                "shards_scored_again": len(self.damaged),
            },
        }
        storage.write_json(self.layout.metrics, metrics)
        return metrics

    def find_damaged(self) -> None:
        """Compare all scores with their hashes."""
        self.damaged = self._phase(self._tally()).damaged()
        count = len(self.damaged)
        self.stages.say(f"{count} shards are not what was written; they are scored again")

    def _tally(self) -> MarkerSummary:
        return MarkerSummary.of(self.layout, len(self.data.sizes))

    def _complete_tally(self) -> MarkerSummary:
        tally = self._tally()
        if tally.missing:
            raise UserError(
                f"{len(tally.missing)} of the {len(self.data.sizes)} shards of {self.layout.root} "
                f"have no scores, {self.layout.marker(tally.missing[0])} among them; score them "
                "first."
            )
        if not any(tally.images):
            raise UserError(
                f"None of the {tally.errors} images of {self.data.config.name} could be read; "
                f"{storage.join(self.layout.root, 'errors')} says why."
            )
        return tally

    def _phase(self, tally: MarkerSummary) -> ReducePhase:
        method, limit = self.config.method, self.config.resources.no_progress_seconds
        return ReducePhase(self.shards, self.data.bank, method, tally.images, tally.key, limit)

    def _check_same(self, what: str, sha256: str) -> None:
        """Shards of other weights, prompts or images must not be mixed with new ones."""
        if any(getattr(old, f"{what}_sha256") != sha256 for old in self._scored_by):
            raise UserError(
                f"Some shards of {self.layout.root} were scored with other {what} than there are "
                f"now; put the old {what} back, or start with --overwrite or --to NEW."
            )


def _facts(tally: MarkerSummary) -> dict[str, Any]:
    """Of metrics.json: how many images were scored, by what, and why the others were not."""
    images = sum(tally.images)
    reasons: Sequence[tuple[str, int]] = sorted(
        tally.reasons.items(), key=lambda item: (-item[1], item[0])
    )
    told = dict(reasons[:MOST_REASONS])
    if rest := sum(count for _, count in reasons[MOST_REASONS:]):
        told["other reasons"] = rest
    scorings = sorted(tally.scorings, key=lambda scoring: scoring.device)
    return {
        "images": images,
        "errors": {
            "images": tally.errors,
            "share": tally.errors / (images + tally.errors),
            "reasons": told,
        },
        "weights_sha256": scorings[0].weights_sha256,
        "prompts_sha256": scorings[0].prompts_sha256,
        "device": "+".join(scoring.device for scoring in scorings),
        **({"precision": tally.precision} if tally.precision else {}),
    }
