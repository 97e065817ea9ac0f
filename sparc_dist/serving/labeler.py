"""The labeler as a function: images in, labels with probabilities, scores and reasons out."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard, cast, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from sparc_dist import storage
from sparc_dist.config import BackboneConfig, is_file_name
from sparc_dist.core import Scores
from sparc_dist.errors import UserError
from sparc_dist.images.decoding import MAX_PIXELS, BadImage, square_of, squares
from sparc_dist.images.reading import read_image
from sparc_dist.prompts import PromptBank, TextEmbeddings
from sparc_dist.runs.ensemble_file import AnyLabeler, EnsembleLabeler
from sparc_dist.runs.labeler_file import FittedLabeler, ImageModel
from sparc_dist.runs.run import open_labeler

if TYPE_CHECKING:
    from sparc_dist.backbones.models import Backbone

#: A path or URL, the bytes of a file, an image of Pillow, or uint8 pixels (H, W, 3) or (H, W).
Picture = str | os.PathLike[str] | bytes | Image.Image | NDArray[np.uint8]
#: How many prompts are named for each class.
REASONS = 3
#: The name of the only model of a labeler that is no ensemble.
ONLY = ""
#: A picture as models take it: (S, S, 3), or one for each size that they take.
Square = NDArray[np.uint8] | tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True)
class LabelledImage:
    """What a labeler says about one image.

    labels: the classes that are present, the likeliest first. probabilities: None for a class whose
    scores do not vary. because: for each label the compound prompts that added most to its score,
    with what they added. error: why the image cannot be read; then the rest is empty.
    """

    labels: list[str] = field(default_factory=list)
    probabilities: dict[str, float | None] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    because: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    error: str | None = None


class Labeler:
    """A fitted labeler with its model or models, in this process and without Ray."""

    def __init__(self, fitted: AnyLabeler, backbones: Mapping[str, Backbone]) -> None:
        # Only who has a backbone has loaded torch.
        from sparc_dist.backbones.models import Scorer

        self._fitted = fitted
        bank = PromptBank.from_table(fitted.prompts)
        self._scorers = {
            name: Scorer(
                backbones[name],
                TextEmbeddings(**own.texts) if own.texts else backbones[name].embed(bank),
            )
            for name, own in members_of(fitted).items()
        }
        self._sizes = sorted({scorer.backbone.image_size for scorer in self._scorers.values()})
        self._prompts = [prompt.text for prompt in bank.compound]

    @classmethod
    def load(
        cls,
        uri: str | os.PathLike[str],
        dataset: str | None = None,
        backbone: str | None = None,
        weights: str | Mapping[str, str] | None = None,
        device: str = "cpu",
    ) -> Labeler:
        """Loads a labeler from its file, or from a run that has it, and its model.

        That of an ensemble (``backbone="ensemble"`` of a run) has a model for each backbone.
        weights: where the checkpoint is now, if not where it was; of an ensemble, by the name of
        the backbone. Raises UserError if the labeler is damaged or of another format, or if a model
        is not the one that it was fitted with.
        """
        fitted = open_labeler(storage.absolute(os.fspath(uri), os.getcwd()), dataset, backbone)
        loaded = {}
        for name, (model, config) in image_models(fitted, weights).items():
            from sparc_dist.backbones.models import Backbone

            loaded[name] = Backbone(config, device)
            model.check(loaded[name].weights_sha256, loaded[name].input)
        return cls(fitted, loaded)

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self._fitted.names.classes)

    @property
    def fitted_on(self) -> int:
        """The number of images that it was fitted on."""
        return self._fitted.images

    @property
    def method(self) -> str:
        """The fusion that decides: ``sparc`` or ``duo``."""
        return self._fitted.primary

    @property
    def size(self) -> int:
        """The side of the squares that its model takes, in pixels; the largest of several."""
        return self._sizes[-1]

    @overload  # a text is a path, although it is also a sequence of texts
    def __call__(  # type: ignore[overload-overlap]
        self, images: Picture, batch_size: int | None = None
    ) -> LabelledImage: ...

    @overload
    def __call__(
        self, images: Iterable[Picture], batch_size: int | None = None
    ) -> list[LabelledImage]: ...

    def __call__(
        self, images: Picture | Iterable[Picture], batch_size: int | None = None
    ) -> LabelledImage | list[LabelledImage]:
        """Labels one image, or several in batches; by default those of the fit.

        Raises BadImage if a single image cannot be read; among several, its result has ``error``.
        """
        if _is_one(images):
            (answer,) = self.label([self.square(images)])
            return answer
        first, *_ = members_of(self._fitted).values()
        size = batch_size or first.image_model.batch_size
        pictures = iter(cast(Iterable[Picture], images))
        found: list[LabelledImage] = []
        while batch := list(islice(pictures, size)):
            found += self._label_batch(batch)
        return found

    def square(self, picture: Picture, most: int = MAX_PIXELS) -> Square:
        """Returns a picture as the model takes it, (S, S, 3); raises BadImage if it is none.

        Models of an ensemble may take several sizes: then a tuple of squares, the smallest first.
        most: so many pixels may a file declare
        """
        if isinstance(picture, str | os.PathLike):
            content = read_image(storage.absolute(os.fspath(picture), os.getcwd()))
            if isinstance(content, BadImage):
                raise content
            picture = content
        if isinstance(picture, bytes):
            first, *_ = members_of(self._fitted).values()  # all decode alike, as their run did
            scaling = first.image_model.jpeg_scaling
            found = tuple(squares(picture, self._sizes, most, scaling))
        else:
            found = tuple(square_of(picture, size) for size in self._sizes)
        return found if len(found) > 1 else found[0]

    def embed(self, squares: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Returns the (first) model's embeddings (n, d) of squares (n, S, S, 3), as one batch."""
        backbone = next(iter(self._scorers.values())).backbone
        found: NDArray[np.float32] = backbone.encode_images(squares, len(squares)).cpu().numpy()
        return found

    def label(self, squares: Sequence[Square] | NDArray[np.uint8]) -> list[LabelledImage]:
        """Labels n ≥ 1 squares, each as ``square`` returns it, or (n, S, S, 3), as one batch."""
        scores = self._score(squares)
        if isinstance(self._fitted, EnsembleLabeler):
            answers = self._fitted.answer(scores)
        else:
            answers = self._fitted.answer(scores[ONLY])
        because = self._because(scores, answers.present)
        names = self.classes
        return [
            LabelledImage(
                [names[i] for i in np.argsort(-chance, kind="stable") if present[i]],
                dict(zip(names, map(_probability, chance.tolist()), strict=True)),
                dict(zip(names, row.tolist(), strict=True)),
                reasons,
            )
            for chance, present, row, reasons in zip(
                answers.probability, answers.present, answers.scores, because, strict=True
            )
        ]

    def _score(self, squares: Sequence[Square] | NDArray[np.uint8]) -> dict[str, Scores]:
        """Returns the scores of squares under each model."""
        pixels = {
            size: np.stack([one[i] if isinstance(one, tuple) else one for one in squares])
            for i, size in enumerate(self._sizes)
        }
        return {
            name: scorer.score(pixels[scorer.backbone.image_size], len(squares))[0]
            for name, scorer in self._scorers.items()
        }

    def _label_batch(self, pictures: Sequence[Picture]) -> list[LabelledImage]:
        squares: list[Square] = []
        errors: list[str | None] = []
        for picture in pictures:
            try:
                squares.append(self.square(picture))
                errors.append(None)
            except BadImage as error:
                errors.append(str(error))
        labelled = iter(self.label(squares) if squares else [])
        return [LabelledImage(error=error) if error else next(labelled) for error in errors]

    def _because(
        self, scores: Mapping[str, Scores], present: NDArray[np.bool_]
    ) -> list[dict[str, list[tuple[str, float]]]]:
        """Returns, per image, the prompts that added most to the score of each class present."""
        found: list[dict[str, list[tuple[str, float]]]] = [{} for _ in range(len(present))]
        columns = np.flatnonzero(present.any(axis=0)).tolist()
        if isinstance(self._fitted, EnsembleLabeler):
            parts = self._fitted.contributions(scores, columns)
        else:
            parts = self._fitted.contributions(scores[ONLY], columns)
        mentions, names = self._fitted.mentions, self.classes
        for column, added in zip(columns, parts, strict=True):
            texts = [self._prompts[index] for index in mentions[column]]
            for image in np.flatnonzero(present[:, column]).tolist():
                row = added[image]
                most = np.argsort(-row, kind="stable")[:REASONS]
                found[image][names[column]] = [(texts[i], float(row[i])) for i in most]
        return found


def members_of(fitted: AnyLabeler) -> Mapping[str, FittedLabeler]:
    """Returns the labelers of an ensemble by backbone, or the only one."""
    return fitted.members if isinstance(fitted, EnsembleLabeler) else {ONLY: fitted}


def image_models(
    fitted: AnyLabeler, weights: str | Mapping[str, str] | None = None
) -> dict[str, tuple[ImageModel, BackboneConfig]]:
    """Returns the models of a labeler, and the configs that load them, by backbone.

    weights: as in ``Labeler.load``. Raises UserError if the labeler was not fitted on images.
    """
    members = members_of(fitted)
    given = {ONLY: weights} if isinstance(weights, str) else dict(weights or {})
    if unknown := [name for name in given if name not in members]:
        names = ", ".join(members)
        raise UserError(
            f"weights: the labeler is an ensemble of {names}; name a file for each of them."
            if ONLY in unknown
            else f"weights: the labeler has no backbone {unknown[0]}; it has {names or 'one'}."
        )
    return {name: image_model(own, given.get(name)) for name, own in members.items()}


def image_model(
    fitted: FittedLabeler, weights: str | None = None
) -> tuple[ImageModel, BackboneConfig]:
    """Returns the model of a labeler, and the config that loads it, from ``weights`` if given.

    Raises UserError if the labeler was not fitted on images.
    """
    model = fitted.image_model
    changes: dict[str, Any] = {}
    if weights is not None:
        where = storage.absolute(weights, os.getcwd()) if is_file_name(weights) else weights
        # Another file may hold the same weights: they are compared once they are loaded.
        changes = {"weights": where, "sha256": None}
    try:
        return model, BackboneConfig(**model.backbone | changes)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"The labeler's model cannot be loaded: {reason}.") from None


def _is_one(images: Picture | Iterable[Picture]) -> TypeGuard[Picture]:
    """Whether this is one image; an array of four dimensions holds several."""
    if isinstance(images, np.ndarray):
        return images.ndim < 4
    return isinstance(images, str | os.PathLike | bytes | Image.Image)


def _probability(value: float) -> float | None:
    return None if math.isnan(value) else value
