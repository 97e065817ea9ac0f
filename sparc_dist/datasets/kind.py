"""The interface of a kind of data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa


class Source(Protocol):
    """The source of a data set's images."""

    #: What was left out and why; complete once ``images`` is exhausted.
    notes: list[str]

    def images(self) -> Iterator[pa.Table]:
        """Yields the images in a fixed order, in batches with the schema of images.parquet."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A source that need not begin at its first image."""

    def images_after(self, uri: str) -> Iterator[pa.Table] | None:
        """Yields the images behind one; None if this source has to begin at the first."""
        ...


@runtime_checkable
class Labelled(Protocol):
    """A source with the labels of training images, which are not scored."""

    notes: list[str]

    def labels(self) -> Iterator[list[list[int]]]:
        """Yields the class indices of each training image, in batches."""
        ...


@dataclass(frozen=True)
class DatasetKind:
    """A kind of data set; the module of each kind defines one as ``KIND``.

    summary, needs, origin: texts for ``sparc-dist datasets``.
    open: returns the source, given ``images`` of the config and the class names.
    classes, images, paper_name: the class names, the number of test images and the paper's name
    of an official data set.
    """

    summary: str
    needs: str
    origin: str
    open: Callable[[Any, Sequence[str]], Source]
    classes: tuple[str, ...] = ()
    images: int = 0
    paper_name: str | None = None
