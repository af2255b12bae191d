"""Attention and recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from harness.compare.judge import ACCUMULATES, EXACT, Allowance, Judge, Mask
from harness.core.dtypes import ALL, FLOATS, Array
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("attention")


# Scaled dot product


def _scale(d: Draw) -> Any:
    return d.maybe(lambda: d.choose(1.0, 0.5, 0.125, 2.0), none=True)


def _attention(d: Draw) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Query, key and value, whether heads are shared (`enable_gqa`), and the shape of the scores."""
    queries, keys = d.choose(4, 1, 2, 3, 7, 17, 33), d.choose(4, 1, 2, 3, 8, 33)
    width, value_width = d.choose(4, 1, 8, 2, 16), d.choose(None, None, 3)
    grouped = d.choose(OMIT, False, True)
    key_lead: tuple[int, ...]
    query_lead: tuple[int, ...]
    if grouped is True:
        kv_heads = d.choose(1, 2, 3)
        heads, lead = kv_heads * d.choose(1, 2, 3), (d.size(1, 3),)
        query_lead, key_lead = (*lead, heads), (*lead, kv_heads)
    else:
        query_lead = d.choose((d.size(1, 3), d.size(1, 3)), d.shape(0, 3, max_size=3))
        key_lead = query_lead
    arguments = {
        "query": d.tensor((*query_lead, queries, width)),
        "key": d.tensor((*key_lead, keys, width)),
        "value": d.tensor((*key_lead, keys, value_width or width)),
        "enable_gqa": grouped,
    }
    return arguments, (*query_lead, queries, keys)


def _mask(d: Draw, scores: tuple[int, ...]) -> Any:
    """A mask of bools or of summands that broadcasts to the scores."""
    rank = len(scores)
    start = d.choose(rank - 2, 0, d.integer(0, rank - 2))
    sizes = tuple(1 if i < rank - 2 and d.boolean() else size for i, size in enumerate(scores))
    # The kernels for four dims ask the mask for its last but one.
    shape = d.choose(*[sizes[start:]] * 6, sizes[start:] if rank == 4 else scores[-1:])
    return d.tensor(shape, d.choose(d.dtype, "bool"))


def _overflowing_rows(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    """Mask queries with a score of which a term, or a sum of terms, leaves the range of the dtype.

    PyTorch documents `query @ key.transpose(-2, -1) * scale`, and its kernels scale before, after, or both halfway.
    """
    leaves = overflowing(arguments["query"], arguments["key"], arguments.get("scale"))
    found: list[Mask | None] = []
    for output in expected:
        mask = leaves[..., None] if output.ndim == leaves.ndim + 1 else leaves
        fits = output.ndim >= leaves.ndim and output.shape[: leaves.ndim] == leaves.shape
        found.append(np.broadcast_to(mask, output.shape) if fits else None)
    return found


def overflowing(query: Array, key: Array, scale: float | None) -> Mask:
    """Return the mask of queries with a score of which a term, or a sum of terms, leaves the range of the dtype."""
    limit = float(ml_dtypes.finfo(query.dtype).max)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        wide = [np.abs(np.where(np.isfinite(a), a, 0).astype(np.longdouble)) for a in (query, key)]
        if wide[0].ndim > 2 and wide[0].shape[-3] != wide[1].shape[-3]:
            wide[1] = np.repeat(wide[1], wide[0].shape[-3] // max(wide[1].shape[-3], 1), axis=-3)
        terms = wide[0] @ np.swapaxes(wide[1], -1, -2)
        return np.asarray((terms * max(1.0, float(scale or 1.0)) > limit).any(axis=-1))


_ATTENTION = Judge(
    unsettled=Allowance(
        "A score leaves the range on its way: whether it does depends on when the kernel multiplies by the scale, "
        "and on the order in which it sums.",
        _overflowing_rows,
    )
)


@ops.case("scaled_dot_product_attention", dtypes=FLOATS, judge=_ATTENTION)
def attention(d: Draw) -> Arguments:
    arguments, scores = _attention(d)
    causal = d.choose(OMIT, False, True)
    # A mask excludes the causal one.
    mask = d.choose(OMIT, None) if causal is True else d.maybe(lambda: _mask(d, scores), none=True)
    return {
        **arguments,
        "attn_mask": mask,
        "dropout_p": d.choose(OMIT, 0.0),
        "is_causal": causal,
        "scale": _scale(d),
    }


@ops.case("_scaled_dot_product_attention_math", dtypes=FLOATS, judge=_ATTENTION)
def attention_math(d: Draw) -> Arguments:
    return {**attention(d), "dropout_mask": d.choose(OMIT, None)}


@ops.case("_scaled_dot_product_flash_attention_for_cpu", dtypes=FLOATS, judge=_ATTENTION)
def flash_attention(d: Draw) -> Arguments:
    batch, heads, width = d.size(1, 3), d.size(1, 3), d.choose(4, 1, 8, 16)
    queries, keys = d.choose(4, 1, 2, 7, 33), d.choose(4, 1, 3, 8, 33)
    causal = d.choose(OMIT, False, True)
    # The dispatcher in front of the kernel turns bools into summands, and keeps strided tensors away.
    masks = ((queries, keys), (batch, heads, queries, keys), (1, 1, queries, keys), (batch, 1, queries, keys))
    given = d.maybe(lambda: d.tensor(d.choose(*masks), contiguous=True), none=True)
    mask = OMIT if causal is True else given
    return {
        "query": d.tensor((batch, heads, queries, width), contiguous=True),
        "key": d.tensor((batch, heads, keys, width), contiguous=True),
        "value": d.tensor((batch, heads, keys, width), contiguous=True),
        "dropout_p": d.choose(OMIT, 0.0),
        "is_causal": causal,
        "attn_mask": mask,
        "scale": _scale(d),
    }


@ops.case("_native_multi_head_attention", dtypes=FLOATS)
def multi_head_attention(d: Draw) -> Arguments:
    heads = d.choose(1, 2, 3)
    width = heads * d.choose(2, 4, 8)
    batch, length = d.size(1, 3), d.size(1, 5)
    source = d.tensor((batch, length, width), contiguous=True)
    return {
        "query": source,
        "key": source,
        "value": source,
        "embed_dim": width,
        "num_head": heads,
        "qkv_weight": d.tensor((3 * width, width), contiguous=True),
        "qkv_bias": d.tensor((3 * width,), contiguous=True),
        "proj_weight": d.tensor((width, width), contiguous=True),
        "proj_bias": d.tensor((width,), contiguous=True),
        "mask": d.choose(OMIT, None),
        "need_weights": d.maybe(d.boolean),
        "average_attn_weights": d.maybe(d.boolean),
    }


# Recurrent cells: one step


def _cell(d: Draw, gates: int) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Input, weights and biases of a cell, and the shape of its state."""
    inputs, hidden = d.size(1, 9), d.size(1, 9)
    batch = d.size(0, 5)
    biased = d.choose("both", "omitted", "none")

    def bias() -> Any:
        return d.tensor((gates * hidden,)) if biased == "both" else None if biased == "none" else OMIT

    arguments = {
        "input": d.tensor((batch, inputs)),
        "w_ih": d.tensor((gates * hidden, inputs)),
        "w_hh": d.tensor((gates * hidden, hidden)),
        "b_ih": bias(),
        "b_hh": bias(),
    }
    return arguments, (batch, hidden)


@ops.case("rnn_tanh_cell", "rnn_relu_cell", dtypes=FLOATS, judge=ACCUMULATES)
def rnn_cell(d: Draw) -> Arguments:
    arguments, state = _cell(d, 1)
    return {**arguments, "hx": d.tensor(state)}


def _gated(state: Array) -> Array:
    """The terms of a GRU's new state h′ = (1 - z)·n + z·h = n + z·(h - n), with |n| and z at most 1: either
    form is the documented one, and cancels where h and n are alike. No state grows beyond max(1, |h|)."""
    return np.where(np.isfinite(state), 2 + np.abs(state), np.nan)


@ops.case("gru_cell", dtypes=FLOATS, judge=Judge(terms=lambda arguments: _gated(arguments["hx"])))
def gru_cell(d: Draw) -> Arguments:
    arguments, state = _cell(d, 3)
    return {**arguments, "hx": d.tensor(state)}


@ops.case("lstm_cell", dtypes=FLOATS, judge=ACCUMULATES)
def lstm_cell(d: Draw) -> Arguments:
    arguments, state = _cell(d, 4)
    return {**arguments, "hx": [d.tensor(state), d.tensor(state)]}


# Recurrent layers: whole sequences


def _layers(d: Draw, gates: int, *, projects: bool = False) -> tuple[dict[str, Any], int, tuple[int, int, int]]:
    """Draw the shared arguments of a network's layers, the size of its input, and the number and sizes of its states.

    Args:
        d: The draw.
        gates: Number of gates of a cell.
        projects: Whether a layer's output may be projected to fewer numbers than its cell state has.
    """
    inputs, hidden, layers = d.size(1, 9), d.size(1, 9), d.choose(1, 1, 1, 2, 3)
    both, biased = d.boolean(), d.boolean()
    given = d.integer(1, hidden - 1) if projects and hidden > 1 and d.integer(0, 3) == 0 else hidden
    directions = 2 if both else 1
    parameters: list[TensorSpec] = []
    for layer in range(layers):
        width = inputs if layer == 0 else given * directions
        for _ in range(directions):
            shapes: list[tuple[int, ...]] = [(gates * hidden, width), (gates * hidden, given)]
            shapes += [(gates * hidden,)] * 2 if biased else []
            shapes += [(given, hidden)] if given < hidden else []
            parameters += [d.tensor(shape, domain=between(-1.0, 1.0), contiguous=True) for shape in shapes]
    shared = {
        "params": parameters,
        "has_biases": biased,
        "num_layers": layers,
        "dropout": 0.0,
        "train": d.boolean(),
        "bidirectional": both,
    }
    return shared, inputs, (layers * directions, given, hidden)


def _sequence(d: Draw, gates: int, *, projects: bool = False) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
    """Arguments, and the shapes of what a layer gives and of its cell state."""
    shared, inputs, (states, given, hidden) = _layers(d, gates, projects=projects)
    batch_first = d.boolean()
    batch, steps = d.size(1, 4), d.size(1, 5)
    shape = (batch, steps, inputs) if batch_first else (steps, batch, inputs)
    arguments = {**shared, "input": d.tensor(shape), "batch_first": batch_first}
    return arguments, [(states, batch, size) for size in (given, hidden)]


@ops.case("rnn_tanh.input", "rnn_relu.input", dtypes=FLOATS, judge=ACCUMULATES)
def rnn(d: Draw) -> Arguments:
    arguments, (state, _) = _sequence(d, 1)
    return {**arguments, "hx": d.tensor(state)}


def _last_layer(arguments: Mapping[str, Any]) -> Array:
    """The terms for the last layer's first states, both directions side by side: ``(batch, states)``."""
    first = _gated(arguments["hx"])[-2 if arguments["bidirectional"] else -1 :]
    return np.concatenate(list(first), axis=-1)


def _gru_terms(arguments: Mapping[str, Any]) -> tuple[Array, Array]:
    steps = arguments["input"].shape[1 if arguments["batch_first"] else 0]
    every = np.stack([_last_layer(arguments)] * steps, axis=1 if arguments["batch_first"] else 0)
    return every, _gated(arguments["hx"])


@ops.case("gru.input", dtypes=FLOATS, judge=Judge(terms=_gru_terms))
def gru(d: Draw) -> Arguments:
    arguments, (state, _) = _sequence(d, 3)
    return {**arguments, "hx": d.tensor(state)}


@ops.case("lstm.input", dtypes=FLOATS, judge=ACCUMULATES)
def lstm(d: Draw) -> Arguments:
    arguments, states = _sequence(d, 4, projects=True)
    return {**arguments, "hx": [d.tensor(state) for state in states]}


# Packed sequences: each step holds the sequences that last so long


def _packed(d: Draw, gates: int, *, projects: bool = False) -> tuple[dict[str, Any], list[tuple[int, int, int]]]:
    """Draw packed arguments; see `_sequence`."""
    shared, inputs, (states, given, hidden) = _layers(d, gates, projects=projects)
    batch, steps, shortest = d.size(1, 4), d.size(1, 5), d.choose(1, 2, 4)
    rows = sum(max(batch - step, min(shortest, batch)) for step in range(steps))
    batch_sizes = d.tensor((steps,), "int64", ("packed", batch, min(shortest, batch)), contiguous=True)
    arguments = {**shared, "data": d.tensor((rows, inputs)), "batch_sizes": batch_sizes}
    return arguments, [(states, batch, size) for size in (given, hidden)]


@ops.case("rnn_tanh.data", "rnn_relu.data", dtypes=FLOATS, judge=ACCUMULATES)
def rnn_packed(d: Draw) -> Arguments:
    arguments, (state, _) = _packed(d, 1)
    return {**arguments, "hx": d.tensor(state)}


def _packed_gru_terms(arguments: Mapping[str, Any]) -> tuple[Array, Array]:
    rows = [np.arange(int(size)) for size in arguments["batch_sizes"]]
    return _last_layer(arguments)[np.concatenate(rows)], _gated(arguments["hx"])


@ops.case("gru.data", dtypes=FLOATS, judge=Judge(terms=_packed_gru_terms))
def gru_packed(d: Draw) -> Arguments:
    arguments, (state, _) = _packed(d, 3)
    return {**arguments, "hx": d.tensor(state)}


@ops.case("lstm.data", dtypes=FLOATS, judge=ACCUMULATES)
def lstm_packed(d: Draw) -> Arguments:
    arguments, states = _packed(d, 4, projects=True)
    return {**arguments, "hx": [d.tensor(state) for state in states]}


@ops.case("_pack_padded_sequence", dtypes=ALL, judge=EXACT)
def pack(d: Draw) -> Arguments:
    batch, steps, shortest = d.size(1, 5), d.size(1, 7), d.choose(1, 2)
    batch_first = d.boolean()
    lead = (batch, steps) if batch_first else (steps, batch)
    # Longest first; none longer than the input.
    lengths = ("packed", d.integer(1, steps), min(shortest, steps))
    return {
        "input": d.tensor((*lead, *d.shape(0, 3, min_size=1, max_size=4))),
        "lengths": d.tensor((batch,), "int64", lengths if lengths[1] >= lengths[2] else ("packed", steps, 1)),
        "batch_first": batch_first,
    }


@ops.case("_pad_packed_sequence", dtypes=ALL, judge=EXACT)
def pad_packed(d: Draw) -> Arguments:
    batch, steps, shortest = d.size(1, 4), d.size(1, 5), d.choose(1, 2, 4)
    rows = sum(max(batch - step, min(shortest, batch)) for step in range(steps))
    batch_sizes = d.tensor((steps,), "int64", ("packed", batch, min(shortest, batch)), contiguous=True)
    return {
        "data": d.tensor((rows, *d.shape(0, 2, max_size=4))),
        "batch_sizes": batch_sizes,
        "batch_first": d.boolean(),
        "padding_value": d.choose(0, 1, 0.0, 3, -1.5),
        # Without a length, or with one below 1, that of the longest sequence.
        "total_length": d.choose(steps, steps, steps + 3, 0, -1),
    }
