"""A run whose image embeddings another run uses, so that new classes and prompts need no images."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import BackboneConfig
from sparc_dist.errors import UserError
from sparc_dist.runs.layout import DatasetLayout, RunLayout, UnitLayout
from sparc_dist.runs.markers import Marker, MarkerSummary
from sparc_dist.runs.record import read_record
from sparc_dist.runs.results import read_dataset_facts
from sparc_dist.runs.shards import has_hash
from sparc_dist.runs.storing import matrix

#: What decides an embedding besides the weights.
DECISIVE = ("model", "precision", "image_size")


@dataclass(frozen=True)
class EmbeddedRun:
    """A run with embeddings. config: of its run.json."""

    layout: RunLayout
    config: dict[str, Any]

    @classmethod
    def open(cls, root: str, output: str) -> EmbeddedRun:
        """Opens the run at ``root``; raises UserError if it is missing, or is ``output`` itself."""
        layout = RunLayout(storage.absolute(root, os.getcwd()).rstrip("/"))
        if layout.root == output.rstrip("/"):
            raise UserError(
                f"--embeddings-from names the output of this run, {layout.root}; write the new run "
                "to another place, with `output` or --to."
            )
        record = read_record(layout)
        if record["config"]["labeler"]:
            raise UserError(
                f"The run at {layout.root} was labelled by a labeler and keeps no embeddings; use "
                "the run that fitted it, or run without --embeddings-from."
            )
        if record["config"]["store"] == "scores":
            raise UserError(
                f"The run at {layout.root} has store: scores and keeps no embeddings; run without "
                "--embeddings-from."
            )
        return cls(layout, record["config"])

    def check_decoding(self, jpeg_scaling: bool) -> None:
        """Raises UserError unless its JPEGs were decoded as those of a new run would be."""
        theirs = self.config["jpeg_scaling"]
        if theirs != jpeg_scaling:
            raise UserError(
                f"The embeddings at {self.layout.root} were made with jpeg_scaling: "
                f"{str(theirs).lower()}; write this into the config, or run without "
                "--embeddings-from."
            )

    def dataset(self, name: str) -> EmbeddedDataset:
        """Returns the data set of this name, or the only one."""
        section = _chosen(self.config["datasets"], "data set", name, self.layout.root)
        layout = self.layout.dataset(section["name"])
        return EmbeddedDataset(layout, section, self.config["backbones"])


@dataclass(frozen=True)
class EmbeddedDataset:
    """A data set with embeddings. config, backbones: its section and those of the backbones."""

    layout: DatasetLayout
    config: dict[str, Any]
    backbones: Sequence[dict[str, Any]]

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Its dataset.json."""
        found = read_dataset_facts(self.layout)
        if found is None:
            raise UserError(
                f"There is no {self.layout.marker}, so there are no embeddings to use; finish that "
                "run first."
            )
        return found

    def unit(self, backbone: BackboneConfig) -> UnitLayout:
        """Returns the unit of the same name, or the only one.

        backbone: with the input size that its data set sets. Raises UserError unless the unit's
        backbone makes the same embeddings, as far as a config says, and these are all it needs.
        """
        if backbone.features != "global":
            raise UserError(
                f"Backbone {backbone.name} has features: {backbone.features}, and scores of "
                "patches need the images again, because a run stores no patches; run without "
                "--embeddings-from, or write features: global."
            )
        section = _chosen(self.backbones, "backbone", backbone.name, self.layout.root)
        theirs = BackboneConfig(**section).sized(self.config["resnet_size"])
        for key in DECISIVE:
            old, new = getattr(theirs, key), getattr(backbone, key)
            # A precision that the new config leaves open is that of the embeddings.
            if old != new and (key, new) != ("precision", "auto"):
                raise UserError(
                    f"Backbone {backbone.name} has {key} {new}, and {theirs.name} of "
                    f"{self.layout.root} has {old}, so its embeddings differ; use the same {key}, "
                    "or run without --embeddings-from."
                )
        return self.layout.unit(theirs.name)

    def check_scored(self, unit: UnitLayout) -> None:
        """Raises UserError unless all images of the data set's list have been scored."""
        summary = MarkerSummary.of(unit, self.facts["shards"])
        if summary.missing:
            raise UserError(
                f"{len(summary.missing)} of the {self.facts['shards']} shards of {unit.root} have "
                f"no embeddings, {unit.scores(summary.missing[0])} among them; finish that run "
                "first."
            )
        known = {self.facts["images_sha256"], *self.facts.get("earlier", ())}
        if any(by.images_sha256 not in known for by in summary.scorings):
            raise UserError(
                f"{unit.root} was scored with other images than {self.layout.marker} names; "
                "restore them, or run without --embeddings-from."
            )


@dataclass(frozen=True)
class EmbeddedShard:
    """A shard's n readable images with embeddings (n, d), and its unreadable images."""

    ids: list[str]
    embedding: NDArray[np.float32]
    errors: list[dict[str, Any]]
    marker: Marker

    @classmethod
    def read(cls, unit: UnitLayout, shard: int, weights_sha256: str, width: int) -> EmbeddedShard:
        """Reads a shard; raises UserError if it is damaged or of other weights. width: d."""
        marker = Marker.read(unit, shard)
        if marker is None:
            raise UserError(f"{unit.marker(shard)} is missing or damaged; restore it.")
        if marker.scoring.weights_sha256 != weights_sha256:
            raise UserError(
                f"The weights that embedded the images ({unit.marker(shard)}: "
                f"{marker.scoring.weights_sha256[:12]}…) are not those of the config "
                f"({weights_sha256[:12]}…); use the same weights, or run without --embeddings-from."
            )
        scores = _table(unit.scores(shard), marker.sha256["scores"], ["image_id", "embedding"])
        errors = _table(unit.errors(shard), marker.sha256["errors"], None)
        embedding = matrix(scores["embedding"], width)
        return cls(scores["image_id"].to_pylist(), embedding, errors.to_pylist(), marker)


def _table(url: str, sha256: str, columns: list[str] | None) -> Any:
    content = storage.read_if_exists(url)
    if content is None or not has_hash(content, sha256):
        raise UserError(
            f"{url} is missing or damaged, so its embeddings cannot be used; restore it, or run "
            "without --embeddings-from."
        )
    return pq.read_table(io.BytesIO(content), columns=columns)


def _chosen(sections: Sequence[dict[str, Any]], what: str, name: str, root: str) -> dict[str, Any]:
    """Returns the section of this name, or the only one."""
    found = [section for section in sections if section["name"] == name] or sections
    if len(found) > 1:
        names = ", ".join(section["name"] for section in sections)
        raise UserError(
            f"There is no {what} {name} with embeddings at {storage.without_secrets(root)}, only "
            f"{names}; use one of these names."
        )
    return found[0]
