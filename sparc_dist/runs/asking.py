"""Which images to ask people about: at random, or spread over the scores of a class.

Not the uncertain ones. The link is fitted to answers as if images were drawn at random; images near
the threshold tell little about the slope, and asking about them gave worse decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import Floats
from sparc_dist.runs.answers_file import Question
from sparc_dist.runs.columns import matrix
from sparc_dist.runs.finished_unit import FinishedUnit

Indices = NDArray[np.int64]


def questions(
    unit: FinishedUnit, count: int, seed: int, name: str | None = None
) -> Iterator[Question]:
    """Yields questions about ``count`` images: about all classes, or only the one with a name.

    Images are in random order, so that the first answers are a fair sample, too.
    """
    random = np.random.default_rng(seed)
    finals = map(unit.unit.final, range(len(unit.sizes)))
    sizes = [len(storage.read_table(url, ["image_id"])) for url in finals]
    if name is None:
        chosen = random.choice(sum(sizes), min(count, sum(sizes)), replace=False)
    else:
        chosen = spread(_scores(unit, unit.classes.index(name)), count, random)
    for image_id, uri in _images(unit, sizes, chosen):
        for asked in unit.classes if name is None else [name]:
            yield Question(image_id, uri, asked)


def spread(scores: Floats, count: int, random: np.random.Generator) -> Indices:
    """Returns one random image of each of ``count`` equal parts of the ranking, in random order."""
    order = np.argsort(scores, kind="stable")
    count = min(count, len(order))
    edges = np.arange(count + 1) * len(order) // max(count, 1)
    return random.permutation(order[random.integers(edges[:-1], edges[1:])])


def _scores(unit: FinishedUnit, index: int) -> Floats:
    """Returns a class's scores of all images; copied, so that the others' are freed."""
    tables = (
        storage.read_table(unit.unit.final(shard), [unit.primary])[unit.primary]
        for shard in range(len(unit.sizes))
    )
    return np.concatenate([matrix(col, len(unit.classes))[:, index].copy() for col in tables])


def _images(unit: FinishedUnit, sizes: Sequence[int], chosen: Indices) -> Iterator[tuple[str, str]]:
    """Yields id and uri of images, given by their place among all scored ones."""
    starts = np.cumsum([0, *sizes])
    found: dict[int, tuple[str, str]] = {}
    for shard in np.unique(np.searchsorted(starts, chosen, side="right") - 1).tolist():
        ids = storage.read_table(unit.unit.final(shard), ["image_id"])["image_id"].to_pylist()
        uris = unit.uris(shard)
        places = chosen[(chosen >= starts[shard]) & (chosen < starts[shard + 1])]
        for place in places.tolist():
            image_id = ids[place - int(starts[shard])]
            found[place] = image_id, uris[image_id]
    yield from (found[place] for place in chosen.tolist())
