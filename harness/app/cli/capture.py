"""`conformance capture`: the operator calls that a model makes, as a corpus to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

from harness.app.cli._shared import emit, example, find_run, json_option, line, print_json, say_step, statuses
from harness.record import layout
from harness.record.layout import ResultsError

SECTION = "dig"


@click.command(
    short_help="Keep the operator calls that models make.",
    epilog=example(
        "conformance capture my_model.py:make_model",
        "conformance capture exported.pt2 --out my_corpus.jsonl --run results/RUN",
        "conformance capture resnet50 llama-decoder",
        "conformance capture all --out cases/corpus",
        "conformance capture resnet18 --windows",
    )
    + statuses("0"),
)
@click.argument("words", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--out",
    metavar="FILE|DIR",
    help="Where to write: a file of JSON lines (default: MODEL.jsonl), or a corpus directory, whose captured "
    "entries are replaced.",
)
@click.option(
    "--windows", is_flag=True, help="Keep programs of 2 to 6 calls that follow each other in place of single calls."
)
@click.option("--run", metavar="DIR", help="The run to look up. Default: the newest in results/.")
@json_option
def command(words: tuple[str, ...], out: str | None, windows: bool, run: str | None, as_json: bool) -> None:
    """Run models once in PyTorch and record each distinct operator call.

    MODEL is FILE.py:FUNCTION, where the function returns (module, example inputs); or a FILE.pt2 that
    torch.export.save wrote; or the name of a model in cases/models; or `all` of these. Shapes, dtypes,
    strides and attributes are the model's own; values are drawn to be like those seen. Run the calls with
    `pytest harness --source corpus:FILE`.

    With --json: saved, entries, models; with --windows the first two. A model has calls, kinds, left_out, run,
    operators (overload, calls, kinds, modules, places); a place has converter, backend, own_cases, own_failures,
    cases, failures, how.
    """
    from harness.core.plugins import UnknownName
    from harness.generate.regressions.corpus_store import write_entries
    from harness.models.capture import capture_calls
    from harness.models.captured_corpus import corpus_entries, save_directory
    from harness.models.use import capture_data, operator_uses, render_capture
    from harness.pipeline.model_loading import ModelProblem, load_model, load_models

    names = [name for word in words for name in (load_models() if word == "all" else (word,))]
    if windows:
        _keep_windows(names, out, as_json)
        return
    looked_up = _run(run)
    say_step(f"call {', '.join(names)}")
    try:
        captures = [capture_calls(load_model(name)) for name in names]
    except (UnknownName, ModelProblem) as error:
        raise click.UsageError(str(error)) from None
    entries = corpus_entries(captures)
    path = Path(out or (f"{captures[0].model}.jsonl" if len(captures) == 1 else "models.jsonl"))
    directory = path.is_dir() or (not path.suffix and out is not None)
    if directory:
        save_directory(path, entries)
    else:
        write_entries(path, entries)
    say_step("look its calls up in the run")
    uses = [operator_uses(capture, looked_up) for capture in captures]
    if as_json:
        found = [capture_data(c, u, looked_up) for c, u in zip(captures, uses, strict=True)]
        print_json("capture", {"saved": str(path), "entries": len(entries), "models": found})
        return
    for one, its in zip(captures, uses, strict=True):
        emit(*render_capture(one, its, looked_up), Text())
    emit(Text(f"{len(entries)} calls kept in {path}"))
    if not directory:
        emit(line(f"{layout.run_command()} --source corpus:{path}"))


def _keep_windows(names: Sequence[str], out: str | None, as_json: bool) -> None:
    """Write the windows of the models to one file.

    Raises:
        click.UsageError: a model cannot be loaded or captured, or a directory is given.
    """
    from harness.core.plugins import UnknownName
    from harness.models.windows import save_windows
    from harness.pipeline.model_loading import ModelProblem

    path = Path(out or (f"{Path(names[0]).stem}-windows.jsonl" if len(names) == 1 else "windows.jsonl"))
    if path.is_dir() or not path.suffix:
        raise click.UsageError(f"--windows writes one file of JSON lines, and {path} is a directory")
    say_step(f"run {', '.join(names)}")
    try:
        count = save_windows(names, path)
    except (UnknownName, ModelProblem) as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        print_json("capture", {"saved": str(path), "entries": count})
        return
    emit(Text(f"{count} programs kept in {path}"))
    emit(line(f"{layout.run_command()} --source corpus:{path}"))


def _run(given: str | None) -> Path | None:
    """Return the named run, or the newest one, or None."""
    if given is not None:
        return find_run(given)
    try:
        return find_run(None)
    except ResultsError:
        return None
