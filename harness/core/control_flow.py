"""PyTorch's operators that take functions (`torch.cond`, `while_loop`, `scan`), as operators with a schema.

The dispatcher has no schema for them, since an argument is a function. Here the functions are named by their source,
which is one of a few: ``control_flow.cond.default(pred, x, y, then="x + y", otherwise="x * y")``. Calls are made
through PyTorch's own functions, so that what an exporter captures is what it captures of a user's model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop

from harness.core.torch_operators import FLOW, OpOverload


def _functions(arguments: str, *bodies: str) -> dict[str, Callable[..., Any]]:
    """Body → the function of it."""
    return {body: eval(f"lambda {arguments}: {body}", {"torch": torch}) for body in bodies}


#: What a branch makes of two tensors, or of two that it has to bring to one dtype or shape first.
BRANCHES = _functions(
    "x, y",
    *("x + y", "x * y", "y - x", "torch.maximum(x, y)", "torch.where(x > y, x, y)", "x + y.flip(0)"),
    *("torch.cond((x > y).any(), lambda x, y: x - y, lambda x, y: y - x, (x, y))",),
)
#: What a round of a loop makes of the tensor that it carries.
ROUNDS = _functions("x", "x * 0.5", "x + 1", "-x", "x * x", "x - x.amax()", "x.flip(0)")
#: What a step makes of what it carries and of a slice.
STEPS = _functions("c, x", "c + x", "c * 0.5 + x", "torch.maximum(c, x)", "x - c", "x * 2")


def cond(pred: torch.Tensor, x: torch.Tensor, y: torch.Tensor, then: str, otherwise: str) -> torch.Tensor:
    """One of two branches."""
    chosen: torch.Tensor = torch.cond(pred, BRANCHES[then], BRANCHES[otherwise], (x, y))
    return chosen


def repeat(x: torch.Tensor, steps: int, body: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A round so often; the number of rounds made, and what came of `x`."""
    made = ROUNDS[body]

    def goes_on(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return i < steps

    def round_made(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, made(x)

    start = torch.zeros((), dtype=torch.int64)
    i, x = torch_while_loop(goes_on, round_made, (start, x))  # type: ignore[no-untyped-call]
    return i, x


def repeat_while(x: torch.Tensor, limit: float, most: int, body: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A round as long as an element is above `limit`, but no more than so many."""
    made = ROUNDS[body]

    def goes_on(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (x > limit).any() & (i < most)

    def round_made(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, made(x)

    start = torch.zeros((), dtype=torch.int64)
    i, x = torch_while_loop(goes_on, round_made, (start, x))  # type: ignore[no-untyped-call]
    return i, x


def scan(
    init: torch.Tensor, xs: torch.Tensor, carry: str, result: str, dim: int = 0, reverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """A step for each slice; what is carried in the end, and the steps' results, stacked."""
    carried, given = STEPS[carry], STEPS[result]

    def step(c: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carried(c, x), given(c, x)

    found: tuple[torch.Tensor, torch.Tensor] = torch_scan(step, init, xs, dim=dim, reverse=reverse)
    return found


@dataclass(frozen=True)
class FlowOperator:
    """An operator of this file: what to call, and how a person would write the call.

    Attributes:
        schema: Its arguments and results, as the dispatcher writes them.
        source: Its call, with names of arguments in braces: what each is written as.
        imports: Lines that the source needs.
    """

    name: str
    schema: str
    function: Callable[..., Any]
    source: str
    imports: tuple[str, ...] = ()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call PyTorch's function, which compiles itself where nothing captures it: that is left out."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return self.function(*arguments, **keywords)
        with torch.compiler.set_stance("force_eager"):
            return self.function(*arguments, **keywords)

    def __str__(self) -> str:
        return self.name

    @property
    def overload(self) -> OpOverload:
        """The operator of the dispatcher that has the schema."""
        packet, overload = self.name.split(".")[1:]
        found: OpOverload = getattr(getattr(getattr(torch.ops, FLOW), packet), overload)
        return found

    def written(self, arguments: Mapping[str, str], bodies: Mapping[str, Any]) -> str:
        """The call as source, of what its other arguments are written as and of the bodies of its functions."""
        usual = {a.name: repr(a.default_value) for a in self.overload._schema.arguments if a.has_default_value()}
        return self.source.format(**{**usual, **arguments, **bodies})


_LOOP = "from torch._higher_order_ops.while_loop import while_loop"
_START = "(torch.zeros((), dtype=torch.int64), {x})"
OPERATORS = {
    operator.name: operator
    for operator in (
        FlowOperator(
            f"{FLOW}.cond.default",
            "cond(Tensor pred, Tensor x, Tensor y, str then, str otherwise) -> Tensor",
            cond,
            "torch.cond({pred}, lambda x, y: {then}, lambda x, y: {otherwise}, ({x}, {y}))",
        ),
        FlowOperator(
            f"{FLOW}.while_loop.default",
            "while_loop(Tensor x, int steps, str body) -> (Tensor, Tensor)",
            repeat,
            f"while_loop(lambda i, x: i < {{steps}}, lambda i, x: (i + 1, {{body}}), {_START})",
            (_LOOP,),
        ),
        FlowOperator(
            f"{FLOW}.while_loop.values",
            "while_loop.values(Tensor x, float limit, int most, str body) -> (Tensor, Tensor)",
            repeat_while,
            "while_loop(lambda i, x: (x > {limit}).any() & (i < {most}), lambda i, x: (i + 1, {body}), " + _START + ")",
            (_LOOP,),
        ),
        FlowOperator(
            f"{FLOW}.scan.default",
            "scan(Tensor init, Tensor xs, str carry, str result, int dim=0, bool reverse=False) -> (Tensor, Tensor)",
            scan,
            "scan(lambda c, x: ({carry}, {result}), {init}, {xs}, dim={dim}, reverse={reverse})",
            ("from torch._higher_order_ops.scan import scan",),
        ),
    )
}

_LIBRARY = torch.library.Library(FLOW, "DEF")  # type: ignore[no-untyped-call]
for _operator in OPERATORS.values():
    _LIBRARY.define(_operator.schema)  # type: ignore[no-untyped-call]
    _name = _operator.schema.partition("(")[0]
    _LIBRARY.impl(_name, _operator.function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
