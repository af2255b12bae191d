"""Control flow as operators that take functions: `torch.cond`, `while_loop` and `scan`.

See `harness.core.control_flow` for what the functions are. Branches must give one layout, and a round and a step that
of what they take: where it is not row-major, few of them do.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.core.control_flow import BRANCHES, ROUNDS, STEPS
from harness.core.dtypes import ALL, FLOATS, NUMBERS, WIDE_UNSIGNED
from harness.core.invocation import TensorSpec
from harness.generate.draw import Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("control_flow")
#: Beyond what adds up two dtypes.
_MOST = (*ALL, *WIDE_UNSIGNED)
#: What takes no truth values, as PyTorch's subtraction, or gives another dtype than it takes.
_OF_NUMBERS = ("-", "+ 1", "x * 2")
_OF_FLOATS = "0.5"


def _functions(d: Draw, bodies: Iterable[str]) -> list[str]:
    """Return the bodies that keep the invocation's dtype."""
    lacking = (_OF_FLOATS,) if d.dtype in NUMBERS else (_OF_FLOATS, *_OF_NUMBERS)
    return [body for body in bodies if d.dtype in FLOATS or not any(part in body for part in lacking)]


@ops.case("control_flow.cond.default", dtypes=ALL)
def cond(d: Draw) -> Arguments:
    shape = d.shape(0, 5)
    x, y = shape, d.broadcastable(shape)
    if d.boolean():
        x, y = y, x
    # Any number may decide; one is expected.
    decides = d.choose("bool", "bool", "bool", d.choose(*NUMBERS))
    branches = [body for body in _functions(d, BRANCHES) if y or "flip" not in body]
    return {
        "pred": d.tensor(d.choose((), (), (1,), (1,) * d.integer(2, 5)), decides),
        "x": d.tensor(x, contiguous=True),
        "y": d.tensor(y, d.other_dtype("float32", "int64"), contiguous=True),
        "then": d.choose(*branches),
        "otherwise": d.choose(*branches),
    }


def _round(d: Draw) -> tuple[TensorSpec, str]:
    """Draw the value that a loop carries, and the body of a round."""
    x = d.tensor(d.shape(0, 5), contiguous=True)
    bodies = _functions(d, ROUNDS)
    return x, d.choose(*(b for b in bodies if (x.shape or "flip" not in b) and (x.numel or "amax" not in b)))


@ops.case("control_flow.while_loop.default", dtypes=_MOST)
def repeat(d: Draw) -> Arguments:
    x, body = _round(d)
    return {"x": x, "steps": d.choose(2, 0, 1, 3, 7, -1), "body": body}


@ops.case("control_flow.while_loop.values", dtypes=_MOST)
def repeat_while(d: Draw) -> Arguments:
    x, body = _round(d)
    return {"x": x, "limit": d.choose(0.5, 0.0, 1.0, -1.0, 100.0), "most": d.choose(4, 0, 1, 8, -1), "body": body}


@ops.case("control_flow.scan.default", dtypes=ALL)
def scan(d: Draw) -> Arguments:
    shape = d.shape(0, 4)
    rank = len(shape) + 1
    dim = d.dim(rank)
    place = dim % rank
    length = d.choose(3, 1, 2, 8, 17)
    steps = _functions(d, STEPS)
    return {
        "init": d.tensor(shape, contiguous=True),
        "xs": d.tensor((*shape[:place], length, *shape[place:])),
        # What is carried keeps its layout, which a result has of the first operand.
        "carry": d.choose(*(step for step in steps if not step.startswith("x"))),
        "result": d.choose(*steps),
        "dim": dim if place else d.maybe(lambda: dim),
        "reverse": d.maybe(d.boolean),
    }
