"""The calls of operators that take functions, through PyTorch's own: what an exporter captures of a user's model.

Importing this registers their schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.core.control_flow import BRANCHES, FLOW, FLOW_OPERATORS, ROUNDS, STEPS
from harness.core.torch_operators import flow_function


def _functions(arguments: str, bodies: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Body → the function of it."""
    return {body: eval(f"lambda {arguments}: {body}", {"torch": torch}) for body in bodies}


_BRANCHES = _functions("x, y", BRANCHES)
_ROUNDS = _functions("x", ROUNDS)
_STEPS = _functions("c, x", STEPS)


def _cond(pred: torch.Tensor, x: torch.Tensor, y: torch.Tensor, then: str, otherwise: str) -> torch.Tensor:
    chosen: torch.Tensor = torch.cond(pred, _BRANCHES[then], _BRANCHES[otherwise], (x, y))
    return chosen


def _looped(
    goes_on: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], x: torch.Tensor, body: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The number of rounds made, and what came of `x`."""
    made = _ROUNDS[body]

    def round_made(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, made(x)

    start = torch.zeros((), dtype=torch.int64)
    found: tuple[torch.Tensor, torch.Tensor] = flow_function("while_loop")(goes_on, round_made, (start, x))
    return found


def _repeated(x: torch.Tensor, steps: int, body: str) -> tuple[torch.Tensor, torch.Tensor]:
    return _looped(lambda i, x: i < steps, x, body)


def _repeated_while(x: torch.Tensor, limit: float, most: int, body: str) -> tuple[torch.Tensor, torch.Tensor]:
    return _looped(lambda i, x: (x > limit).any() & (i < most), x, body)


def _scanned(
    init: torch.Tensor, xs: torch.Tensor, carry: str, result: str, dim: int = 0, reverse: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is carried in the end, and the steps' results, stacked."""
    carried, given = _STEPS[carry], _STEPS[result]

    def step(c: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carried(c, x), given(c, x)

    found: tuple[torch.Tensor, torch.Tensor] = flow_function("scan")(step, init, xs, dim=dim, reverse=reverse)
    return found


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{FLOW}.cond.default": _cond,
    f"{FLOW}.while_loop.default": _repeated,
    f"{FLOW}.while_loop.values": _repeated_while,
    f"{FLOW}.scan.default": _scanned,
}


@dataclass(frozen=True)
class FlowCall:
    """What to call for an operator.

    Raises:
        LookupError: there is no such operator, or no such function for it.
    """

    name: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call PyTorch's function, which compiles itself where nothing captures it: that is left out."""
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
