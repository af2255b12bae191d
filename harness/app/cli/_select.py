"""Options that choose rows of a record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from harness.compare import Outcome, Stage
from harness.record import Selection

_Command = TypeVar("_Command", bound=Callable[..., Any])

BLAMES = ("converter", "backend", "pytorch", "spec", "unknown")

_OPTIONS: dict[str, tuple[str, Any, str]] = {
    "overload": ("--op", None, "Operator, packet or glob: celu, aten::add.Tensor, 'aten.upsample_*'."),
    "backend": ("--backend", None, "Backend: ort-cpu."),
    "converter": ("--converter", None, "Converter: dynamo."),
    "dtype": ("--dtype", None, "dtype: float16."),
    "family": ("--family", None, "Family of operator cases: pooling."),
    "blame": ("--blame", click.Choice(BLAMES), "Whose defect."),
    "outcome": (
        "--outcome",
        click.Choice([str(outcome) for outcome in Outcome if outcome.is_failure]),
        "How the case ended.",
    ),
    "stage": ("--stage", click.Choice([str(stage) for stage in Stage]), "Where it ended."),
}


def selecting(*names: str) -> Callable[[_Command], _Command]:
    """Options for the columns `names`, each repeatable, given to the function as `selection`."""

    def decorate(function: _Command) -> _Command:
        @functools.wraps(function)
        def selected(**given: Any) -> Any:
            chosen = {name: given.pop(f"select_{name}") for name in names}
            return function(selection=Selection(**chosen), **given)

        command: Callable[..., Any] = selected
        for name in reversed(names):
            flag, kind, text = _OPTIONS[name]
            metavar = "NAME" if kind is None else None
            option = click.option(
                flag, f"select_{name}", multiple=True, type=kind, metavar=metavar, help=f"{text} Repeatable."
            )
            command = option(command)
        return cast(_Command, command)

    return decorate
