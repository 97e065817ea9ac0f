"""What a run keeps of scores and embeddings, and how columns of a table hold matrices."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sparc_dist import storage
from sparc_dist.config import Store, StoredPrecision
from sparc_dist.core import Scores
from sparc_dist.errors import UserError
from sparc_dist.runs.layout import UnitLayout


def list_column(rows: NDArray[np.floating], dtype: type[np.floating] = np.float32) -> pa.ListArray:
    """Returns a matrix (n, d) as a column of n lists of d numbers."""
    count, width = rows.shape
    values = pa.array(np.ascontiguousarray(rows, dtype=dtype).reshape(-1))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), values)


def matrix(column: pa.ChunkedArray, width: int) -> NDArray[np.float32]:
    """Returns a column made by ``list_column`` as a matrix (n, width)."""
    values = np.asarray(column.combine_chunks().flatten(), dtype=np.float32)
    return values.reshape(len(column), width)


Float32 = NDArray[np.float32]

#: The columns of scores, which are also the kinds of prompts.
KINDS = ("singleton", "auxiliary", "compound")
#: The key of a table's metadata that names the embeddings of prompts by their hash.
PROMPTS = "prompt_embeddings_sha256"
#: The largest difference between embeddings of the same prompts on two devices. Damage is larger.
ROUNDING = 1e-4


class DamagedScores(UserError):
    """Stored scores are missing or damaged; the images can be scored again."""


@dataclass(frozen=True)
class Storing:
    """What is kept, and in which precision.

    kept_sha256: the hash of the kept embeddings of prompts, where scores are not kept.
    """

    store: Store = "both"
    precision: StoredPrecision = "fp32"
    kept_sha256: str = ""

    @property
    def dtype(self) -> type[np.floating]:
        """The type of the numbers that are kept."""
        return np.float32 if self.precision == "fp32" else np.float16

    def bytes_per_image(self, prompts: int, width: int) -> int:
        """Returns what an image takes before compression. prompts: of all kinds. width: d."""
        counts = {"scores": prompts, "embeddings": width, "both": prompts + width}
        return counts[self.store] * np.dtype(self.dtype).itemsize

    def columns(self, scores: Scores, embedding: Float32) -> dict[str, pa.ListArray]:
        """Returns the columns of a shard's table. embedding: (n, d)."""
        kept = {} if self.store == "embeddings" else {k: getattr(scores, k) for k in KINDS}
        kept |= {} if self.store == "scores" else {"embedding": embedding}
        return {name: list_column(rows, self.dtype) for name, rows in kept.items()}

    def metadata(self) -> dict[str, str]:
        """Returns what the metadata of a shard's table say about it."""
        return {PROMPTS: self.kept_sha256} if self.store == "embeddings" else {}


#: All in float32, as by default.
ALL = Storing()


def similarities(embedding: Float32, prompts: Sequence[Float32]) -> Scores:
    """Returns the scores of images (n, d). prompts: the embeddings (·, d) of each of the KINDS."""
    return Scores(*(embedding @ rows.T for rows in prompts))


def keep_prompts(unit: UnitLayout, prompts: Sequence[Float32]) -> str:
    """Stores the embeddings (·, d) of each of the KINDS; returns the hash of their file.

    A file of an earlier start is left as it is, although another device rounds differently: the
    shards of that start name its hash.
    """
    stored = storage.read_if_exists(unit.prompt_embeddings)
    if stored is not None and storage.seal_of(stored) and _is_close(stored, prompts):
        return storage.seal_of(stored) or ""
    kinds = np.repeat(KINDS, [len(rows) for rows in prompts])
    table = pa.table({"kind": kinds, "embedding": list_column(np.concatenate([*prompts]))})
    return storage.write_table(unit.prompt_embeddings, table)


def _is_close(stored: bytes, prompts: Sequence[Float32]) -> bool:
    """Whether a file holds these embeddings, up to the rounding of another device."""
    pairs = zip(_by_kind(stored), prompts, strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, 0, ROUNDING) for a, b in pairs)


@lru_cache(maxsize=4)  # every shard of a pass needs them
def read_prompts(unit: UnitLayout, sha256: str) -> list[Float32]:
    """Returns the embeddings (·, d) of each of the KINDS; raises DamagedScores if they changed."""
    stored = storage.read_if_exists(unit.prompt_embeddings)
    if stored is None or storage.seal_of(stored) != sha256:
        raise DamagedScores(
            f"{unit.prompt_embeddings}, which the scores of {unit.root} are computed from, is "
            "missing or damaged; start the run again to make it again."
        )
    return _by_kind(stored)


def _by_kind(content: bytes) -> list[Float32]:
    table = pq.read_table(io.BytesIO(content))
    kinds = np.asarray(table["kind"].to_pylist())
    rows = matrix(table["embedding"], len(table["embedding"][0]))
    return [rows[kinds == kind] for kind in KINDS]
