"""`conformance explain`: an operator's support in PyTorch, ONNX, converters and backends."""

from __future__ import annotations

import click

from harness.app.cli._shared import (
    emit,
    example,
    json_option,
    names_option,
    print_json,
    require_backends,
    require_converters,
    say_step,
    statuses,
)

SECTION = "look"


@click.command(
    short_help="Explain an operator on its way to ONNX.",
    epilog=example(
        "conformance explain aten::celu",
        "conformance explain max_unpool2d --examples 40",
        "conformance explain upsample_bilinear2d.vec --backend ort-cpu --json",
    )
    + statuses("0 if every available converter has a conversion; 1 if one is missing"),
)
@click.argument("operator")
@click.option("--examples", type=click.IntRange(min=1), default=10, show_default=True, help="Calls to draw and run.")
@names_option("--backend", "backends", "Use only this backend. Repeatable. Default: all.")
@names_option("--converter", "converters", "Use only this converter. Repeatable. Default: all.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    operator: str,
    examples: int,
    backends: tuple[str, ...],
    converters: tuple[str, ...],
    as_json: bool,
) -> None:
    """Explain an operator: its schema, its ONNX counterpart, and its support in converters and backends.

    OPERATOR is an operator of ATen or one overload of it: celu, aten::celu, aten.celu.default.

    With --json: operator, overloads, onnx, candidate, emits, unavailable, missing.
    """
    # PyTorch takes seconds to import.
    from harness.core.overloads import UnknownOperator
    from harness.core.plugins import UnknownName
    from harness.explain.explanation import explain_operator
    from harness.explain.render import render

    say_step(f"draw calls of {operator} and run them")
    try:
        require_backends(backends)
        require_converters(converters)
        found = explain_operator(operator, examples=examples, backend_names=backends, converter_names=converters)
    except (UnknownOperator, UnknownName) as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json("explain", found.to_data())
    else:
        emit(*render(found))
    ctx.exit(int(bool(found.missing)))
