"""Recurrent layers between others, the same layer twice among them."""

from __future__ import annotations

from harness.core.invocation import Result, Weight
from harness.generate.programs import ProgramDraw, pattern

#: Layer → the gates of a cell.
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _parameters(p: ProgramDraw, kind: str, inputs: int, hidden: int, directions: int, biased: bool) -> list[Weight]:
    rows = _GATES[kind] * hidden
    shapes: list[tuple[int, ...]] = [(rows, inputs), (rows, hidden), *([(rows,), (rows,)] if biased else [])]
    return [p.weight(shape, domain=("range", -1.0, 1.0)) for _ in range(directions) for shape in shapes]


@pattern("recurrent", source="recurrent layers of exporters; onnxruntime transpose_optimizer, DeepCpuLstm")
def recurrent(p: ProgramDraw) -> list[Result]:
    """A recurrent layer, perhaps once more on its own result, and a linear layer of all steps or of the last."""
    kind = p.choose("lstm", "lstm", "gru", "rnn_tanh", "rnn_relu")
    batch, length, hidden = p.choose(1, 2), p.choose(1, 2, 3), 2
    batch_first, directions, biased = p.choose(False, True), p.choose(1, 1, 2), p.usually(True, False)
    width = hidden * directions
    parameters = _parameters(p, kind, width, hidden, directions, biased)
    zeros = p.number(0.0, (directions, batch, hidden))
    start = p.usually(zeros, p.input((directions, batch, hidden), domain=("range", -1.0, 1.0)))

    def layer(value: object) -> Result:
        state = {"hx": [start, start]} if kind == "lstm" else {"hx": start}
        return p.call(
            f"aten.{kind}.input",
            input=value,
            params=parameters,
            has_biases=biased,
            num_layers=1,
            dropout=0.0,
            train=False,
            bidirectional=directions == 2,
            batch_first=batch_first,
            **state,
        )

    y = layer(p.input((batch, length, width) if batch_first else (length, batch, width), domain=("range", -2.0, 2.0)))
    state = Result(y.call, 1)
    if p.sometimes():
        y = layer(y)
    if p.sometimes():
        y = p.call("aten.select.int", self=y, dim=1 if batch_first else 0, index=-1)
    z = p.call("aten.linear.default", input=y, weight=p.weight((3, width)), bias=p.weight((3,)))
    return [z, state] if p.sometimes() else [z]
