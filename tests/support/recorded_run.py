"""A small real run that several test files look at, made once by `conformance run`."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

from harness_runs import shared
from rich.console import Console

from harness.present.terminal_summary import print_summary

#: celu passes but for float64; avg_pool2d is exported wrongly, erf lacks kernels, and the Hermite polynomials
#: have no conversion.
OPERATORS = ("aten::celu", "aten::avg_pool2d", "aten::erf", "aten::special_hermite_polynomial_h", "aten::sum")
NAME = "20260101"


def conformance(*words: str | Path, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """The command, in a process that other commands ran in before."""
    return shared().run("conformance", [str(word) for word in words], cwd, timeout)


def make(cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `OPERATORS` from `cwd` into ``results/NAME``."""
    operators = [word for name in OPERATORS for word in ("--op", name)]
    backends = ("--backend", "ort-cpu", "--backend", "onnx-reference")
    where = ("--source", "generated", "--results-dir", f"results/{NAME}", "-p", "no:cacheprovider")
    return conformance("run", *operators, *backends, "--examples", "48", *where, "--json", cwd=cwd)


def summary_text(
    results_dir: Path, *, width: int, colour: bool = False, cwd: Path | None = None, verbose: bool = False
) -> str:
    """What `print_summary` prints, `width` columns wide; escape sequences only with `colour`."""
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    with console.capture() as capture:
        print_summary(console, results_dir, cwd=cwd, verbose=verbose)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
