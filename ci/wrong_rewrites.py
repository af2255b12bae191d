#!/usr/bin/env python3
"""How many wrong rewrites, planted in the optimisers of an exporter and of a runtime, a run of programs finds.

    python ci/wrong_rewrites.py --out DIR [--groups 6] [--seed 0] [--examples N] [--only NAME ...]

1. Plant some rewrites at a time (`tests/plugins/planted_rewrites`), as different as possible, and run
   `pytest harness --programs` with the default budget.
2. A rewrite is found where the place of a failure is its name.
3. Shrink a failure of each, and count the calls of the minimal program.

A run that is there already is not made again.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from harness.core.invocation import Invocation
from harness.core.program import calls_of
from harness.record import store
from harness.record.json_lines import read_minimal

ROOT = Path(__file__).parent.parent
PLUGINS = ROOT / "tests" / "plugins"
NAME = "planted-rewrites"
PLACES = [str(folder) for folder in (ROOT, PLUGINS, PLUGINS / "metadata_rewrites")]
# The tests' plug-ins are in no package.
sys.path += PLACES[1:]
REWRITES = importlib.import_module("planted_rewrites.rewrites")


def environment(names: Sequence[str]) -> dict[str, str]:
    """Of a process in which these are planted."""
    path = os.pathsep.join((*PLACES, os.environ.get("PYTHONPATH", "")))
    return {**os.environ, REWRITES.VARIABLE: ",".join(names), "PYTHONPATH": path}


def sweep(names: Sequence[str], out: Path, more: Sequence[str]) -> None:
    """Run programs with some rewrites planted."""
    if (out / "run.json").exists():
        return
    words = [sys.executable, "-m", "pytest", str(ROOT / "harness"), "--programs", "-n", "2", "--record-only", "-q"]
    words += ["--converter", NAME, "--backend", NAME, "--results-dir", str(out), *more]
    with (out.parent / f"{out.name}.log").open("w") as log:
        subprocess.run(words, env=environment(names), stdout=log, stderr=log, check=False)


def failing_cases(run: Path) -> Mapping[str, str]:
    """Rewrite → a case whose failure has it for its place."""
    found: dict[str, str] = {}
    for row in store.read(run, ["case_id", "place"]).to_pylist():
        for name in row["place"].replace("optimiser, ", "").replace("graph optimisation, ", "").split(", "):
            if name in REWRITES.REWRITES:
                found.setdefault(name, row["case_id"])
    return found


def calls_of_minimal(run: Path, names: Sequence[str], cases: Mapping[str, str]) -> dict[str, int]:
    """Rewrite → calls of the minimal program that shows it."""
    for case in cases.values():
        words = [*("conformance", "shrink", str(run), "--case", case), *("--budget", "60", "--per-failure", "30")]
        subprocess.run(words, env=environment(names), capture_output=True, check=False)
    minimal = {m.case_id: Invocation.from_json(m.invocation) for m in read_minimal(run)}
    return {name: len(calls_of(minimal[case])) for name, case in cases.items() if case in minimal}


def main() -> None:
    """Print a line for each rewrite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--examples", default="256")
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    names = list(given.only or REWRITES.REWRITES)
    count, lengths = 0, []
    for number in range(given.groups):
        planted, run = names[number :: given.groups], given.out / f"group{number}"
        if not planted:
            continue
        sweep(planted, run, ["--seed", given.seed, "--examples", given.examples])
        cases = failing_cases(run)
        calls = calls_of_minimal(run, planted, cases)
        for name in planted:
            where = "runtime" if name in REWRITES.IN_RUNTIME else "exporter"
            says = f"{cases[name]}, {calls.get(name, '?')} calls" if name in cases else "not found"
            print(f"{name} ({where}): {says}", flush=True)
        count += len(cases)
        lengths += [*calls.values()]
    print(f"{count} of {len(names)} found; calls of minimal programs: median {median(lengths or [0])}")


if __name__ == "__main__":
    main()
