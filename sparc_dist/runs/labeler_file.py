"""labeler.safetensors: a fitted labeler, all of it except the weights of its CLIP model.

Arrays are tensors; everything else is JSON in the metadata of the file's header. That of an
ensemble of backbones has ``members``, see ``ensemble_file``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import __version__, storage
from sparc_dist.config import SIMULATED, BackboneConfig
from sparc_dist.core import (
    FUSIONS,
    Decision,
    FinalScores,
    Fusion,
    Fusions,
    Mentions,
    Scores,
    mentions_of,
)
from sparc_dist.errors import UserError
from sparc_dist.runs.shards import ClassNames

#: The version of the file's format (docs/run-format.md).
FORMAT = 2
#: The entry of the header's metadata with the JSON.
KEY = "labeler"
#: What a decision has for each class, beside its status.
NUMBERS = ("mean", "sd", "intercept", "threshold", "prevalence")
COLUMNS = ("text", "kind", "class_ids", "origin")

Float32 = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ImageModel:
    """The model that a labeler needs to embed images.

    backbone: its config. input: size, mean and std of the images it takes; None if not known.
    checkpoint: the SHA-256 of the file that had its weights, and its revision on the hub.
    shard_size, batch_size, jpeg_scaling: of the fit; with the same ones, the same images get the
    same bits.
    """

    backbone: dict[str, Any]
    weights_sha256: str
    device: str
    input: dict[str, Any] | None
    shard_size: int
    batch_size: int
    jpeg_scaling: bool
    checkpoint: dict[str, str] | None

    def check(self, weights_sha256: str, model_input: Mapping[str, Any]) -> None:
        """Raises UserError unless a model that was loaded is this one."""
        if weights_sha256 != self.weights_sha256:
            raise UserError(
                f"The labeler was fitted with weights of {self.backbone['model']} whose hash "
                f"begins with {self.weights_sha256[:12]}, and these have {weights_sha256[:12]}: "
                "scores of other weights mean something else; name the right checkpoint as weights."
            )
        if self.input is not None and self.input != model_input:
            raise UserError(
                f"The labeler was fitted on images of {self.input['size']} pixels, and its model "
                f"now takes {model_input['size']} or standardises them otherwise; install the "
                "versions of open_clip and sparc_dist that it was fitted with."
            )

    def check_features(self, backbone: BackboneConfig) -> None:
        """Raises UserError unless a backbone scores with the same features."""
        fitted = BackboneConfig(**self.backbone)
        for key in ("features", "local_scale"):
            old, new = getattr(fitted, key), getattr(backbone, key)
            if old != new:
                raise UserError(
                    f"The labeler was fitted on scores with {key}: {old}, and backbone "
                    f"{backbone.name} has {key}: {new}; write {key}: {old}."
                )


@dataclass(frozen=True)
class ImageAnswers:
    """What a labeler says about n images: scores, probability and present, each (n, N).

    probability: NaN for a class whose scores do not vary.
    """

    scores: Float32
    probability: NDArray[np.float64]
    present: NDArray[np.bool_]


class Judge:
    """What every labeler has: the rules of its methods, and which of them decides."""

    decisions: Mapping[str, Decision]
    primary: str
    rule: Mapping[str, Any]

    def judge(self, final: FinalScores) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Returns the probability of each class and whether it is present, both (n, N)."""
        rule = self.decisions[self.primary]
        return rule.judge(*final.columns(self.primary), self.rule.get("top"))


@dataclass(frozen=True)
class FittedLabeler(Judge):
    """A fitted labeler.

    primary: the method that decides. prompts: the table of prompts.parquet. texts: the embeddings
    of singleton, auxiliary and compound prompts; empty if they were not stored. model: None if it
    was fitted on score matrices. rule: what ``sparc-dist decide`` was told.
    """

    fusions: Fusions
    decisions: Mapping[str, Decision]
    primary: str
    prompts: pa.Table
    names: ClassNames
    texts: Mapping[str, Float32] = field(default_factory=dict)
    model: ImageModel | None = None
    rule: Mapping[str, Any] = field(default_factory=dict)

    @property
    def images(self) -> int:
        """The number of images that it was fitted on."""
        return self.fusions.images

    @property
    def fusion(self) -> Fusion:
        """The fusion that decides."""
        return self.fusions[self.primary]

    @property
    def image_model(self) -> ImageModel:
        """Its model; raises UserError if it has none."""
        if self.model is None or self.model.backbone["model"] == SIMULATED:
            raise UserError(
                "The labeler was fitted on scores, not on images, and has no model for images; use "
                "one of a run on images."
            )
        return self.model

    @property
    def mentions(self) -> Mentions:
        """The compound prompts of each column."""
        return self.fusions.given.mentions

    def contributions(self, scores: Scores, columns: Sequence[int]) -> list[NDArray[np.float64]]:
        """Returns, per column, what each of its m_i prompts adds to its final score (n, m_i)."""
        return self.fusion.contributions(scores, columns)

    def answer(self, scores: Scores) -> ImageAnswers:
        """Returns what the method that decides says; the others are not computed."""
        n, found = self.fusions.given.classes, self.fusions.scored(self.primary, scores)
        before, after = (part[:, :n].astype(np.float32) for part in found)
        most = self.rule.get("top")
        return ImageAnswers(after, *self.decisions[self.primary].judge(before, after, most))


def write_labeler(url: str, labeler: FittedLabeler) -> None:
    """Writes a labeler; floats keep every bit."""
    write_parts(url, facts_of(labeler), arrays_of(labeler))


def write_parts(url: str, facts: dict[str, Any], arrays: Arrays) -> None:
    """Writes the JSON and the arrays of a labeler, sealed."""
    from safetensors.numpy import save

    # In the JSON, because safetensors writes several entries of metadata in any order.
    text = json.dumps({**facts, **storage.BLANK_SEAL}, ensure_ascii=False)
    storage.write_bytes(url, storage.seal(save(arrays, {KEY: text}))[0])


def read_facts(url: str) -> dict[str, Any]:
    """Reads the JSON of a labeler."""
    with reading(url):
        return read_parts(url)[0]


def read_labeler(url: str) -> FittedLabeler:
    """Reads a labeler; raises UserError if it is missing, damaged or of another format."""
    with reading(url):
        facts, arrays = read_parts(url)
        check_single(url, facts)
        return labeler_of(facts, arrays)


def check_single(url: str, facts: Mapping[str, Any]) -> None:
    """Raises UserError for the labeler of an ensemble, where one backbone is needed."""
    if "members" in facts:
        names = ", ".join(member["name"] for member in facts["members"])
        raise UserError(
            f"The labeler {storage.without_secrets(url)} is an ensemble of {names}, which only "
            "Python's `Labeler` can use; name the labeler of one backbone (--backbone NAME of its "
            "run)."
        )


def read_parts(url: str) -> tuple[dict[str, Any], Arrays]:
    """Returns the JSON and the arrays of a labeler; raises ValueError if it is damaged."""
    from safetensors.numpy import load

    content = storage.read_bytes(url)
    if storage.seal_of(content) is None:
        raise ValueError("its content does not match its checksum")
    size = int.from_bytes(content[:8], "little")
    return _checked_facts(url, content[8 : 8 + size]), load(content)


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Turns what a missing or damaged file raises into a UserError."""
    from safetensors import SafetensorError

    place = storage.without_secrets(url)
    try:
        yield
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"There is no labeler at {place}; check the path.") from None
    except (
        *(ValueError, KeyError, TypeError, IndexError, SafetensorError),
        *(RecursionError, MemoryError),  # JSON that is nested too deeply, a size that is too large
    ) as error:
        raise UserError(
            f"{place} is damaged or is not a labeler; copy it again from the run that wrote it."
        ) from error


def _checked_facts(url: str, header: bytes) -> dict[str, Any]:
    """Returns the JSON of a header; raises UserError for another format."""
    sealed: dict[str, Any] = json.loads(json.loads(header)["__metadata__"][KEY])
    facts = {key: value for key, value in sealed.items() if key not in storage.BLANK_SEAL}
    if facts["format"] != FORMAT:
        raise UserError(
            f"The labeler {storage.without_secrets(url)} has format {facts['format']}, and "
            f"sparc_dist {__version__} reads format {FORMAT}; use the version that wrote it "
            f"({facts['sparc_dist']}), or fit it again."
        )
    return facts


def arrays_of(labeler: FittedLabeler) -> Arrays:
    """Returns the arrays of a labeler by name."""
    return {
        **{f"texts.{kind}": rows for kind, rows in labeler.texts.items()},
        **labeler.fusions.arrays(),
        **decision_arrays(labeler.decisions),
    }


def decision_arrays(decisions: Mapping[str, Decision]) -> Arrays:
    """Returns the numbers of all classes by the name of a method."""
    return {
        f"{name}.{key}": getattr(rule, key) for name, rule in decisions.items() for key in NUMBERS
    }


def decision_facts(decisions: Mapping[str, Decision]) -> dict[str, Any]:
    """Returns the rest of the rules."""
    return {
        name: {
            "slope": rule.slope,
            "before_rival": rule.before_rival,
            "status": list(rule.status),
        }
        for name, rule in decisions.items()
    }


def decisions_of(facts: Mapping[str, Any], arrays: Arrays) -> dict[str, Decision]:
    """Returns the rules of each method."""
    return {
        name: Decision(
            **{key: arrays[f"{name}.{key}"] for key in NUMBERS},
            slope=rule["slope"],
            before_rival=rule["before_rival"],
            status=tuple(rule["status"]),
        )
        for name, rule in facts["decisions"].items()
    }


def facts_of(labeler: FittedLabeler) -> dict[str, Any]:
    """Returns the JSON of a labeler."""
    fusions = labeler.fusions.facts()
    notes = fusions.pop("notes")
    return {
        "format": FORMAT,
        "sparc_dist": __version__,
        "classes": list(labeler.names.classes),
        "background": list(labeler.names.background),
        "images": labeler.images,
        "primary": labeler.primary,
        "rule": dict(labeler.rule),
        "model": None if labeler.model is None else asdict(labeler.model),
        **fusions,
        "decisions": decision_facts(labeler.decisions),
        "notes": notes,
        "prompts": {name: labeler.prompts[name].to_pylist() for name in COLUMNS},
    }


def labeler_of(facts: Mapping[str, Any], arrays: Arrays) -> FittedLabeler:
    """Returns the labeler of what ``facts_of`` and ``arrays_of`` returned."""
    classes, background = facts["classes"], facts["background"]
    if unknown := [name for name in facts["method"]["fusions"] if name not in FUSIONS]:
        raise UserError(
            f"The labeler has the fusion {unknown[0]}, which is not known here; import the module "
            "that adds it to `sparc_dist.core.FUSIONS`."
        )
    prompts = facts["prompts"]
    kinds = zip(prompts["kind"], prompts["class_ids"], strict=True)
    mentioned = [ids for kind, ids in kinds if kind == "compound"]
    mentions = mentions_of(mentioned, len(classes) + len(background))
    prefix = "texts."
    return FittedLabeler(
        Fusions.restored(facts, arrays, mentions),
        decisions_of(facts, arrays),
        facts["primary"],
        pa.table(prompts),
        ClassNames(tuple(classes), tuple(background)),
        {name.removeprefix(prefix): rows for name, rows in arrays.items() if prefix in name},
        None if facts["model"] is None else ImageModel(**facts["model"]),
        facts["rule"],
    )
