#!/usr/bin/env python3
"""Change `[more]` of `cases/budget.toml`: which operators need more structures, so that enough of them are compared.

    python ci/tables/more_structures.py RUN        # a default run

Of an operator that models call in float32, 48 structures in float32 and 24 in each of float16 and bfloat16 are to reach
the comparison. Its part of the budget grows by what the run lacks, up to two and a half times. A dtype in which hardly
any call gets so far has other reasons, and asks for nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import duckdb

from harness.generate.case_library import BUDGET, load_cases
from harness.generate.cases_home import cases_directory

#: Dtype → structures that are to be compared.
_WANTED = {"float32": 48, "float16": 24, "bfloat16": 24}
#: Structures that get so far, at least, where more draws help.
_FEWEST = 6
_MOST, _SLACK = 2.5, 0.02
_HEAD = """\
# So many times as much as the others have, so that 48 structures in float32 and 24 in each half precision are
# compared. `ci/tables/more_structures.py` writes it, from a default run.
"""
_QUERY = """
    SELECT overload, dtype, count(DISTINCT structure_id) FILTER (WHERE stage = 'compare')
    FROM read_parquet(?, union_by_name = true)
    WHERE shape_mode = 'static'
    GROUP BY overload, dtype
"""


def factors(run: Path) -> dict[str, float]:
    """Overload → how many times the structures it has are needed, for those that need more."""
    files = [str(path) for path in run.rglob("*.parquet")]
    compared = {(overload, dtype): n for overload, dtype, n in duckdb.execute(_QUERY, [files]).fetchall()}
    found = {}
    for overload, case in load_cases().items():
        reached = {dtype: compared.get((overload, dtype), 0) for dtype in _WANTED if "float32" in case.used}
        lacking = [_WANTED[dtype] / n for dtype, n in reached.items() if _FEWEST <= n < _WANTED[dtype]]
        if lacking:
            found[overload] = round(min(case.more * max(lacking), _MOST) + _SLACK, 2)
        elif case.more > 1:
            found[overload] = case.more
    return found


def main() -> None:
    """Write the table anew, behind the lists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    found = factors(parser.parse_args().run)
    path = cases_directory() / BUDGET
    lists = re.split(r"^# So many times|^\[more\]", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    rows = "".join(f'"{overload}" = {factor}\n' for overload, factor in sorted(found.items()))
    path.write_text(f"{lists.rstrip()}\n\n{_HEAD}[more]\n{rows}", encoding="utf-8")
    print(f"{len(found)} operators in {path}")


if __name__ == "__main__":
    main()
