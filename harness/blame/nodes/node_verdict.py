"""Which elements of a node's results are not what its definition gives for its own inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.blame.nodes.definition import Definition
from harness.blame.nodes.node_oracle import NodeOracle
from harness.compare import ACCUMULATES, CLOSE, EQUAL, EXACT, Judge, Mask, wrong_elements
from harness.core import PRECISION, Array


def not_as_defined(definition: Definition, got: Sequence[Array], *, strict: bool = False) -> tuple[Mask, ...] | None:
    """A mask per output, of an output of another dtype or shape, all; None where everything is right.

    `strict` is for `NodeOracle`. Raises `Undefined`.
    """
    if definition.is_random:
        # Every number may be right.
        fits = [definition.has_form(i, g) for i, g in enumerate(got)]
        return None if all(fits) else tuple(np.full(g.shape, not f) for g, f in zip(got, fits, strict=True))
    own = definition.own
    if [form_of(a) for a in own] != [form_of(a) for a in got]:
        same = [i < len(own) and form_of(own[i]) == form_of(g) for i, g in enumerate(got)]
        return tuple(np.full(g.shape, not s) for g, s in zip(got, same, strict=True))
    found = wrong_elements(_judge_of(definition), NodeOracle(definition, strict=strict), got)
    wide = definition.truth or (None,) * len(own)
    masks = tuple(w & ~np.asarray(_overflows_itself(o, g, t)) for w, o, g, t in zip(found, own, got, wide, strict=True))
    return masks if any(mask.any() for mask in masks) else None


def right_results(definition: Definition) -> tuple[Array, ...]:
    """What the definition gives, in the node's dtypes."""
    return NodeOracle(definition).expected


def _judge_of(definition: Definition) -> Judge:
    if definition.is_exact:
        return EXACT if definition.is_copy else EQUAL
    return ACCUMULATES if definition.accumulates else CLOSE


def _overflows_itself(own: Array, got: Array, wide: Array | None) -> Mask | bool:
    """Elements that are no number because the definition, in this dtype, leaves the range on its way; none
    that are infinite whatever the dtype, where an infinite input decides."""
    if str(own.dtype) not in PRECISION:
        return False
    with np.errstate(all="ignore"):
        o, g = own.astype(np.float64), got.astype(np.float64)
        same = ((o == g) | (np.isnan(o) & np.isnan(g))) & ~np.isfinite(g)
        if wide is None or wide.shape != g.shape or wide.dtype.itemsize <= own.dtype.itemsize:
            return np.asarray(same)
        return np.asarray(same & ~(np.isinf(wide) & np.isnan(g)))


def form_of(array: Array) -> tuple[tuple[int, ...], str]:
    """Shape and dtype."""
    return array.shape, str(array.dtype)
