"""``conformance golden``: stored invocations with PyTorch's outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from harness.app.cli._shared import (
    directory_option,
    names_option,
    op_option,
    operators_matching,
    require_backends,
    require_converters,
)
from harness.core.invocation import PROGRAM
from harness.core.onnx_operators import match_onnx
from harness.core.plugins import UnknownName
from harness.gate.golden.backend_tests import export
from harness.gate.golden.check import PYTORCH, CheckedGolden, GoldenChange, check
from harness.gate.golden.store import Golden, GoldenKey, Manifest, read_manifest, read_set
from harness.generate.case_library import load_cases, load_onnx_cases
from harness.pipeline.case_run import CaseRun
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS

#: Where the goldens of this repository are.
_DEFAULT = "golden"
#: Lines of each kind that are printed unless all are asked for.
_SHOWN = 20

_directory = directory_option("--golden", "The directory of the goldens.", _DEFAULT, name="directory")
_converters = names_option("--converter", "converters", "Use its models. Repeatable.")
_op = op_option("An operator, overload or glob.")
_all = click.option("--all", "show_all", is_flag=True, help=f"Print every line, not the first {_SHOWN}.")


SECTION = "gate"


@click.group(short_help="Use stored calls with PyTorch's outputs.")
def command() -> None:
    """Use stored invocations with PyTorch's outputs. `check` needs no PyTorch."""


@command.command()
@_op
@directory_option(
    "--out",
    "Where to write. With --op, the goldens of other operators there are kept.",
    _DEFAULT,
    name="directory",
)
@names_option("--backend", "backends", "Record its outcomes. Repeatable.")
@_converters
@names_option(
    "--pattern", "patterns", "Record programs of this pattern in place of operators, or of `all`. Repeatable."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the draws.")
@click.option("--count", type=click.IntRange(1), default=3, show_default=True, help="Goldens per operator.")
def record(
    ops: Sequence[str],
    directory: Path,
    backends: Sequence[str],
    converters: Sequence[str],
    patterns: Sequence[str],
    seed: int,
    count: int,
) -> None:
    """Draw a few small calls of every operator, or programs of several calls, and store PyTorch's outputs.

    By default the goldens have the models of every converter that can run here, and the outcomes of ONNX
    Runtime on the CPU, the ONNX reference and OpenVINO, as far as they can run here.
    """
    from harness.convert.converter import CONVERTERS
    from harness.gate.golden.record import record as record_goldens

    known = list(load_cases())
    # The backends that witness each other's failures; other runtimes have goldens by name.
    on_cpu = sorted((not e.default, e.name) for e in BACKENDS.entries() if e.witness is not None and ONNX in e.takes)
    names = _backends(backends) if backends else _available([name for _, name in on_cpu])
    entries = CONVERTERS.entries()
    chosen = converters or [e.name for e in entries if e.makes == ONNX and e.probe() is None]
    require_converters(chosen)

    def progress(overloads: Iterable[str]) -> Iterable[str]:
        wanted = list(overloads)
        for i, name in enumerate(wanted, 1):
            if i % 50 == 0 or i == len(wanted):
                click.echo(f"{i}/{len(wanted)} {name}", err=True)
            yield name

    done = record_goldens(
        directory,
        [*_programs(patterns), *(operators_matching(ops, known) if ops or not patterns else ())],
        backends=names,
        converter_names=chosen,
        complete=not ops and not patterns,
        seed=seed,
        count=count,
        progress=progress,
    )
    for overload, why in done.lost.items():
        click.echo(f"{overload}: no goldens: {why}")
    for invocation in done.disputed:
        click.echo(f"left out, PyTorch disagrees with itself: {invocation}")
    goldens = sum(map(len, done.manifest.goldens.values()))
    click.echo(f"{goldens} goldens of {len(done.manifest.goldens)} operators in {directory}")


def _programs(patterns: Sequence[str]) -> list[str]:
    """Return the recorded names of the requested patterns."""
    # It needs PyTorch, which the other commands do not.
    from harness.generate.programs import load_patterns

    known = [name.removeprefix(PROGRAM) for name, found in load_patterns().items() if not found.dynamic]
    for name in patterns:
        if name != "all" and name not in known:
            raise click.UsageError(str(UnknownName("pattern", name, known)))
    return [PROGRAM + name for name in (known if "all" in patterns else dict.fromkeys(patterns))]


@command.command("check")
@_op
@_directory
@names_option("--backend", "backends", "Where to run them, `pytorch` for the calls themselves, or `all`. Repeatable.")
@_converters
@click.option("--timeout", type=float, default=20.0, show_default=True, help="Seconds for each model.")
@_all
def check_command(
    ops: Sequence[str],
    directory: Path,
    backends: Sequence[str],
    converters: Sequence[str],
    timeout: float,
    show_all: bool,
) -> None:
    """Run the models of the goldens in backends. This needs no PyTorch.

    The default is every recorded backend that can run here. The exit status is 1 if a golden fails that did
    not fail when it was recorded, or fails in another way. With `--backend pytorch` the calls are run in the
    installed PyTorch, which fails if the operator's judge says that an output is wrong.
    """
    manifest, goldens, endings = _read(directory, ops)
    names = _backends(backends) if backends else _available(tuple(manifest.backends))
    for name in converters:
        if name not in manifest.converters:
            raise click.UsageError(str(UnknownName("converter", name, list(manifest.converters))))
    found = list(check(manifest, goldens, endings, backends=names, converters=converters or None, timeout=timeout))
    for change, title in (
        (GoldenChange.NEW, "newly failing"),
        (GoldenChange.OTHER, "not ending as recorded"),
        (GoldenChange.FIXED, "passing now (record again to keep them)"),
    ):
        _print_checked(title, [c for c in found if c.change is change], show_all)
    click.echo(_counts(found, goldens, names, manifest))
    if any(c.change.is_failure for c in found):
        raise SystemExit(1)


@command.command("export")
@click.argument("target", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--layout", type=click.Choice(["onnx-backend-test"]), default="onnx-backend-test", show_default=True)
@_op
@_directory
@click.option(
    "--run",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="RESULTS",
    help="Write the ONNX operators that a run of `pytest harness --onnx` drew, in place of goldens.",
)
def export_command(target: Path, layout: str, ops: Sequence[str], directory: Path, run: Path | None) -> None:
    """Write the goldens to DIR as tests for the runners of other projects.

    Goldens are left out if they have several right answers, or if no recorded backend gets them right.
    """
    if run is not None:
        # It needs the harness's workers' modules, which goldens do not.
        from harness.gate.golden.drawn_tests import export_drawn

        known = load_onnx_cases()
        done = export_drawn(target, run, {name for word in ops for name in match_onnx(word, list(known))})
    else:
        manifest, goldens, endings = _read(directory, ops)
        done = export(target, manifest, goldens, endings)
    for why, count in sorted(done.left_out.items()):
        click.echo(f"{count} {'cases' if run else 'goldens'} left out: {why}")
    click.echo(f"{len(done.tests)} tests in {target}")


def _read(directory: Path, ops: Sequence[str]) -> tuple[Manifest, list[Golden], dict[GoldenKey, CaseRun]]:
    wanted = None
    if ops:
        wanted = operators_matching(ops, list(read_manifest(directory).goldens))
    # Operator cases have the judges.
    load_cases()
    return read_set(directory, wanted)


def _available(names: Sequence[str]) -> list[str]:
    """Return the backends among `names` that can run on this machine."""
    found = []
    for name in names:
        try:
            entry, argument = BACKENDS.find(name)
        except UnknownName:
            continue
        if entry.probe(argument) is None:
            found.append(name)
    if not found:
        raise click.UsageError(
            f"none of {', '.join(names)} runs here; to get one: pip install 'aten-onnx-conformance[cpu]'"
        )
    return found


def _backends(words: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for word in words:
        if word == PYTORCH:
            chosen.append(word)
            continue
        if word == "all":
            chosen += _available([e.name for e in BACKENDS.entries() if ONNX in e.takes and not e.name.endswith(":")])
            continue
        require_backends([word])
        chosen.append(word)
    return list(dict.fromkeys(chosen))


def _print_checked(title: str, held: Sequence[CheckedGolden], show_all: bool) -> None:
    if not held:
        return
    click.echo(f"{title}: {len(held)}")
    lines = []
    for c in held:
        before = "" if c.recorded is None else f"\n      recorded: {_ending_text(c.recorded)}"
        lines.append(
            f"  {c.golden.case_id} {f'{c.converter} → ' if c.converter else ''}{c.backend}  {c.golden.invocation}\n"
            f"      now: {_ending_text(c.now)}{before}"
        )
    _print_lines(lines, show_all)


def _ending_text(run: CaseRun) -> str:
    words = run.message.strip().splitlines()
    return f"{run.stage} {run.outcome}" + (f": {words[0][:160]}" if words else "")


def _print_lines(lines: Sequence[str], show_all: bool) -> None:
    shown = lines if show_all else lines[:_SHOWN]
    for line in shown:
        click.echo(line)
    if len(shown) < len(lines):
        click.echo(f"  … {len(lines) - len(shown)} more with --all")


def _counts(found: Sequence[CheckedGolden], goldens: Sequence[Golden], names: Sequence[str], manifest: Manifest) -> str:
    lines = []
    for backend in names:
        counts = Counter(c.change for c in found if c.backend == backend)
        recorded = manifest.backends.get(backend)
        if backend == PYTORCH:
            recorded = manifest.versions["torch"]
        known = f"recorded with {recorded}" if recorded else "nothing recorded of it: every failure is new"
        lines.append(
            f"{backend} ({known}): {counts[GoldenChange.PASS]} pass, {counts[GoldenChange.KNOWN]} fail as "
            f"recorded, {counts[GoldenChange.FIXED]} pass now, {counts[GoldenChange.NEW]} newly fail, "
            f"{counts[GoldenChange.OTHER]} end in another way"
        )
    unmade = sum(not golden.models for golden in goldens)
    lines.append(f"{len(goldens)} goldens, {unmade} of them without a model to run")
    return "\n".join(lines)
