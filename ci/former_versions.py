#!/usr/bin/env python3
"""Defects between operators that former releases of exporters and runtimes have, and today's have no more.

    python ci/former_versions.py --out DIR onnxscript==0.6.0 onnx-ir==0.1.16 onnxruntime==1.23.2 [-- --pattern conv-bn]

1. A second environment gets the project with the packages that are named; what they need beside is pip's choice.
2. `pytest harness --programs` runs there and here, with the options behind `--`.
3. A rule or pass that is at fault there and not here was mended since: each is printed with a case that shows it,
   and so is what is new.

Nothing says what to look for: this is how a fix is noticed, and how a regression would be. What is there already is
not made again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from harness.blame.root_cause import BY_PASS
from harness.compare.diagnosis import COMPOSED, Diagnosis
from harness.compare.verdict import Outcome
from harness.record import store

ROOT = Path(__file__).parent.parent
_COLUMNS = ["case_id", "outcome", *("blame", "component", "place", "fault", "detail", "diagnosis")]


def environment(out: Path, pins: Sequence[str]) -> Path:
    """The Python of an environment with these packages."""
    python = out / "environment" / "bin" / "python"
    if not python.exists():
        venv.create(out / "environment", with_pip=True)
        named = {pin.partition("==")[0] for pin in pins}
        kept = [
            line
            for line in (ROOT / "ci" / "constraints.txt").read_text().splitlines()
            if line.partition("==")[0].strip() not in named
        ]
        constraints = out / "constraints.txt"
        constraints.write_text("\n".join([*kept, *pins, ""]))
        words = [python, "-m", "pip", "install", "-q", "-c", constraints, "-e", f"{ROOT}[cpu]", *pins]
        subprocess.run([*map(str, words)], check=True)
    return python


def sweep(python: Path, out: Path, options: Sequence[str]) -> Path:
    """The run of programs in an environment."""
    if not (out / "verdicts.parquet").exists():
        words = [python, "-m", "pytest", ROOT / "harness", "--programs", "--record-only", "-q", "-n", "2"]
        chosen = ["--converter", "dynamo", "--backend", "ort-cpu", "--results-dir", out, *options]
        with (out.parent / f"{out.name}.log").open("w") as log:
            places = {**os.environ, "PYTHONPATH": str(ROOT)}
            subprocess.run([*map(str, [*words, *chosen])], stdout=log, stderr=log, env=places, check=False)
    return out


def guilty(run: Path) -> Mapping[str, str]:
    """Component and rule or pass that breaks programs whose calls are right → a case that shows it."""
    found: dict[str, str] = {}
    for row in store.read(run, _COLUMNS).to_pylist():
        diagnosis = Diagnosis.from_row(row) if Outcome(row["outcome"]).is_failure else None
        if diagnosis is not None and COMPOSED in diagnosis.facts and diagnosis.rule in BY_PASS:
            found.setdefault(f"{row['component']}: {row['place']}", row["case_id"])
    return found


def main() -> None:
    """Print what was mended, and what is new."""
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pins", nargs="+", metavar="PACKAGE==VERSION")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words[:cut])
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    options = words[cut + 1 :]
    former = guilty(sweep(environment(out, given.pins), out / "former", options))
    today = guilty(sweep(Path(sys.executable), out / "today", options))
    for title, ours, theirs in (("mended since", former, today), ("new since", today, former)):
        print(f"{title}: {len(ours.keys() - theirs.keys())}")
        for place in sorted(ours.keys() - theirs.keys()):
            print(f"  {place}: case {ours[place]}")
    print(f"in both: {len(former.keys() & today.keys())}")


if __name__ == "__main__":
    main()
