"""`conformance operators`: which ATen operators a model calls."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from harness.app.cli._shared import example, find_run, print_json, statuses
from harness.core import count
from harness.record import layout, newest


@click.command(
    epilog=example(
        "conformance operators model.onnx --json > operators.json",
        "conformance operators program.pt2 > operators.txt && pytest harness @operators.txt",
    )
    + statuses("0; 1 if a node is of no known ATen operator, or if an operator has no case")
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--run",
    metavar="DIR",
    help="The run that says what passes, and by its recorded exports where nodes come from. Default: the "
    "newest in results/.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, including what has no case or is unknown.")
@click.pass_context
def command(ctx: click.Context, model: Path, run: str | None, as_json: bool) -> None:
    """List the ATen operators that MODEL calls, and say which of them pass in a run.

    The list has one `--op` option per line, and the model's dtypes as `--dtype` options.

    MODEL is an ONNX file, or an exported program that `torch.export.save` wrote (.pt2). The nodes of an ONNX
    file are traced back by the notes of PyTorch's exporter. If there are none, they are traced back by name,
    and by the exports that `conformance graphs` recorded in a run.

    The page of `conformance dashboard` accepts the text and the JSON. The text lists only operators that have
    an operator case; stderr names the others.

    If there is a run, stderr says which operators pass there, in the model's dtypes and with its attributes.
    Ordinary cases decide. An operator is not decided if no case has its attributes and some others fail.

    With --json: model, kind, operators (name, nodes, how, covered), unmapped (node, nodes), dtypes, run, and
    answers (converter, backend, operators, calls).
    """
    from harness.analyse import ModelError, answers_for, operators_of
    from harness.generate import load_cases
    from harness.record import read_graphs

    covered = list(load_cases())
    recorded = find_run(run) if run else newest(Path.cwd() / layout.DEFAULT_PARENT)
    try:
        found = operators_of(model, covered, read_graphs(recorded) if recorded else {})
    except ModelError as error:
        raise click.UsageError(str(error)) from None
    known = set(covered)
    dtypes = sorted({dtype for call in found.calls for dtype in call.dtypes.values()})
    answers = answers_for(found.calls, recorded) if recorded and found.calls else []
    if as_json:
        print_json(
            {
                "model": model.name,
                "kind": found.kind,
                "operators": [
                    {**dataclasses.asdict(one), "covered": one.name in known} for one in found.operators
                ],
                "unmapped": [{"node": node, "nodes": number} for node, number in found.unmapped.items()],
                "dtypes": dtypes,
                "run": str(recorded) if recorded else None,
                "answers": [answer.to_data() for answer in answers],
            }
        )
    else:
        for one in found.operators:
            if one.name in known:
                click.echo(f"--op={one.name}")
        # If the dtypes of some call are unknown, others could be needed for it.
        if known & {one.name for one in found.operators} and all(call.dtypes for call in found.calls):
            for dtype in dtypes:
                click.echo(f"--dtype={dtype}")
        for one in found.operators:
            if one.name not in known:
                click.echo(f"no operator case: {one.name} ({count(one.nodes, 'node')})", err=True)
        for node, number in found.unmapped.items():
            click.echo(f"no known ATen operator: {node} ({count(number, 'node')})", err=True)
        for answer in answers:
            click.echo("\n".join(answer.lines), err=True)
    ctx.exit(int(bool(found.unmapped) or any(one.name not in known for one in found.operators)))
