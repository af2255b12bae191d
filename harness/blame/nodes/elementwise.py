"""Operators that compute element by element, by NumPy's functions, which take a `longdouble` too.

Runtimes approximate them, and onnx's evaluator is no judge of itself: these formulas are nobody's kernel.
Each follows the operator's text, in a form that keeps its digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.blame.nodes.node_call import Formula, NodeCall
from harness.core import Array


def _unary(function: Callable[[Array], Array]) -> Formula:
    def compute(call: NodeCall) -> Sequence[Array] | None:
        x = call.given(0)
        if x is None or x.dtype.kind not in "fV":
            return None
        return [np.asarray(function(x)).astype(x.dtype)]

    return compute


def _sigmoid(x: Array) -> Array:
    """1/(1+exp(-x)), without the overflow of the exponential."""
    small = np.exp(-np.abs(x))
    found: Array = np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return found


def _hard_swish(x: Array) -> Array:
    found: Array = x * np.clip(x / 6 + x.dtype.type(0.5), 0, 1)
    return found


def _prelu(call: NodeCall) -> Sequence[Array] | None:
    """``x`` for zero and above, where the evaluator multiplies zero."""
    x, slope = call.given(0), call.given(1)
    if x is None or slope is None:
        return None
    return [np.where(x < 0, slope * x, x).astype(x.dtype)]


def _matmul(call: NodeCall) -> Sequence[Array] | None:
    """Integers in their own dtype; the evaluator is right of floats."""
    a, b = call.given(0), call.given(1)
    if a is None or b is None or a.dtype.kind not in "iu":
        return None
    return [np.asarray(np.matmul(a, b))]


def _gemm(call: NodeCall) -> Sequence[Array] | None:
    """``Y = alpha * A' * B' + beta * C`` to the letter: a factor of zero makes NaN of an infinity, where the
    evaluator leaves out what it scales. Integers in their own dtype, where it multiplies by a float."""
    a, b, c = (call.given(i) for i in range(3))
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    if a is None or b is None:
        return None
    left, right = (a.T if call.attribute("transA", 0) else a), (b.T if call.attribute("transB", 0) else b)
    if a.dtype.kind in "iu":
        if alpha != 1 or beta != 1:
            return None
        product = np.asarray(np.matmul(left, right))
        return [product if c is None else (product + c).astype(a.dtype)]
    if beta != 0 or c is None:
        return None
    wide = a.dtype.type if a.dtype.kind == "f" and a.dtype.itemsize >= 8 else np.float64
    product = np.matmul(left.astype(wide), right.astype(wide)) * wide(alpha)
    return [(product + c.astype(wide) * wide(beta)).astype(a.dtype)]


def _pow(call: NodeCall) -> Sequence[Array] | None:
    """Integers in their own dtype, where the evaluator refuses negative exponents. A fraction is cut, as
    ``Cast`` cuts it; zero to a negative power is no integer."""
    base, exponent = call.given(0), call.given(1)
    if base is None or exponent is None or base.dtype.kind not in "iu" or exponent.dtype.kind not in "iu":
        return None
    base, power = np.broadcast_arrays(base, exponent)
    below = power < 0
    if (below & (base == 0)).any():
        return None
    found = np.power(base, np.where(below, 0, power).astype(base.dtype), dtype=base.dtype)
    # Of -1 and 1 the reciprocal is the number itself.
    own = np.where(power % 2 == 0, 1, base)
    inverse = np.where(np.abs(base) == 1, own, 0)
    return [np.where(below, inverse, found).astype(base.dtype)]


ELEMENTWISE: dict[str, Formula] = {
    "Exp": _unary(np.exp),
    "Gemm": _gemm,
    "HardSwish": _unary(_hard_swish),
    "Log": _unary(np.log),
    "MatMul": _matmul,
    "PRelu": _prelu,
    "Pow": _pow,
    "Reciprocal": _unary(lambda x: np.asarray(1 / x)),
    "Sigmoid": _unary(_sigmoid),
    "Sin": _unary(np.sin),
    "Cos": _unary(np.cos),
    "Softplus": _unary(lambda x: np.asarray(np.logaddexp(x, x.dtype.type(0)))),
    "Sqrt": _unary(np.sqrt),
    "Tanh": _unary(np.tanh),
}
