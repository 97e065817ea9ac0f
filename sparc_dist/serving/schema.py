"""What the service answers, for its OpenAPI description."""

from __future__ import annotations

from pydantic import BaseModel


class ImageLabels(BaseModel):
    """The labels of one image; see ``LabelledImage``."""

    name: str
    labels: list[str]
    probabilities: dict[str, float | None]
    scores: dict[str, float]
    because: dict[str, list[tuple[str, float]]]
    error: str | None


class Labels(BaseModel):
    """The labels of the images of a request, in its order."""

    images: list[ImageLabels]


class Classes(BaseModel):
    """What a labeler is."""

    classes: list[str]
    method: str
    fitted_on: int


class Health(BaseModel):
    """That a replica answers."""

    status: str


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str
