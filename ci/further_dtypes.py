"""Rewrite `cases/dtypes.toml`: the dtypes that PyTorch takes beyond those that operator cases declare.

    python ci/further_dtypes.py

A dtype is added to an operator when PyTorch takes nearly every draw about it. Run it after adding
operators or moving to a new PyTorch; `pytest harness --generator-report` says when it is due.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import cases
from harness.dtypes import ALL, INT_RANGE
from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OperatorCase
from harness.reach.asker import Asker
from harness.reach.survey import ACCEPTED

#: Draws of which PyTorch must take its share.
_DRAWS = 32
#: Draws after which a dtype of which none was taken is given up.
_GLANCE = 4


def further(case: OperatorCase, asker: Asker) -> tuple[str, ...]:
    """The dtypes that `case` could draw as well."""
    found = []
    for dtype in (*ALL, *(name for name in INT_RANGE if name not in ALL)):
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


def main() -> None:
    """Ask about every operator and write the file."""
    together: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    with Asker() as asker:
        for overload, case in cases.declared().items():
            together[further(case, asker)].append(overload)
    together.pop((), None)
    lines = [
        "# Dtypes that PyTorch's CPU kernels take beyond those that operator cases declare, found by asking",
        "# it: written by `python ci/further_dtypes.py`. Each comes after the declared ones in its turn.",
    ]
    for dtypes, overloads in sorted(together.items()):
        lines += ["", "[[further]]", f"dtypes = {list(dtypes)}".replace("'", '"'), "overloads = ["]
        lines += [f'    "{overload}",' for overload in sorted(overloads)]
        lines += ["]"]
    (cases.FURTHER_DTYPES).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
