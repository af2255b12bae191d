"""Find the elements of a node's results that depart from its operator's definition for its own inputs.

Some sums leave the range of their dtype in one order of summation and not in another. Neither ONNX nor PyTorch states
an order (rule 5 of `harness.compare.nearness`). A partial sum may be as large as the sum of the terms' magnitudes: if
that leaves the range, an infinity is right, and so is NaN next to an infinity of the other sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from harness.compare.comparison import wrong_elements
from harness.compare.judge import ACCUMULATES, CLOSE, EQUAL, EXACT, Evidence, Judge, Mask
from harness.compare.nearness import KnownSensitivity, tolerance_of, ulp
from harness.compare.tolerances import Tolerance
from harness.core.dtypes import LARGEST, PRECISION, Array
from harness.core.numbers import are_same
from harness.pipeline.nodes.definition import Definition


def overflown(definition: Definition, got: Sequence[Array], instead: float) -> tuple[Array, ...]:
    """Return the results of a step with `instead`, an infinity or NaN, wherever a sum may have left the range."""
    if not definition.accumulates or len(got) != 1 or str(got[0].dtype) not in PRECISION:
        return tuple(got)
    magnitudes = definition.change_terms(_finite_magnitudes)
    if magnitudes is None or magnitudes[0] is None or magnitudes[0].shape != got[0].shape:
        return tuple(got)
    with np.errstate(all="ignore"):
        beyond = ~(np.abs(magnitudes[0]) <= LARGEST[str(got[0].dtype)])
        return (np.where(beyond, got[0].dtype.type(instead), got[0]).astype(got[0].dtype),)


def _finite_magnitudes(array: Array) -> Array:
    """Return magnitudes without infinities: finite terms next to one may leave the range, too."""
    return np.where(np.isfinite(array), np.abs(array), 0).astype(array.dtype)


def not_as_defined(definition: Definition, got: Sequence[Array], *, strict: bool = False) -> tuple[Mask, ...] | None:
    """Return a mask per output, all true for an output of another dtype or shape; None if everything is right.

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
    judge = judge_node(definition)
    found = wrong_elements(judge, NodeOracle(definition, strict=strict), got)
    wide = definition.truth or (None,) * len(own)
    masks = tuple(
        w & ~np.asarray(_leaves_range_itself(o, g, t)) for w, o, g, t in zip(found, own, got, wide, strict=True)
    )
    if any(mask.any() for mask in masks) and definition.body_results is not None:
        # A backend that follows the text step by step is right, whatever precision it loses on the way.
        triples = zip(masks, got, definition.body_results, strict=True)
        # A coarser precision holds for what is computed in it.
        judges = (CLOSE if output in judge.rules else judge for output in range(len(masks)))
        masks = tuple(m & ~_are_near(g, body, j) for (m, g, body), j in zip(triples, judges, strict=True))
    return masks if any(mask.any() for mask in masks) else None


def _are_near(got: Array, right: Array, judge: Judge) -> Mask:
    """Return the mask of elements that are equal, or within the dtype's tolerance; all false if forms differ."""
    if form_of(got) != form_of(right):
        return np.zeros(got.shape, bool)
    with np.errstate(all="ignore"):
        g, r = got.astype(np.float64), right.astype(np.float64)
        same = are_same(g, r)
        if str(got.dtype) in PRECISION:
            same |= np.isfinite(r) & (np.abs(g - r) <= tolerance_of(judge, str(got.dtype)).allowed(r))
    return np.asarray(same)


def right_results(definition: Definition) -> tuple[Array, ...]:
    """Return the definition's results in the node's dtypes."""
    return NodeOracle(definition).expected


#: Operators whose bodies compute in float32, whatever dtype they return.
_SINGLE_PRECISION_BODIES = frozenset({"HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"})
_SINGLE_PRECISION = Judge(
    tolerances={dtype: Tolerance(1e-5, 1e-6) for dtype in ("float32", "float64")},
    reason="their bodies compute in float32",
)


def judge_node(definition: Definition) -> Judge:
    """Return the rules for a step's results: choices are exact, sums are compared by their terms, others closely."""
    if definition.is_exact:
        return EXACT if definition.is_copy else EQUAL
    if definition.operator in _SINGLE_PRECISION_BODIES:
        return _SINGLE_PRECISION
    reals = definition.reals
    if reals is not None:
        return replace(CLOSE, exact_reals=lambda arguments: reals)
    judge, narrow = ACCUMULATES if definition.accumulates else CLOSE, _requested_precision(definition)
    if narrow is None:
        return judge
    wider = [dtype for dtype, bits in PRECISION.items() if bits > PRECISION[narrow]]
    tolerances = dict.fromkeys(wider, tolerance_of(CLOSE, narrow))
    # Keys and values are passed through, and nothing of them is computed.
    copied = dict.fromkeys(range(1, min(len(definition.own), 3)), _unequal)
    return replace(judge, tolerances=tolerances, reason=f"softmax_precision asks for {narrow}", rules=copied)


def _unequal(evidence: Evidence, output: int) -> Mask:
    expected, got = (arrays[output].astype(np.float64) for arrays in (evidence.expected, evidence.got))
    return ~are_same(expected, got)


def _requested_precision(definition: Definition) -> str | None:
    """Return the dtype in which a step's attribute asks for its softmax; None if it asks for none."""
    asked = [a.i for node in definition.step.nodes for a in node.attribute if a.name == "softmax_precision"]
    names = [str(onnx.helper.tensor_dtype_to_np_dtype(number)) for number in asked]
    return next((name for name in names if name in PRECISION), None)


def _leaves_range_itself(own: Array, got: Array, wide: Array | None) -> Mask | bool:
    """Return the mask of elements that are not numbers, or zero, because the definition leaves the range of this dtype
    on its way; an element that is infinite in every dtype, because of an infinite input, is not masked."""
    if str(own.dtype) not in PRECISION:
        return False
    with np.errstate(all="ignore"):
        o, g = own.astype(np.float64), got.astype(np.float64)
        same = are_same(o, g) & ~np.isfinite(g)
        if wide is None or wide.shape != g.shape or wide.dtype.itemsize <= own.dtype.itemsize:
            return np.asarray(same)
        vanished = (o == 0) & (g == 0) & (wide != 0)
        return np.asarray((same & ~(np.isinf(wide) & np.isnan(g))) | vanished)


def form_of(array: Array) -> tuple[tuple[int, ...], str]:
    """Shape and dtype."""
    return array.shape, str(array.dtype)


#: Operators whose factors are of both signs, so that magnitudes of inputs do not give those of terms.
_SPECTRA = frozenset({"DFT", "STFT"})


def _spectral_magnitudes(definition: Definition) -> tuple[Array | None, ...]:
    """Return the sum of the magnitudes of each signal, for all of its frequencies."""
    signal = np.abs(definition.inputs[definition.step.node.input[0]].astype(np.float64))
    (result,) = definition.own
    sums = signal.reshape(signal.shape[0], -1).sum(1)
    return (np.broadcast_to(sums.reshape(-1, *[1] * (result.ndim - 1)), result.shape),)


#: Evaluations with inputs that are moved by their last place.
_NEIGHBOURS = 4


class NodeOracle:
    """A `nearness.Oracle`.

    Args:
        definition: Definition of the node.
        strict: Whether the inputs are taken as exact, so that their roundings excuse nothing.
    """

    unscaled = flushed = definition = None

    def __init__(self, definition: Definition, *, strict: bool = False) -> None:
        self._definition = definition
        self._strict = strict

    @cached_property
    def expected(self) -> tuple[Array, ...]:
        """The wide results, rounded to the node's dtypes."""
        own, truth = self._definition.own, self._definition.truth
        if truth is None:
            return own
        # A number that is too large for the node's dtype is infinite in it.
        with np.errstate(over="ignore"):
            return tuple(
                o if t is None or o.shape != t.shape or str(o.dtype) not in PRECISION else t.astype(o.dtype)
                for o, t in zip(own, truth, strict=True)
            )

    @cached_property
    def truth(self) -> tuple[Array | None, ...] | None:
        """The wide results in float64; those of an operator that only chooses are its own."""
        wide = self._definition.truth
        if wide is None:
            return tuple(a.astype(np.float64) if str(a.dtype) in PRECISION else None for a in self._definition.own)
        return tuple(None if a is None else a.astype(np.float64) for a in wide)

    @cached_property
    def magnitude(self) -> tuple[Array | None, ...] | None:
        """The sums of the terms' magnitudes, of an operator that sums."""
        if not self._definition.accumulates:
            return None
        if self._definition.operator in _SPECTRA:
            return _spectral_magnitudes(self._definition)
        found = _cast_float64(self._definition.change_terms(np.abs))
        return None if found is None else tuple(None if a is None else np.abs(a) for a in found)

    @cached_property
    def marked(self) -> tuple[Array | None, ...] | None:
        """The same with 1 for every finite number."""
        if not self._definition.accumulates:
            return None
        return _cast_float64(
            self._definition.change_terms(lambda a: np.where(np.isfinite(a), 1.0, np.abs(a)).astype(a.dtype))
        )

    @cached_property
    def finite_terms(self) -> tuple[tuple[Array | None, ...] | None, tuple[Array | None, ...] | None]:
        """The truth and the magnitude with zeros for infinite inputs and NaN."""
        if not self._definition.accumulates:
            return None, None

        def zeroed(a: Array) -> Array:
            return np.where(np.isfinite(a), a, np.zeros_like(a))

        found = [self._definition.change_terms(change) for change in (zeroed, lambda a: np.abs(zeroed(a)))]
        return _cast_float64(found[0]), _cast_float64(found[1])

    @cached_property
    def sensitivity(self) -> tuple[KnownSensitivity | None, ...] | None:
        """Return how much results move if inputs move by their last place."""
        truth = self._definition.truth
        if truth is None or self._strict:
            return None
        moved = [self._moved(seed) for seed in range(_NEIGHBOURS)]
        found: list[KnownSensitivity | None] = []
        for i, o in enumerate(truth):
            others = [m[i] for m in moved if m is not None]
            if o is None or not others or any(a is None or a.shape != o.shape for a in others):
                found.append(None)
                continue
            with np.errstate(all="ignore"):
                steps = [np.abs(a - o).astype(np.float64) for a in others if a is not None]
                far = np.max([np.where(np.isfinite(s), s, 0.0) for s in steps], axis=0)
            found.append(KnownSensitivity(far, np.zeros(o.shape)))
        return tuple(found)

    def _moved(self, seed: int) -> Sequence[Array | None] | None:
        random = np.random.Generator(np.random.PCG64(seed))
        floats = [str(a.dtype) for a in self._definition.inputs.values() if str(a.dtype) in PRECISION]
        # A step that rounds to fewer bits on its way moves results as inputs of so few bits do.
        asked = _requested_precision(self._definition)
        dtype = min([*floats, *([asked] if asked else [])], key=PRECISION.__getitem__)

        def move(values: Array) -> Array:
            finite = np.isfinite(values) & (values != 0)
            size = ulp(np.where(finite, values, 1.0).astype(np.float64), dtype)
            chance = random.integers(0, 2, values.shape) * 2.0 - 1.0
            return np.where(finite, values + chance * size, values).astype(values.dtype)

        return self._definition.wide(move)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The inputs."""
        return self._definition.inputs


def _cast_float64(found: Sequence[Array | None] | None) -> tuple[Array | None, ...] | None:
    if found is None:
        return None
    return tuple(None if a is None else a.astype(np.float64) for a in found)
