"""Matrices as columns of Parquet tables: one list of numbers per row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def list_column(rows: NDArray[np.floating], dtype: type[np.floating] = np.float32) -> pa.ListArray:
    """Returns a matrix (n, d) as a column of n lists of d numbers."""
    count, width = rows.shape
    values = pa.array(np.ascontiguousarray(rows, dtype=dtype).reshape(-1))
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * width), values)


def matrix(column: pa.ChunkedArray, width: int) -> NDArray[np.float32]:
    """Returns a column made by ``list_column`` as a matrix (n, width)."""
    values = np.asarray(column.combine_chunks().flatten(), dtype=np.float32)
    return values.reshape(len(column), width)
