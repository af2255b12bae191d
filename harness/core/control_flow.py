"""PyTorch's operators that take functions (`torch.cond`, `while_loop`, `scan`), as operators with a schema.

The dispatcher has no schema for them, since an argument is a function. Here the functions are named by their source,
which is one of a few: ``control_flow.cond.default(pred, x, y, then="x + y", otherwise="x * y")``. This file needs no
PyTorch; `harness.core.control_flow_calls` makes the calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The namespace of these operators.
FLOW = "control_flow"
#: Expressions of two tensors `x` and `y` that a branch of `cond` may compute.
BRANCHES = (
    *("x + y", "x * y", "y - x", "torch.maximum(x, y)", "torch.where(x > y, x, y)", "x + y.flip(0)"),
    "torch.cond((x > y).any(), lambda x, y: x - y, lambda x, y: y - x, (x, y))",
    *("(x - y).relu() + (y - x).relu()", "torch.maximum(x - y, y - x) * x", "(x - y).unsqueeze(0).squeeze(0)"),
)
#: Expressions of the carried tensor `x` that one iteration of a loop may compute.
ROUNDS = (
    *("x * 0.5", "x + 1", "-x", "x * x", "x - x.amax()", "x.flip(0)"),
    *("(x + 1).relu() * 0.5", "torch.maximum(x, -x) + 1", "x.flip(0).flip(0) - 1", "(-x).reshape(-1).reshape(x.shape)"),
)
#: Expressions of the carried tensor `c` and a slice `x` that one step of `scan` may compute.
STEPS = (
    *("c + x", "c * 0.5 + x", "torch.maximum(c, x)", "x - c", "x * 2"),
    *("c - torch.maximum(c, x)", "(c - x).relu() + x", "c * x - c"),
)


@dataclass(frozen=True)
class FlowOperator:
    """A control-flow operator and how to write a call of it.

    Attributes:
        schema: Its arguments and results in the dispatcher's notation.
        source: Python source of a call, with argument names in braces.
        functions: Names in `source` that a script must import (`harness.core.torch_operators.FLOW_IMPORTS`).
        defaults: Argument → source to use when a call omits it.
    """

    name: str
    schema: str
    source: str
    functions: tuple[str, ...] = ()

    defaults: Mapping[str, str] = field(default_factory=dict)

    def format_call(self, arguments: Mapping[str, str], bodies: Mapping[str, str]) -> str:
        """Return the Python source of a call, given the source of its arguments and of its function bodies."""
        return self.source.format(**{**self.defaults, **arguments, **bodies})


_ROUND = "lambda i, x: (i + 1, {body}), (torch.zeros((), dtype=torch.int64), {x})"
#: Overload → operator.
FLOW_OPERATORS = {
    operator.name: operator
    for operator in (
        FlowOperator(
            f"{FLOW}.cond.default",
            "cond(Tensor pred, Tensor x, Tensor y, str then, str otherwise) -> Tensor",
            "torch.cond({pred}, lambda x, y: {then}, lambda x, y: {otherwise}, ({x}, {y}))",
        ),
        FlowOperator(
            f"{FLOW}.while_loop.default",
            "while_loop(Tensor x, int steps, str body) -> (Tensor, Tensor)",
            f"while_loop(lambda i, x: i < {{steps}}, {_ROUND})",
            ("while_loop",),
        ),
        FlowOperator(
            f"{FLOW}.while_loop.values",
            "while_loop.values(Tensor x, float limit, int most, str body) -> (Tensor, Tensor)",
            f"while_loop(lambda i, x: (x > {{limit}}).any() & (i < {{most}}), {_ROUND})",
            ("while_loop",),
        ),
        FlowOperator(
            f"{FLOW}.scan.default",
            "scan(Tensor init, Tensor xs, str carry, str result, int dim=0, bool reverse=False) -> (Tensor, Tensor)",
            "scan(lambda c, x: ({carry}, {result}), {init}, {xs}, dim={dim}, reverse={reverse})",
            ("scan",),
            {"dim": "0", "reverse": "False"},
        ),
    )
}


def is_flow_operator(overload: str) -> bool:
    """Whether an overload is a control-flow operator."""
    return overload.partition(".")[0] == FLOW
