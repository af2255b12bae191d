"""`conformance diverge`: find where a model's wrong result begins."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import emit, example, json_option, line, print_json, statuses, timeout_option
from harness.models.divergence_task import DivergeTask

SECTION = "dig"


@click.command(
    short_help="Find where a model's wrong result begins.",
    epilog=example(
        "conformance diverge my_model.py:make_model --backend ort-cpu",
        "conformance diverge resnet50 --rules my_rules.py",
        "conformance diverge llama-decoder --shapes dynamic --case 3 --converter dynamo --json",
    )
    + statuses("0 if the model's result is right and nothing diverges; 1 if something does"),
)
@click.argument("word", metavar="MODEL")
@click.option("--converter", metavar="NAME", help="The converter. Default: dynamo.")
@click.option("--backend", metavar="NAME", help="The backend. Default: ort-cpu.")
@click.option("--shapes", type=click.Choice(["static", "dynamic"]), default="static", show_default=True)
@click.option(
    "--case",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Which of the model's runs: 0 has its example inputs, the others have other values or sizes.",
)
@click.option("--rules", multiple=True, metavar="FILE", help="Use these conversion functions. Repeatable.")
@click.option("--opset", type=int, metavar="N", help="Opset to emit.")
@timeout_option(120.0, "Seconds per step.")
@click.option("--memory-limit", type=float, default=4.0, show_default=True, metavar="GIB", help="Memory of the worker.")
@click.option("--keep/--no-keep", default=True, help="Add the failing call to the corpus.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    word: str,
    converter: str | None,
    backend: str | None,
    shapes: str,
    case: int,
    rules: tuple[str, ...],
    opset: int | None,
    timeout: float,
    memory_limit: float,
    keep: bool,
    as_json: bool,
) -> None:
    """Find the first exported value of a model that differs from PyTorch's by more than its inputs explain.

    MODEL is FILE.py:FUNCTION, FILE.pt2 or the name of a model in cases/models. The report names the module,
    the ATen overload and the ONNX node. It also runs that operator alone, to tell its own fault from
    accumulated error.

    With --json: model, converter, backend, change, kind, problem, module, operator, operators, node,
    onnx_node, detail, alone, checked, checkpoints, not_run, growth, verdict.
    """
    from harness.core.plugins import UnknownName
    from harness.execute.models.model_loading import ModelProblem
    from harness.execute.supervisor import Supervisor
    from harness.generate.regressions.corpus_store import Corpus
    from harness.models.divergence import divergence_entries, divergence_lines, find_divergence
    from harness.plan.options import Options, UsageProblem
    from harness.plan.plan import make_plan

    try:
        plan = make_plan(
            Options(
                models=(word,),
                converters=(converter,) if converter else (),
                backends=(backend,) if backend else (),
                shapes=shapes,
                opset=opset,
                rules=tuple(str(Path(file).absolute()) for file in rules),
            )
        )
        unit = plan.models[0]
        task = DivergeTask(
            word=word, converter=unit.converter, backend=unit.backends[0], settings=unit.settings, case=case
        )
        with Supervisor(timeout=timeout, memory_limit=int(memory_limit * 2**30)) as supervisor:
            found = find_divergence(task, supervisor)
    except (UsageProblem, UnknownName, ModelProblem) as error:
        raise click.UsageError(str(error)) from None
    kept = divergence_entries(found) if keep else []
    corpus = Corpus.default()
    for entry in kept:
        corpus.add(entry)
    if as_json:
        print_json(found.to_data())
    else:
        emit(*(Text(text) for text in divergence_lines(found)))
        for entry in kept:
            emit(line(f"  kept in {corpus.local / (entry.overload + '.jsonl')}"))
    ctx.exit(int(found.kind != "none"))
