"""Labels: which classes each image contains, as a long and as a wide table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.core import Moments, Scores
from sparc_dist.runs.labeler_file import FittedLabeler
from sparc_dist.runs.layout import UnitLayout
from sparc_dist.runs.markers import Marker
from sparc_dist.runs.shards import final_table


def write_labels(
    unit: UnitLayout,
    shard: int,
    ids: Sequence[str],
    classes: Sequence[str],
    judged: tuple[NDArray[np.floating], NDArray[np.bool_]],
) -> str:
    """Writes both tables of a shard; returns their hashes. judged: probability and present."""
    tables = {
        unit.labels(shard): long_table(ids, classes, *judged),
        unit.wide_labels(shard): wide_table(ids, classes, *judged),
    }
    return " ".join(storage.write_table(url, table) for url, table in tables.items())


def write_labelled(
    unit: UnitLayout, marker: Marker, ids: Sequence[str], labeler: FittedLabeler, scores: Scores
) -> Marker:
    """Writes the final scores and labels of a shard by a labeler; returns its marker with them."""
    final, classes = labeler.fusions.final(scores), labeler.names.classes
    table = final_table(pa.array(ids, pa.string()), final, labeler.names)
    hashes = {
        "final": storage.write_table(unit.final(marker.shard), table),
        "labels": write_labels(unit, marker.shard, ids, classes, labeler.judge(final)),
    }
    moments = Moments.of(labeler.fusions.debias_singletons(scores))
    debiased = [moments.mean.tolist(), moments.deviations.tolist()]
    sha256 = {**marker.sha256, **hashes}
    return replace(marker, images=len(ids), sha256=sha256, debiased=debiased)


def long_table(
    ids: Sequence[str],
    classes: Sequence[str],
    probability: NDArray[np.floating],
    present: NDArray[np.bool_],
) -> pa.Table:
    """Returns one row per image and class. probability, present: (n, N)."""
    images, names = np.indices(present.shape, dtype=np.int32).reshape(2, -1)
    return pa.table(
        {
            "image_id": pa.array(ids, pa.string()).take(pa.array(images)),
            "class": pa.array(classes, pa.string()).take(pa.array(names)),
            "probability": float32_column(probability.ravel()),
            "present": pa.array(present.ravel()),
        }
    )


def wide_table(
    ids: Sequence[str],
    classes: Sequence[str],
    probability: NDArray[np.floating],
    present: NDArray[np.bool_],
    uris: Sequence[str] | None = None,
) -> pa.Table:
    """Returns one row per image: the classes that are present, and a probability per class.

    A class with the name of another column gets "(class)" behind it. uris: one more column.
    """
    own = {"image_id": pa.array(ids, pa.string())}
    if uris is not None:
        own["uri"] = pa.array(uris, pa.string())
    own["present"] = _present_column(present, classes)
    taken = {*own, *classes}
    names = [_free(name, taken) if name in own else name for name in classes]
    columns = zip(names, np.ascontiguousarray(probability.T), strict=True)
    return pa.table({**own, **{name: float32_column(values) for name, values in columns}})


def _present_column(present: NDArray[np.bool_], classes: Sequence[str]) -> pa.ListArray:
    """Returns the names of the classes that are present in each image (n, N)."""
    names = pa.array(classes, pa.string()).take(pa.array(np.nonzero(present)[1]))
    ends = np.append(0, present.sum(axis=1).cumsum()).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), names)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += " (class)"
    return name


def float32_column(values: NDArray[np.floating]) -> pa.Array:
    """Returns probabilities; null where a class has none."""
    return pa.array(values.astype(np.float32), from_pandas=True)  # NaN becomes null
