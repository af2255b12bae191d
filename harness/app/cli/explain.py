"""`conformance explain`: what an operator has on its way to ONNX, and what is missing."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import (
    emit,
    example,
    file_option,
    find_run,
    json_option,
    line,
    names_option,
    print_json,
    require_backends,
    require_converters,
    say_step,
    statuses,
)
from harness.record import layout
from harness.record.run_info import newest

SECTION = "look"


@click.command(
    short_help="Explain an operator on its way to ONNX.",
    epilog=example(
        "conformance explain aten::celu",
        "conformance explain max_unpool2d --out my_rules.py",
        "conformance explain upsample_bilinear2d.vec --backend ort-cpu --json",
    )
    + statuses("0 if every available converter has a conversion; 1 if one is missing"),
)
@click.argument("operator")
@click.option("--skeleton", is_flag=True, help="Print rule skeletons even if no conversion is missing.")
@file_option("--out", "Write the skeletons to FILE, for `pytest harness --rules FILE`. Implies --skeleton.")
@click.option("--run", metavar="DIR", help="The run. Default: the newest in results/.")
@click.option("--try", "retry", is_flag=True, help="Try everything now, and take no outcome from a run.")
@click.option("--examples", type=click.IntRange(min=1), default=8, show_default=True, help="Calls to draw and try.")
@names_option("--backend", "backends", "Only this one. Repeatable. Default: all.")
@names_option("--converter", "converters", "Only this one. Repeatable. Default: all.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    operator: str,
    skeleton: bool,
    out: Path | None,
    run: str | None,
    retry: bool,
    examples: int,
    backends: tuple[str, ...],
    converters: tuple[str, ...],
    as_json: bool,
) -> None:
    """Explain an operator: what PyTorch, ONNX, converters and backends have for it.

    OPERATOR is an operator of ATen or one overload of it: celu, aten::celu, aten.celu.default. If a converter
    has no conversion, the command prints a rule for you to fill in (--out writes it to a file).

    With --json: operator, overloads, onnx, candidate, emits, spec, source, unavailable, missing, skeleton.
    """
    # PyTorch takes seconds to import.
    from harness.core.overloads import UnknownOperator
    from harness.core.plugins import UnknownName
    from harness.explain.explanation import explain_operator
    from harness.explain.render import render

    if out is not None and out.exists():
        raise click.UsageError(f"--out {out}: the file exists already; name another")
    recorded = None if retry else find_run(run) if run else newest(Path.cwd() / layout.DEFAULT_PARENT)
    say_step(f"draw calls of {operator} and try them")
    try:
        require_backends(backends)
        require_converters(converters)
        found = explain_operator(
            operator,
            run=recorded,
            examples=examples,
            backend_names=backends,
            converter_names=converters,
            skeleton=skeleton or out is not None,
        )
    except (UnknownOperator, UnknownName) as error:
        raise click.UsageError(str(error)) from None
    if out is not None and found.skeleton:
        out.write_text(found.skeleton, encoding="utf-8")
    if as_json:
        print_json(found.to_data())
    else:
        emit(*render(found))
        if found.skeleton and out is None:
            emit(Text(), Text("A rule for you to fill in; --out FILE writes it", style="bold"))
            emit(*map(line, found.skeleton.splitlines()))
        elif found.skeleton:
            emit(Text(), line(f"written to {out}; try it: {layout.run_command()} --rules {out}"))
    ctx.exit(int(bool(found.missing)))
