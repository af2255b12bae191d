"""Calls that PyTorch does not agree with itself about: no golden is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from harness.core import IsolatedCalls
from harness.gate.golden.golden import Golden
from harness.gate.golden.verify import GoldenDifference, Said, differences, today

#: PyTorch's kernels for a CPU without vector instructions.
_PLAIN_CPU = {"ATEN_CPU_CAPABILITY": "default"}


def disputed(goldens: Sequence[Golden], *, timeout: float) -> list[GoldenDifference]:
    """What PyTorch says otherwise when it is asked again.

    That is, differently in a bit where nothing but memory that it has not written differs; or wrongly, as
    the judge has it, on a CPU without vector instructions, where last places may differ.
    """
    with IsolatedCalls(timeout=timeout) as process:
        found = list(differences(goldens, _today_with_other_memory, process))
    with IsolatedCalls(timeout=timeout, environment=_PLAIN_CPU) as process:
        found += [d for d in differences(goldens, today, process) if d.is_wrong]
    return found


def undisputed(goldens: Iterable[Golden], found: Iterable[GoldenDifference]) -> tuple[Golden, ...]:
    """Those that nothing was found about."""
    ids = {difference.golden.case_id for difference in found}
    return tuple(golden for golden in goldens if golden.case_id not in ids)


def _today_with_other_memory(golden: Golden) -> Said:
    # What is allocated is filled with NaN or the largest integer then.
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return today(golden)
    finally:
        torch.use_deterministic_algorithms(False)
