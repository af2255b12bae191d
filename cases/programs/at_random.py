"""Calls that draw at random, each for itself."""

from __future__ import annotations

from harness.core.invocation import Result
from harness.generate.programs import ProgramDraw, pattern

#: So many that two draws of a fair coin agree nowhere in the lifetime of the universe.
_SIZE = 256


@pattern("drawn-twice", source="onnx_ir common_subexpression_elimination; onnxscript constant folding")
def drawn_twice(p: ProgramDraw) -> list[Result]:
    """The same random call twice: what it gives the second time is something else."""
    plain = p.input((_SIZE,), dtype="float32", domain=("range", 1.0, 1.0))
    half = ("range", 0.5, 0.5)
    kind = p.choose("dropout", "bernoulli", "bernoulli.p", "rand_like", "randn_like", "multinomial", "native_dropout")
    source = p.call("aten.clone.default", self=plain)
    if p.sometimes() and kind in ("dropout", "bernoulli"):
        held: object = p.weight((_SIZE,), dtype="float32", domain=half if kind == "bernoulli" else ("range", 1.0, 1.0))
    else:
        held = p.call("aten.mul.Scalar", self=source, other=0.5) if kind == "bernoulli" else source

    def drawn() -> Result:
        if kind == "dropout":
            return p.call("aten.dropout.default", input=held, p=0.5, train=True)
        if kind == "native_dropout":
            return p.call("aten.native_dropout.default", input=held, p=0.5, train=True)
        if kind == "multinomial":
            return p.call("aten.multinomial.default", self=held, num_samples=_SIZE, replacement=True)
        if kind == "bernoulli.p":
            return p.call("aten.bernoulli.p", self=held, p=0.5)
        return p.call(f"aten.{kind}.default", self=held)

    differ = p.call("aten.ne.Tensor", self=drawn(), other=drawn())
    return [p.call("aten.any.default", self=differ)]
