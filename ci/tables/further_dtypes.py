"""Change `cases/dtypes.toml`: dtypes and promotions that PyTorch takes beyond those that cases declare.

    python ci/tables/further_dtypes.py                    # of every operator: ten minutes
    python ci/tables/further_dtypes.py celu 'aten.add.*'  # of some, the others staying as they are

A dtype, or a pair of arguments of different kinds, is added to an operator when PyTorch takes nearly every
draw that has it. Run it for operators that `pytest harness --generator-report` says miss dtypes or
promotions: new ones, or all of them with a new PyTorch.
"""

from __future__ import annotations

import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from harness.core.dtypes import ALL, WIDE_UNSIGNED
from harness.core.overloads import match
from harness.coverage.asker import Asker
from harness.coverage.dtype_points import named
from harness.coverage.exceptions import excuses
from harness.coverage.survey import ACCEPTED, survey
from harness.generate.case_library import FURTHER_DTYPES, declared_cases
from harness.generate.cases_home import cases_directory
from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OperatorCase
from harness.generate.promotion import Promotion

#: Draws of which PyTorch must take its share.
_DRAWS = 48
#: Draws after which a dtype of which none was taken is given up.
_GLANCE = 4

Table = dict[str, tuple[object, ...]]


def further_dtypes(case: OperatorCase, asker: Asker) -> tuple[str, ...]:
    """The dtypes that `case` could draw as well."""
    found = []
    for dtype in (*ALL, *WIDE_UNSIGNED):
        if dtype in case.dtypes:
            continue
        try:
            calls = draw_invocations(replace(case, dtypes=(dtype,)), seed=1, count=_DRAWS)
            if not any(spec.dtype == dtype for call in calls for spec in call.tensors()):
                continue
            taken = [answer.taken for answer in asker.ask(calls[:_GLANCE])]
            if any(taken):
                taken += [answer.taken for answer in asker.ask(calls[_GLANCE:])]
                if sum(taken) >= ACCEPTED * len(calls):
                    found.append(dtype)
        except (KeyError, IndexError, ValueError):
            # The case draws values or arguments that this dtype has not.
            continue
    return tuple(found)


def further_promotions(case: OperatorCase, asker: Asker) -> tuple[Promotion, ...]:
    """The pairs that `case` could draw as well."""
    missed = survey(case, asker, excuses=excuses(), thorough=False, groups=("promotion",)).missed
    found = tuple(pair for miss in missed if (pair := named(miss.point)))

    def well_taken(pairs: tuple[Promotion, ...]) -> bool:
        calls = draw_invocations(replace(case, promotions=pairs), seed=1, count=_DRAWS)
        return sum(answer.taken for answer in asker.ask(calls)) >= ACCEPTED * len(calls)

    return found if well_taken(found) else tuple(pair for pair in found if well_taken((pair,)))


def main(patterns: list[str]) -> None:
    """Ask about the operators and write the file."""
    dtypes, promotions = _read()
    declared = declared_cases()
    chosen = [name for p in patterns for name in match(p, list(declared))] if patterns else list(declared)
    with Asker() as asker:
        for overload in chosen:
            case = declared[overload]
            dtypes[overload] = further_dtypes(case, asker)
            case = replace(case, dtypes=(*case.dtypes, *dtypes[overload]))  # type: ignore[arg-type]
            promotions[overload] = tuple(astuple(pair) for pair in further_promotions(case, asker))
    _write(
        {name: found for name, found in dtypes.items() if name in declared},
        {name: found for name, found in promotions.items() if name in declared},
    )


def _read() -> tuple[Table, Table]:
    data = tomllib.loads((cases_directory() / FURTHER_DTYPES).read_text(encoding="utf-8"))
    return (
        {name: tuple(e["dtypes"]) for e in data["dtypes"] for name in e["overloads"]},
        {name: tuple(tuple(p) for p in e["pairs"]) for e in data["promotions"] for name in e["overloads"]},
    )


def _write(dtypes: Mapping[str, tuple[object, ...]], promotions: Mapping[str, tuple[object, ...]]) -> None:
    lines = [
        "# Dtypes and promotions that PyTorch's CPU kernels take beyond those that operator cases declare,",
        "# found by asking it: written by `python ci/tables/further_dtypes.py`. A promotion is a tensor argument,",
        "# its kind, another argument, and the kind of that.",
        *_entries("dtypes", "dtypes", dtypes),
        *_entries("promotions", "pairs", promotions),
    ]
    (cases_directory() / FURTHER_DTYPES).write_text("\n".join(lines) + "\n")


def _entries(table: str, key: str, found: Mapping[str, tuple[object, ...]]) -> Iterator[str]:
    together: defaultdict[tuple[object, ...], list[str]] = defaultdict(list)
    for overload, values in found.items():
        if values:
            together[values].append(overload)
    for values, overloads in sorted(together.items(), key=repr):
        yield from ("", f"[[{table}]]", f"{key} = [")
        yield from (
            f'    "{v}",' if isinstance(v, str) else f"    {list(v)},".replace("'", '"')  # type: ignore[call-overload]
            for v in values
        )
        yield from ("]", "overloads = [")
        yield from (f'    "{overload}",' for overload in sorted(overloads))
        yield "]"


if __name__ == "__main__":
    main(sys.argv[1:])
