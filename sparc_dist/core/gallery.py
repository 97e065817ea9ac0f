"""Gallery: the images worth looking at of each class, chosen shard by shard.

Every row of a class is "the k images with the smallest keys", so rows of shards merge, and the
images they end up with do not depend on the shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from sparc_dist.core.moments import Floats
from sparc_dist.core.states import State

#: The rows of a class: the highest scores; the lowest present and the highest absent ones, which
#: are next to the threshold; a random sample of the absent ones; and where labels are known, the
#: highest of the wrongly present and the lowest of the wrongly absent ones.
ROWS = ("likeliest", "above", "below", "random", "false_positives", "misses")

#: All rows together have about so many images at most, unless classes are very many.
MOST_IMAGES = 4000
FEWEST, MOST = 2, 24  # images in a row

Integers = NDArray[np.int32]


def row_size(classes: int) -> int:
    """Returns the number k of images in a row."""
    return int(np.clip(MOST_IMAGES // (len(ROWS) * max(classes, 1)), FEWEST, MOST))


@dataclass(frozen=True)
class Gallery(State):
    """The rows of N classes, the smallest key first; empty places have an infinite key.

    keys: (6, N, k). shard, row: where each image is, among the scored images of its shard,
    (6, N, k). Images with equal keys come in the order of shards and rows.
    """

    keys: Floats
    shard: Integers
    row: Integers

    @classmethod
    def of(
        cls,
        shard: int,
        ids: Sequence[str],
        z: Floats,
        present: NDArray[np.bool_],
        labelled: NDArray[np.bool_],
        labels: NDArray[np.bool_],
    ) -> Gallery:
        """Returns the state of one shard. z: standardised scores; z, present, labels: (n, N)."""
        size, width = row_size(z.shape[1]), z.shape[1]
        keys = np.full((len(ROWS), width, size), np.inf)
        rows = np.full(keys.shape, -1, dtype=np.int32)
        for number, found in enumerate(_keys(ids, z, present, labelled[:, None], labels)):
            classes, places, images = _smallest(np.ascontiguousarray(found.T), size)
            keys[number, classes, places] = found[images, classes]
            rows[number, classes, places] = images
        return cls(keys, np.where(rows < 0, -1, shard).astype(np.int32), rows)

    def images(self, name: str, index: int) -> list[tuple[int, int]]:
        """Returns the shard and the row of the images in a row of a class."""
        number = ROWS.index(name)
        shards, rows = (part[number, index].tolist() for part in (self.shard, self.row))
        return [pair for pair in zip(shards, rows, strict=True) if pair[0] >= 0]

    def __add__(self, other: Gallery) -> Gallery:
        pairs = zip(self.arrays(), other.arrays(), strict=True)
        keys, shard, row = (np.concatenate(pair, axis=-1) for pair in pairs)
        order = np.lexsort((row, shard, keys), axis=-1)[..., : self.keys.shape[-1]]
        return Gallery(*(np.take_along_axis(part, order, axis=-1) for part in (keys, shard, row)))


def _smallest(keys: Floats, size: int) -> tuple[NDArray[np.intp], ...]:
    """Returns class, place in its row and image of the smallest keys (N, n) of each class.

    Only the ``size`` smallest are sorted. Infinite ones are left out; of equals, the first count.
    """
    wanted = keys < np.inf
    if keys.shape[1] > size:
        wanted &= keys <= np.partition(keys, size - 1, axis=1)[:, size - 1 : size]
    classes, images = np.nonzero(wanted)
    order = np.lexsort((keys[classes, images], classes))
    classes, images = classes[order], images[order]
    places = np.arange(len(classes)) - np.searchsorted(classes, classes)
    chosen = places < size  # more are wanted if keys are equal
    return classes[chosen], places[chosen], images[chosen]


def _keys(
    ids: Sequence[str],
    z: Floats,
    present: NDArray[np.bool_],
    labelled: NDArray[np.bool_],
    labels: NDArray[np.bool_],
) -> list[Floats]:
    """Returns the keys (n, N) of each of ROWS, infinite for images that are not for it."""
    chance = np.array([_chance(image_id) for image_id in ids]).reshape(-1, 1)
    return [
        -z,
        np.where(present, z, np.inf),
        np.where(present, np.inf, -z),
        np.where(present, np.inf, chance),
        np.where(present & labelled & ~labels, -z, np.inf),
        np.where(~present & labelled & labels, z, np.inf),
    ]


def _chance(image_id: str) -> float:
    """Returns a number in [0, 1) that looks random and is always the same for an image."""
    digest = blake2b(image_id.encode(errors="surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
