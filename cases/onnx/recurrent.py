"""Recurrent layers and operators that have a body."""

from __future__ import annotations

from typing import Any

from harness.core.onnx_operators import text_type
from harness.generate.draw import OMIT, Draw, between
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("recurrent")


def _layer(d: Draw, gates: int, *, has_cell: bool = False) -> dict[str, Any]:
    assert d.schema is not None
    length, batch, inputs, hidden = d.choose(3, 1, 4), d.size(1, 3), d.choose(2, 1, 3), d.choose(2, 1, 3)
    direction = d.choose(OMIT, "forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    layout = d.flag()
    is_batch_first = layout == 1 and d.schema.attribute("layout") is not None
    state = (batch, ways, hidden) if is_batch_first else (ways, batch, hidden)
    unit = between(-1.0, 1.0)
    first: dict[str, Any] = {
        "X": d.tensor((batch, length, inputs) if is_batch_first else (length, batch, inputs), domain=unit),
        "W": d.tensor((ways, gates * hidden, inputs), domain=unit),
        "R": d.tensor((ways, gates * hidden, hidden), domain=unit),
        "B": d.maybe(lambda: d.tensor((ways, 2 * gates * hidden), domain=unit)),
        "sequence_lens": d.choose(OMIT, OMIT, "given"),
        "initial_h": d.maybe(lambda: d.tensor(state, domain=unit)),
        "hidden_size": hidden,
        "direction": direction,
        "layout": layout,
        "clip": d.choose(OMIT, OMIT, 0.5),
    }
    if first["sequence_lens"] == "given":
        first["sequence_lens"] = d.tensor((batch,), "int32", ("range", 1, length))
    if has_cell:
        first["initial_c"] = d.maybe(lambda: d.tensor(state, domain=unit))
        first["P"] = d.choose(OMIT, OMIT, "given")
        if first["P"] == "given":
            first["P"] = d.tensor((ways, 3 * hidden), domain=unit)
    return first


@ops.case("RNN", since=7)
def recurrent(d: Draw) -> Arguments:
    return _layer(d, 1)


@ops.case("GRU", since=7)
def gated(d: Draw) -> Arguments:
    return {**_layer(d, 3), "linear_before_reset": d.flag()}


@ops.case("LSTM", since=7)
def long_short(d: Draw) -> Arguments:
    return {**_layer(d, 4, has_cell=True), "input_forget": d.flag()}


ops.undrawn("RNN.1", "The text of the first version is that of version 7, and no runtime here has it.")
ops.undrawn("GRU.1", "The text of the first version is that of version 3, and no runtime here has it.")
ops.undrawn("GRU.3", "The text of version 3 is that of version 7, and no runtime here has it.")
ops.undrawn("LSTM.1", "The text of the first version is that of version 7, and no runtime here has it.")

#: What a body may compute of a tensor `x`.
_ROUNDS = ("Add(x, x)", "Mul(x, x)", "Neg(x)", "Identity(x)", "Sub(x, x)")


def _bodied_dtype(d: Draw) -> str:
    return d.choose("float32", "int64", "float64", "float16")


@ops.case("If")
def branch(d: Draw) -> Arguments:
    kind = text_type(_bodied_dtype(d))
    size = d.choose(2, 1, 3)

    def body(name: str, size: int) -> str:
        # The text form takes whole numbers for float16.
        number = d.choose("1", "2", "4") if kind in ("int64", "float16") else d.choose("0.5", "2.5", "4.0")
        values = ", ".join([number] * size)
        return f"{name} () => ({kind}[{size}] y) {{ y = Constant <value = {kind}[{size}] {{{values}}}> () }}"

    return {
        "cond": d.tensor(d.choose((), (1,)), "bool"),
        "then_branch": body("then_branch", size),
        # Both branches may give tensors of different sizes.
        "else_branch": body("else_branch", d.choose(size, size, size + 1)),
        "outputs": 1,
    }


@ops.case("Loop", about="v_initial")
def loop(d: Draw) -> Arguments:
    size = d.choose(2, 1, 3)
    dtype = d.dtype if d.dtype in ("float32", "float64", "float16", "int64", "int32") else "float32"
    kind = text_type(dtype)
    keeps_going = d.choose("Identity(go)", "Identity(go)", "Less(i, two)")
    scans = d.choose(True, False)
    two = "two = Constant <value = int64[1] {2}> ()" if "two" in keeps_going else ""
    more = f", {kind}[{size}] z" if scans else ""
    second = f"z = {d.choose(*_ROUNDS)}" if scans else ""
    body = (
        f"body (int64 i, bool go, {kind}[{size}] x) => (bool going, {kind}[{size}] y{more}) "
        f"{{ {two} going = {keeps_going} y = {d.choose(*_ROUNDS)} {second} }}"
    )
    return {
        "M": d.choose(3, 1, 0, 5),
        "cond": d.tensor((), "bool", ("range", 0, 1)),
        "v_initial": [d.tensor((size,), dtype, domain=("any",))],
        "body": body.replace("int64[1] {2}", "int64 {2}"),
        "outputs": 2 if scans else 1,
    }


@ops.case("Scan", since=9, about="initial_state_and_scan_inputs")
def scan(d: Draw) -> Arguments:
    size, length = d.choose(2, 1, 3), d.choose(3, 1, 4)
    dtype = d.dtype if d.dtype in ("float32", "float64", "float16", "int64", "int32") else "float32"
    kind = text_type(dtype)
    axis = d.choose(OMIT, 0, 1)
    carried, result = d.choose("Add(c, x)", "Mul(c, x)", "Sub(x, c)"), d.choose("Add(c, x)", "Identity(c)", "Neg(x)")
    body = (
        f"body ({kind}[{size}] c, {kind}[{size}] x) => ({kind}[{size}] d, {kind}[{size}] z) "
        f"{{ d = {carried} z = {result} }}"
    )
    return {
        "initial_state_and_scan_inputs": [
            d.tensor((size,), dtype),
            d.tensor((size, length) if axis == 1 else (length, size), dtype),
        ],
        "body": body,
        "num_scan_inputs": 1,
        "scan_input_axes": OMIT if axis is OMIT else [axis],
        "scan_input_directions": d.choose(OMIT, [0], [1]),
        "scan_output_directions": d.choose(OMIT, [0], [1]),
        "scan_output_axes": d.choose(OMIT, [0], [1]),
        "outputs": 2,
    }


ops.undrawn("Scan.8", "The first version scans batches by lengths; ONNX Runtime alone has it.")
