"""A call with other numbers in its tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from harness.core import PRECISION, Array, Invocation, Literal, TensorSpec, build_tensor
from harness.execute import to_numpy

#: Numbers that stand for infinities and NaN, in turn: exact in every dtype, and no two neighbours alike.
_STAND_INS = tuple(1 + 0.25 * n for n in range(13))


def with_inputs(invocation: Invocation, change: Callable[[Array], Array]) -> Invocation:
    """`invocation` with the storage of every tensor changed to an array of its shape and dtype, or to itself
    where nothing is to change; complex ones stay."""

    def changed(spec: TensorSpec) -> TensorSpec:
        flat = TensorSpec((spec.storage_size,), spec.dtype, (1,), 0, spec.values)
        before = to_numpy(build_tensor(flat))
        after = change(before)
        if after is before or before.dtype.kind == "c":
            return spec
        wide = after.astype(np.float64) if str(after.dtype) == "bfloat16" else after
        return replace(spec, values=Literal(tuple(wide.tolist())))

    return invocation.map_tensors(changed)


def finite(values: Array) -> Array:
    """`values` with small numbers in place of infinities and NaN; itself where there are none."""
    if str(values.dtype) not in PRECISION:
        return values
    odd = ~np.isfinite(values.astype(np.float64))
    if not odd.any():
        return values
    after = values.copy()
    after[odd] = np.resize(_STAND_INS, int(odd.sum())).astype(values.dtype)
    return after
