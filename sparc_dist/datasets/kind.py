"""What every kind of data set has to say about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa


class Source(Protocol):
    """Where images come from."""

    #: What was left out and why; complete when ``images`` is exhausted.
    notes: list[str]

    def images(self) -> Iterator[pa.Table]:
        """Yields the images in batches of the schema of images.parquet, in a fixed order."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A source that knows the labels of images other than those to be scored."""

    notes: list[str]

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the class indices of each training image, in batches."""
        ...


@dataclass(frozen=True)
class DatasetKind:
    """A kind of data set; each module of a kind has one as ``KIND``.

    summary, needs, origin: for ``sparc-dist datasets``. open: makes the source from ``images`` of
    the config and the class names. classes, images, paper_name: of an official data set its class
    names, the number of its test images, and what the paper calls it.
    """

    summary: str
    needs: str
    origin: str
    open: Callable[[str, Sequence[str]], Source]
    classes: tuple[str, ...] = ()
    images: int = 0
    paper_name: str | None = None
