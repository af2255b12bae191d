"""`conformance measure`: what a call of a model costs on a route."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path

import click

from harness.app.cli._models import given_files, inputs_option
from harness.app.cli._shared import example, json_option, print_json, say_step, statuses, timeout_option

SECTION = "run"


@click.command(
    short_help="Measure time, memory and accuracy of a model's calls.",
    epilog=example(
        "conformance measure my_model.py:make_model",
        "conformance measure model.onnx --backend openvino --json",
        "conformance bisect model.onnx --package onnxruntime --figure ms",
    )
    + statuses("0; 1 if it cannot be measured"),
)
@click.argument("word", metavar="MODEL")
@click.option("--converter", metavar="NAME", help="Converter, with its transforms. Default: dynamo; none for a file.")
@click.option("--backend", default="ort-cpu", show_default=True, metavar="NAME", help="Backend.")
@inputs_option
@timeout_option(600.0, "Seconds for everything.")
@json_option
def command(word: str, converter: str | None, backend: str, inputs: Path | None, timeout: float, as_json: bool) -> None:
    """Measure what a call of a model costs, in a process of its own.

    The time is the median of 25 blocks of calls, and the memory what 240 calls leave, as a slope. The accuracy is that
    of the result against PyTorch's. `conformance bisect --figure` and `conformance upgrade --measure` compare releases.

    With --json: milliseconds, memory (bytes), sqnr (decibels, null without an error), flips, rows, route.
    """
    from harness.core.plugins import UnknownName
    from harness.core.route import FILE, Route, is_onnx_file
    from harness.pipeline.measuring import measure_model
    from harness.pipeline.model_loading import ModelProblem, check_word
    from harness.pipeline.model_task import AS_MADE, ModelSource
    from harness.pipeline.supervisor import Supervisor
    from harness.plan.options import Options, UsageProblem
    from harness.plan.plan import make_plan

    export = converter or (FILE if is_onnx_file(word) else "dynamo")
    try:
        check_word(word)
        # Planning refuses names that are unknown, and what cannot run here.
        make_plan(Options(models=(word,), converters=(export,), backends=(backend,), shapes="static"))
        with contextlib.redirect_stdout(sys.stderr), Supervisor(timeout=timeout, memory_limit=16 * 2**30) as supervisor:
            say_step("measure")
            route = Route.parse(f"{export} -> {backend}")
            source = ModelSource(word, AS_MADE, given_files(inputs, ""))
            figures = measure_model(source, route, supervisor)
    except (UnknownName, UsageProblem, ModelProblem) as error:
        raise click.UsageError(str(error)) from None
    if figures.problem:
        raise click.ClickException(f"{word} cannot be measured: {figures.problem}")
    data = {**asdict(figures), "route": str(route)}
    if as_json:
        print_json("measure", {name: value for name, value in data.items() if name != "problem"})
        return
    click.echo(f"{word}, {route}")
    click.echo(f"  {figures.milliseconds:.3g} ms a call")
    click.echo(f"  {figures.memory / 1024:,.1f} KiB of memory left by a call")
    if figures.sqnr is not None:
        click.echo(f"  {figures.sqnr:.1f} dB signal-to-noise ratio against PyTorch")
    if figures.rows:
        click.echo(f"  {figures.flips} of {figures.rows} rows choose another class")
