"""Definitions of recurrent layers: the equations of their texts.

onnx's reference evaluator leaves out lengths of sequences, clipping, the reverse direction, or the layout.

Shapes: `s` steps, `b` batches, `d` directions, `h` hidden units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.dtypes import Array
from harness.pipeline.nodes.node_call import Formula, NodeCall


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction, a gate after the other along their first dimension.

    Attributes:
        inputs: Shape [gates · h, inputs].
        recurrent: Shape [gates · h, h].
        input_bias: Shape [gates · h].
        recurrent_bias: Shape [gates · h].
        peepholes: Shape [3 · h]; None if there are none.
    """

    inputs: Array
    recurrent: Array
    input_bias: Array
    recurrent_bias: Array
    peepholes: Array | None


#: Takes the call, the weights, a step's inputs [b, inputs] and the states [b, h]; returns the next states.
_Cell = Callable[[NodeCall, _Weights, Array, tuple[Array, ...]], tuple[Array, ...]]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _clipped(call: NodeCall, x: Array) -> Array:
    """Return the input of an activation."""
    limit = call.attribute("clip")
    return x if limit is None else np.clip(x, -limit, limit)


def _simple(call: NodeCall, weights: _Weights, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Ht = tanh(Xt Wᵀ + Ht-1 Rᵀ + Wb + Rb)."""
    (hidden,) = states
    total = x @ weights.inputs.T + hidden @ weights.recurrent.T + weights.input_bias + weights.recurrent_bias
    return (np.tanh(_clipped(call, total)),)


def _gated(call: NodeCall, weights: _Weights, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Gates z, r, h; the reset gate comes before the product with the recurrent weights, or behind it."""
    (hidden,) = states
    given = np.split(x @ weights.inputs.T + weights.input_bias, 3, -1)
    recurrent = np.split(weights.recurrent, 3, 0)
    biases = np.split(weights.recurrent_bias, 3, 0)
    update, reset = (_sigmoid(_clipped(call, given[i] + hidden @ recurrent[i].T + biases[i])) for i in range(2))
    if call.attribute("linear_before_reset", 0):
        candidate = given[2] + reset * (hidden @ recurrent[2].T + biases[2])
    else:
        candidate = given[2] + (reset * hidden) @ recurrent[2].T + biases[2]
    return ((1.0 - update) * np.tanh(_clipped(call, candidate)) + update * hidden,)


def _long_short(call: NodeCall, weights: _Weights, x: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    """Gates i, o, f, c, with peepholes i, o, f."""
    hidden, cell = states
    total = x @ weights.inputs.T + hidden @ weights.recurrent.T + weights.input_bias + weights.recurrent_bias
    into, out, forget, candidate = np.split(total, 4, -1)
    if weights.peepholes is not None:
        peep_input, peep_output, peep_forget = np.split(weights.peepholes, 3)
        into, forget = into + peep_input * cell, forget + peep_forget * cell
    into = _sigmoid(_clipped(call, into))
    forget = 1.0 - into if call.attribute("input_forget", 0) else _sigmoid(_clipped(call, forget))
    cell = forget * cell + into * np.tanh(_clipped(call, candidate))
    if weights.peepholes is not None:
        out = out + peep_output * cell
    return _sigmoid(_clipped(call, out)) * np.tanh(cell), cell


def _layer(cell: _Cell, *, has_cell: bool = False) -> Formula:
    """Return the formula of a layer whose cell has the default activations."""

    def compute(call: NodeCall) -> Sequence[Array] | None:
        x, first = call.given(0), call.given(1)
        if x is None or first is None or any(call.attribute(n) for n in ("activations", "activation_alpha")):
            return None
        batch_first = bool(call.attribute("layout", 0))
        x = x.swapaxes(0, 1) if batch_first else x
        given = call.given(4)
        lengths = np.full(x.shape[1], x.shape[0]) if given is None else given
        ways = []
        for way in range(first.shape[0]):
            backwards = way == 1 or call.attribute("direction", b"forward") == b"reverse"
            ways.append(_run(call, cell, way, x, lengths, backwards=backwards, has_cell=has_cell))
        results = np.stack([results for results, _ in ways], 1)
        finals = [np.stack([states[i] for _, states in ways]) for i in range(2 if has_cell else 1)]
        if batch_first:
            results = results.transpose(2, 0, 1, 3)
            finals = [final.swapaxes(0, 1) for final in finals]
        return [
            array.astype(x.dtype) for array, name in zip([results, *finals], call.node.output, strict=False) if name
        ]

    return compute


def _run(
    call: NodeCall, cell: _Cell, way: int, x: Array, lengths: Array, *, backwards: bool, has_cell: bool
) -> tuple[Array, list[Array]]:
    """Run one direction; steps behind the end of a sequence give zeros and leave the states unchanged.

    Returns:
        The results, shape [s, b, h], and the last states, shape [b, h].
    """
    weights, states = _weights(call, way, has_cell=has_cell)
    steps, batches = x.shape[:2]
    hidden = weights.recurrent.shape[1]
    held = [np.zeros((batches, hidden), x.dtype) if s is None else s.copy() for s in states]
    results = np.zeros((steps, batches, hidden), x.dtype)
    for step in range(steps):
        # A reversed sequence begins with its own last element.
        at = np.where(lengths > step, lengths - 1 - step, 0) if backwards else np.full(batches, step)
        runs = (lengths > step)[:, None]
        moved = cell(call, weights, x[at, np.arange(batches)], tuple(held))
        held = [np.where(runs, new, old) for new, old in zip(moved, held, strict=True)]
        for batch in np.flatnonzero(runs[:, 0]):
            results[at[batch], batch] = held[0][batch]
    return results, held


def _weights(call: NodeCall, way: int, *, has_cell: bool) -> tuple[_Weights, list[Array | None]]:
    _, first, second, bias = (call.given(i) for i in range(4))
    assert first is not None
    assert second is not None
    both = np.zeros(2 * first.shape[1], first.dtype) if bias is None else bias[way]
    batch_first = bool(call.attribute("layout", 0))
    states = []
    for place in (5, 6) if has_cell else (5,):
        given = call.given(place)
        states.append(None if given is None else given[:, way] if batch_first else given[way])
    peepholes = call.given(7) if has_cell else None
    input_bias, recurrent_bias = np.split(both, 2)
    held = None if peepholes is None else peepholes[way]
    return _Weights(first[way], second[way], input_bias, recurrent_bias, held), states


RECURRENT: dict[str, Formula] = {
    "RNN": _layer(_simple),
    "GRU": _layer(_gated),
    "LSTM": _layer(_long_short, has_cell=True),
}
