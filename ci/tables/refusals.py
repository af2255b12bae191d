#!/usr/bin/env python3
"""Change `cases/refusals.toml`: the conditions under which no exporter and runtime takes an operator.

    python ci/tables/refusals.py --out DIR                # of operators that models call: ten minutes on two cores
    python ci/tables/refusals.py --out DIR --run RUN      # of a run of both converters that is there already

A call is refused where every converter's export, or every backend's loading, fails. Such calls say one thing again
and again, and crowd out calls that are compared; so a run draws few of them.

1. Run the operators, many structures with one draw of values each, with `refusals.toml` empty.
2. A dtype in which all calls of an operator are refused is a condition, float16 and bfloat16 excepted: GPUs have
   kernels for these where CPUs have none.
3. Of the calls that are left, take the condition under which all are refused and that is the least likely to be so by
   chance, until none is unlikely enough; leave out its calls each time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import duckdb

from harness.core.invocation import Invocation
from harness.generate.case_library import REFUSALS, load_cases
from harness.generate.cases_home import cases_directory
from harness.generate.pairs.table import structure_conditions

#: Structures of each operator.
_STRUCTURES = 320
#: Calls that a condition needs, and how likely chance alone may refuse them all.
_FEWEST, _CHANCE = 5, 1e-4
#: Ends of the names of conditions that stay.
_KEPT = ("float16",)

#: The names of a call's conditions, and whether it is refused.
Call = tuple[frozenset[str], bool]

_QUERY = """
    SELECT overload, any_value(invocation), NOT bool_or(stage IN ('run', 'compare') OR outcome = 'pass')
    FROM read_parquet(?, union_by_name = true)
    WHERE shape_mode = 'static' AND source = 'generated'
    GROUP BY overload, structure_id
    HAVING NOT bool_or(outcome = 'skip')
    ORDER BY overload, structure_id
"""


def run(out: Path) -> Path:
    """Record calls of the operators that models call."""
    overloads = [name for name, case in load_cases().items() if case.used]
    command = [sys.executable, "-m", "pytest", "harness", "-n", "2", "-q", "-p", "no:cacheprovider", "--record-only"]
    command += ["--converter", "dynamo", "--converter", "torchscript", "--backend", "ort-cpu", "--shapes", "static"]
    command += ["--source", "generated", "--values", "1", "--examples", str(_STRUCTURES), "--no-blame"]
    command += [f"--results-dir={out}", *(word for name in overloads for word in ("--op", name))]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    return out


def calls_of(recorded: Path) -> Mapping[str, list[Call]]:
    """Overload → its calls."""
    found: defaultdict[str, list[Call]] = defaultdict(list)
    files = [str(path) for path in recorded.rglob("*.parquet")]
    for overload, text, refused in duckdb.execute(_QUERY, [files]).fetchall():
        names = frozenset(condition.name for condition in structure_conditions(Invocation.from_json(text)))
        found[overload].append((names, refused))
    return found


def refusals(calls: list[Call]) -> list[str]:
    """The conditions under which all calls of one operator are refused."""
    if all(refused for _, refused in calls):
        return []
    taken = {name for names, refused in calls if not refused for name in names}
    often = Counter(name for names, _ in calls for name in names if name not in taken)
    dtypes = sorted(name for name, n in often.items() if name.startswith("dtype ") and n >= _FEWEST)
    left = [(names, refused) for names, refused in calls if names.isdisjoint(dtypes)]
    return [name for name in (*dtypes, *_unlikely(left, taken)) if not name.endswith(_KEPT)]


def _unlikely(left: list[Call], taken: set[str]) -> Iterator[str]:
    while left:
        often = Counter(name for names, _ in left for name in names if name not in taken)
        share = (sum(refused for _, refused in left) + 1) / (len(left) + 2)
        name, count = max(often.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        if count < _FEWEST or share**count > _CHANCE:
            return
        yield name
        left = [(names, refused) for names, refused in left if name not in names]


def main() -> None:
    """Run, decide, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where the run is recorded")
    parser.add_argument("--run", action="store_true", help="the run is there already")
    given = parser.parse_args()
    path = cases_directory() / REFUSALS
    if not given.run:
        path.write_text("", encoding="utf-8")
        run(given.out)
    found = {overload: refusals(calls) for overload, calls in sorted(calls_of(given.out).items())}
    lines = [
        "# Conditions under which no tested exporter and runtime takes an operator that models call: few draws have",
        "# them. Written by `python ci/tables/refusals.py`.",
    ]
    for overload, names in found.items():
        if names:
            words = "".join(f'    "{name}",\n' for name in names)
            lines.append(f'"{overload}" = [\n{words}]')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{sum(map(bool, found.values()))} of {len(found)} operators are refused under some condition; see {path}")


if __name__ == "__main__":
    main()
