"""The options of `pytest harness`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from harness.analyse import DRAWS
from harness.app import model_options
from harness.plan import Options

#: What of the command line goes into ``run.json``; paths of this machine do not.
RECORDED = (
    "op",
    "source",
    "dtype",
    "examples",
    "values",
    "shapes",
    "opset",
    "batch_size",
    "public_api",
    "no_blame",
    "timeout",
    "memory_limit",
    *model_options.NAMES,
)


def add(add: Callable[..., None]) -> None:
    """Declare them.

    Args:
        add: Takes what `argparse` takes.
    """
    names: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME"}
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    default = Options()
    add("--op", help="operator, repeatable: aten::celu, aten.add.Tensor, 'aten.upsample_*'", **names)
    add("--converter", help="repeatable: dynamo (default), torchscript, …", **names)
    add("--backend", help="repeatable: ort-cpu (default), trt, …, or all", **names)
    add("--source", help="repeatable: generated and corpus (default), opinfo, corpus:FILE", **names)
    model_options.add(add)
    add("--dtype", help="only these dtypes, repeatable: float16", **names)
    add("--examples", help=f"cases per operator ({default.examples})", **number)
    add("--values", help=f"value draws per export ({default.values})", **number)
    add("--seed", help=f"of the draws ({default.seed})", **number)
    add("--shapes", choices=("static", "dynamic", "both"), default=default.shapes, help="kinds of export")
    add("--rules", metavar="FILE", action="append", default=[], help="try the conversion functions of FILE")
    add(
        "--shard",
        metavar="I/N",
        help="only the I-th of N parts of the run, to be put together by `conformance merge`: 3/8",
    )
    add(
        "--reuse",
        metavar="DIR",
        action="append",
        default=[],
        help="take over the verdicts of earlier runs where nothing that they hang on has changed; a run or a "
        "directory of runs, repeatable: --reuse results",
    )
    add("--baseline", metavar="DIR", help="fail only on what is worse than the baseline in DIR")
    add("--update-baseline", action="store_true", help="then write what was found to --baseline DIR")
    add("--opset", help="to emit (the converter's own default)", **number)
    add("--batch-size", default=default.batch_size, help="structures per export (%(default)s)", **number)
    add("--public-api", action="store_true", help="keep nothing between exports: slow and plain")
    add("--no-blame", action="store_true", help="do not look into whose defect a failure is")
    add("--memory-limit", type=float, default=4.0, metavar="GIB", help="of a worker process (%(default)s)")
    add("--results-dir", metavar="DIR", help="where the run is written (results/RUN_ID)")
    add("--record-only", action="store_true", help="record failures and exit with status 0")
    add("--replay", metavar="DIR", help="run the cases of a recorded run again instead of drawing")
    add(
        "--generator-report",
        nargs="?",
        type=int,
        const=DRAWS,
        metavar="N",
        help=f"export nothing; say how well N draws ({DRAWS}) cover each operator's arguments",
    )
    add("--case", action="append", default=[], metavar="ID", help="with --replay: only these cases")
    add(
        "--shrink",
        type=float,
        metavar="S",
        help="seconds to shrink the worst failures after measuring, 0 for none "
        "(a tenth of what measuring took, at most 30; none with --record-only)",
    )
    add("--coverage", action="store_true", help="print which operators have a case, and run nothing")
    # pytest-timeout has an option of that name; its value serves both.
    with contextlib.suppress(ValueError):
        add("--timeout", type=float, default=60.0, metavar="S", help="seconds per step of a batch")
