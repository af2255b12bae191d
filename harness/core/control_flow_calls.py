"""Calls of control-flow operators through PyTorch's public functions, as an exporter would capture them.

Importing this module registers the operators' schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.control_flow import BRANCHES, FLOW, FLOW_OPERATORS, ROUNDS, STEPS
from harness.core.torch_operators import flow_function


def _functions(arguments: str, bodies: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Return a function for each body expression."""
    return {body: eval(f"lambda {arguments}: {body}", {"torch": torch}) for body in bodies}


_BRANCHES = _functions("x, y", BRANCHES)
_ROUNDS = _functions("x", ROUNDS)
_STEPS = _functions("c, x", STEPS)


def _call_cond(pred: torch.Tensor, x: torch.Tensor, y: torch.Tensor, then: str, otherwise: str) -> torch.Tensor:
    result: torch.Tensor = torch.cond(pred, _BRANCHES[then], _BRANCHES[otherwise], (x, y))
    return result


def _call_while_loop(
    condition: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, body: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the number of iterations and the final `x`."""
    compute = _ROUNDS[body]

    def iterate(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, compute(x)

    start = torch.zeros((), dtype=torch.int64)
    result: tuple[torch.Tensor, torch.Tensor] = flow_function("while_loop")(condition, iterate, (start, x))
    return result


def _repeat(x: torch.Tensor, steps: int, body: str) -> tuple[torch.Tensor, torch.Tensor]:
    return _call_while_loop(lambda i, x: i < steps, x, body)


def _repeat_while_above(x: torch.Tensor, limit: float, most: int, body: str) -> tuple[torch.Tensor, torch.Tensor]:
    return _call_while_loop(lambda i, x: (x > limit).any() & (i < most), x, body)


def _call_scan(
    init: torch.Tensor, xs: torch.Tensor, carry: str, result: str, dim: int = 0, reverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the final carried value and the results of all steps, stacked."""
    compute_carry, compute_result = _STEPS[carry], _STEPS[result]

    def step(c: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return compute_carry(c, x), compute_result(c, x)

    scanned: tuple[torch.Tensor, torch.Tensor] = flow_function("scan")(step, init, xs, dim=dim, reverse=reverse)
    return scanned


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{FLOW}.cond.default": _call_cond,
    f"{FLOW}.while_loop.default": _repeat,
    f"{FLOW}.while_loop.values": _repeat_while_above,
    f"{FLOW}.scan.default": _call_scan,
}


@dataclass(frozen=True)
class FlowCall:
    """The callable of a control-flow operator.

    Raises:
        LookupError: The operator does not exist, or this PyTorch lacks its function.
    """

    name: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call PyTorch's function; outside of a capture it runs eagerly instead of compiling itself."""
        function = _FUNCTIONS[self.name]
        if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
            return function(*arguments, **keywords)
        with torch.compiler.set_stance("force_eager"):
            return function(*arguments, **keywords)

    def __str__(self) -> str:
        return self.name


_LIBRARY = torch.library.Library(FLOW, "DEF")  # type: ignore[no-untyped-call]
for _operator in FLOW_OPERATORS.values():
    _LIBRARY.define(_operator.schema)  # type: ignore[no-untyped-call]
    _name = _operator.schema.partition("(")[0]
    _LIBRARY.impl(_name, _FUNCTIONS[_operator.name], "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
