"""The options of `pytest harness`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from harness.app import model_windows
from harness.convert.converter import CONVERTERS, find_converter
from harness.core.invocation import PROGRAM
from harness.coverage.survey import DRAWS
from harness.generate.sources.forbidden import ForbiddenNodes
from harness.generate.sources.onnx_graphs import OnnxGraphs
from harness.generate.sources.onnx_operators import OnnxOperators
from harness.generate.sources.redrawn import Redrawn
from harness.pipeline.model_loading import load_models
from harness.plan.options import OPERATOR_EXAMPLES, PROGRAM_EXAMPLES, Options, UsageProblem
from harness.record.layout import reason

#: The options that ``run.json`` records; it keeps no paths of this machine.
RECORDED = (
    *("op", "source", "dtype", "examples", "values", "shapes", "opset", "batch_size", "public_api"),
    *("no_blame", "timeout", "memory_limit", "models", "model", "programs", "pattern"),
    *("onnx", "around", "profile", "strict_device"),
)

#: Seconds that a step may take unless the user says otherwise.
STEP_SECONDS = 60.0


def add(add: Callable[..., None], *, has_timeout: bool) -> None:
    """Declare the options.

    Args:
        add: A function with the parameters of `argparse`'s ``add_argument``.
        has_timeout: Whether another plug-in declares ``--timeout``: pytest-timeout does, without a default.
    """
    _add_selection(add)
    _add_graphs(add)
    _add_draws(add)
    _add_comparison(add)
    _add_exports(add)
    _add_results(add)
    _add_reports(add)
    if not has_timeout:
        words = "seconds until a step is stopped (%(default)s)"
        add("--timeout", type=float, default=STEP_SECONDS, metavar="S", help=words)


_NAMES: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}
#: The oldest opset of ``--opset all``: the one that PyTorch's exporter emits by itself.
_FIRST_OF_ALL = 18
_NUMBER: dict[str, Any] = {"type": int, "metavar": "N"}


def _add_selection(add: Callable[..., None]) -> None:
    """Add the options that select operators, converters, backends and models."""
    add(
        "--op",
        help="run this operator: aten::celu, aten.add.Tensor, 'aten.upsample_*'; repeatable (default: all)",
        **_NAMES,
    )
    add("--converter", help="use this converter: dynamo (default), torchscript, …; repeatable", **_NAMES)
    add("--backend", help="use this backend: ort-cpu (default), trt, …, or all; repeatable", **_NAMES)
    add(
        "--source",
        help="take cases from this source: use:common, corpus and generated (default), programs, use, opinfo, "
        "corpus:FILE; repeatable, and asked in this order",
        **_NAMES,
    )
    add(
        "--programs",
        action="store_true",
        help="run programs of several calls in place of single ones; with --op, those that contain the operator; with "
        "--model, those of 2 to 6 calls that follow each other in the model",
    )
    add("--pattern", help="run the programs of this pattern: conv-bn, 'walk-*'; repeatable", **_NAMES)
    add("--models", action="store_true", help="run the whole models of cases/models instead of operators")
    add(
        "--model",
        help="run this model: resnet50, my_model.py:make_model, exported.pt2, model.onnx; repeatable",
        **_NAMES,
    )
    add(
        "--changed-since",
        metavar="REVISION",
        help="run the operators whose conversion functions, in --rules or in an exporter's sources, differ from this "
        "revision of the git repository here",
    )
    add("--dtype", help="draw only cases of this dtype: float16; repeatable", **_NAMES)
    add(
        "--minutes",
        type=float,
        metavar="N",
        help="begin with the operators that most models call, start none after N minutes, and name the rest",
    )


def _add_graphs(add: Callable[..., None]) -> None:
    """Add the options that select ONNX's own operators and graphs."""
    add(
        "--onnx",
        action="store_true",
        help="run ONNX's own operators in place of PyTorch's, and graphs around the patterns that optimisers look for; "
        "with --op, these: Resize, LayerNormalization.17, 'Reduce*', graph.layer-norm, 'graph.*'",
    )
    add(
        "--around",
        metavar="FILE",
        help="with --onnx: change parts of this ONNX file, in place of the harness's own graphs and operators",
    )
    add(
        "--profile",
        metavar="FILE",
        help="with --onnx: run what a runtime claims in this TOML file, and nothing else; see `conformance profile`",
    )
    add(
        "--strict-device",
        action="store_true",
        help="a case of which the backend leaves a part to the CPU counts as unsupported",
    )


def _add_draws(add: Callable[..., None]) -> None:
    """Add the options for the number of cases and their shapes."""
    default = Options()
    cases = "draw about N cases per operator: more if exports are quick "
    cases += f"({OPERATOR_EXAMPLES}, of a pattern of programs {PROGRAM_EXAMPLES})"
    add("--examples", help=cases, **_NUMBER)
    add(
        "--values",
        help="draw values N times per exported structure (4, and up to 8 if exports are slow)",
        **_NUMBER,
    )
    add("--seed", help=f"seed of the draws ({default.seed})", **_NUMBER)
    add(
        "--shapes",
        choices=("mixed", "static", "dynamic", "both"),
        default=default.shapes,
        help="export with static shapes, with dynamic shapes, with both, or mixed: static, and for operators one "
        "dynamic export for every 128 cases (%(default)s)",
    )


def _add_comparison(add: Callable[..., None]) -> None:
    """Add the options that choose a reference for the run and the share of it that runs here."""
    add(
        "--rules",
        metavar="FILE",
        action="append",
        default=[],
        help="try the conversion functions in FILE, and compare with and without them; repeatable",
    )
    add("--shard", metavar="I/N", help="run only part I of N: 3/8; `conformance merge` joins the parts")
    add("--shard-parts", metavar="FILE", help="with --shard: FILE has the units of every part, as JSON")
    add("--baseline", metavar="DIR", help="fail only on regressions from the baseline in DIR")
    add("--waivers", metavar="FILE", help="failures that this TOML file expects do not count; see the user guide")
    add("--update-baseline", action="store_true", help="after the run, write its outcomes to --baseline DIR")


def _add_exports(add: Callable[..., None]) -> None:
    """Add the options for the export and the execution of cases."""
    default = Options()
    add(
        "--opset",
        action="append",
        default=[],
        metavar="N",
        help="emit opset N (default: the converter's own); repeatable, or `all` that the converters emit from 18 on",
    )
    add("--batch-size", default=default.batch_size, help="export N structures at once (%(default)s)", **_NUMBER)
    add("--public-api", action="store_true", help="use only the public exporter, which is slow and plain")
    add("--no-blame", action="store_true", help="do not determine the component at fault")
    add(
        "--memory-limit",
        type=float,
        default=4.0,
        metavar="GIB",
        help="stop a worker process that uses more memory (%(default)s)",
    )


def _add_results(add: Callable[..., None]) -> None:
    """Add the options for the results directory and for replays."""
    add("--results-dir", metavar="DIR", help="write the run to DIR (results/RUN_ID)")
    add("--record-only", action="store_true", help="record failures, but exit with status 0")
    add("--github", action="store_true", help="print the worst failures as annotations of a GitHub job, too")
    add("--replay", metavar="DIR", help="rerun the cases of the run in DIR instead of drawing cases")
    add(
        "--case",
        action="append",
        default=[],
        metavar="ID",
        help="with --replay: rerun only this case; repeatable",
    )


def _add_reports(add: Callable[..., None]) -> None:
    """Add the options that print a report after a run or instead of one."""
    add(
        "--generator-report",
        nargs="?",
        type=int,
        const=DRAWS,
        metavar="N",
        help=f"export nothing, and report how well N draws ({DRAWS}) cover each operator's arguments",
    )
    add(
        "--shrink",
        type=float,
        metavar="S",
        help="after the run, shrink the worst failures for S seconds, 0 for not at all "
        "(a tenth of the run's time, at most 30; 0 with --record-only)",
    )
    add(
        "--coverage",
        action="store_true",
        help="run nothing, and list which operators have a case; with --op, say what the run in "
        "--results-dir (default: the newest) has tried of these operators",
    )


def shard_parts(file: str | None) -> tuple[tuple[str, ...], ...] | None:
    """Return the units of every part from ``--shard-parts``; None without it.

    Raises:
        UsageProblem: the file cannot be read, or has something else.
    """
    if file is None:
        return None
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=tuple[tuple[str, ...], ...])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(f"--shard-parts {file}: {reason(error)}") from None


def sources(given: Any) -> tuple[str, ...]:
    """Return the sources of cases; programs take the place of the default sources.

    Raises:
        UsageProblem: programs and another source are asked for.
    """
    if given.onnx:
        return _onnx_sources(given)
    if given.profile:
        raise UsageProblem("--profile names a file of what --onnx runs: give both")
    if given.around:
        raise UsageProblem("--around names a file whose parts --onnx changes: give both")
    if not given.programs and not given.pattern:
        return tuple(given.source)
    option = "--programs" if given.programs else "--pattern"
    for other, value in {"--source": given.source, "--models": given.models}.items():
        if value:
            raise UsageProblem(f"{option} and {other} both select the cases: give one of them")
    if given.pattern and given.model:
        raise UsageProblem("--pattern and --model both say what programs are drawn from: give one of them")
    if given.pattern and given.op:
        raise UsageProblem("--pattern names programs, and --op operators that programs contain: give one of them")
    if given.model:
        return (f"corpus:{model_windows.window_file(given)}",)
    drawn = tuple(f"programs:{operator}" for operator in given.op) or ("programs",)
    # What a baseline expects does not depend on the installed optimisers.
    return drawn if given.baseline else (*drawn, Redrawn.name)


def _onnx_sources(given: Any) -> tuple[str, ...]:
    others = {"--source": given.source, "--models": given.models, "--model": given.model}
    for other, value in {**others, "--programs": given.programs, "--pattern": given.pattern}.items():
        if value:
            raise UsageProblem(f"--onnx and {other} both select the cases: give one of them")
    everything = OnnxOperators.name, ForbiddenNodes.name, OnnxGraphs.name
    drawn = (f"{OnnxGraphs.name}:{given.around}",) if given.around else everything
    return drawn if given.baseline else (*drawn, Redrawn.name)


def converters(given: Any) -> tuple[str, ...]:
    """Return the converters that the user asks for; none for the default ones. Runs of all patterns have more."""
    named = tuple(given.converter or ())
    if named or not given.programs or given.backend or given.rules:
        return named
    entries = [entry for entry in CONVERTERS.entries() if entry.default or entry.default_for_programs]
    return tuple(entry.name for entry in entries if entry.probe() is None)


def opsets(given: Any) -> tuple[int, ...]:
    """Return the requested opsets, each once; none for the converters' own.

    Raises:
        UsageProblem: one is not a number.
    """
    # A baseline and a recorded run have a number.
    words = [
        str(word) for word in (given.opset if isinstance(given.opset, list) else [given.opset]) if word is not None
    ]
    if words == ["all"]:
        names = given.converter or [entry.name for entry in CONVERTERS.defaults()]
        emitted = [set(find_converter(name).opsets()) for name in names]
        return tuple(n for n in sorted(set.intersection(*emitted)) if n >= _FIRST_OF_ALL)
    for word in words:
        if not word.isdecimal():
            raise UsageProblem(f"--opset {word}: give a number, or `all` alone")
    return tuple(dict.fromkeys(map(int, words)))


def operators(given: Any) -> tuple[str, ...]:
    """Return the operators of the sources that the user asks for."""
    if given.pattern:
        return tuple(name if name.startswith(PROGRAM) else f"{PROGRAM}{name}" for name in given.pattern)
    return () if given.programs else tuple(given.op)


def model_words(given: Any) -> tuple[str, ...]:
    """Return the models that the user wants to run as a whole, each once."""
    if given.programs:
        return ()
    return tuple(dict.fromkeys((*given.model, *(load_models() if given.models else ()))))


def test_function(given: Any) -> str:
    """Return the function of `harness/test_conformance.py` whose items the user wants."""
    return "test_generator" if given.generator_report else "test_conformance"
