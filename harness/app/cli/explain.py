"""`conformance explain`: what there is for an operator on its way to ONNX, and what is missing."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._output import emit, example, line, print_json, statuses
from harness.app.cli._run_argument import find_run
from harness.record import layout, newest


@click.command(
    epilog=example(
        "conformance explain aten::celu",
        "conformance explain max_unpool2d --out my_rules.py",
        "conformance explain upsample_bilinear2d.vec --backend ort-cpu --json",
    )
    + statuses("0 where every converter here has a conversion; 1 where one is missing")
)
@click.argument("operator")
@click.option("--skeleton", is_flag=True, help="Print skeletons even where no conversion is missing.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the skeletons to FILE, for `pytest harness --rules FILE`; implies --skeleton.",
)
@click.option("--run", metavar="DIR", help="The run; the newest below results/ by default.")
@click.option("--try", "retry", is_flag=True, help="Take no outcome from a run: try all.")
@click.option(
    "--examples", type=click.IntRange(min=1), default=8, show_default=True, help="Calls to draw and try."
)
@click.option(
    "--backend", "backends", multiple=True, metavar="NAME", help="Only these; all that can run by default."
)
@click.option(
    "--converter",
    "converters",
    multiple=True,
    metavar="NAME",
    help="Only these; all that can run by default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables.")
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

    OPERATOR is an operator of ATen or one overload of it: celu, aten::celu, aten.celu.default. Where a
    converter has no conversion, a rule to be filled in is printed (--out writes it to a file).

    With --json: operator, overloads, onnx, candidate, emits, spec, source, unavailable, missing, skeleton.
    """
    # PyTorch takes seconds to import.
    from harness.analyse import explain_operator, render
    from harness.convert import find_converter
    from harness.core import UnknownName, UnknownOperator
    from harness.run import BACKENDS

    if out is not None and out.exists():
        raise click.UsageError(f"--out {out}: the file is there already; name another")
    recorded = None if retry else find_run(run) if run else newest(Path.cwd() / layout.DEFAULT_PARENT)
    try:
        for name in backends:
            entry, argument = BACKENDS.find(name)
            if problem := entry.probe(argument):
                raise click.UsageError(f"--backend {name}: {problem.reason}; to get it: {problem.install}")
        for name in converters:
            if problem := find_converter(name).probe():
                raise click.UsageError(f"--converter {name}: {problem.reason}; to get it: {problem.install}")
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
            emit(Text(), Text("A rule to be filled in; --out FILE writes it", style="bold"))
            emit(*map(line, found.skeleton.splitlines()))
        elif found.skeleton:
            emit(Text(), line(f"written to {out}; try it: pytest harness --rules {out}"))
    ctx.exit(int(bool(found.missing)))
