"""Arrays as Parquet holds them: dtype, shape and row-major bytes, little-endian as PyTorch's machines are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa

from harness.core import Array

#: ``data`` is what ``numpy.frombuffer(data, dtype).reshape(shape)`` reads; bfloat16 through `ml_dtypes`.
TENSOR = pa.struct([("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("data", pa.binary())])


def to_row(array: Array | None) -> dict[str, Any] | None:
    """The struct of one array; None for None."""
    if array is None:
        return None
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": array.tobytes()}


def from_row(row: dict[str, Any] | None) -> Array | None:
    """Read what `to_row` gave.

    Raises:
        ValueError: it is something else.
    """
    if row is None:
        return None
    dtype = np.dtype(getattr(ml_dtypes, row["dtype"], row["dtype"]))
    return np.frombuffer(row["data"], dtype).reshape(row["shape"])
