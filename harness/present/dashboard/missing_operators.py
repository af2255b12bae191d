"""Which operators a run has lost: those of a shard that did not finish, and those that a killed run lacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.gate import Numbers
from harness.present.dashboard.coded import CodedRun, Words
from harness.present.dashboard.runs import COMPLETE, SiteRun
from harness.record import ShardState


def lost_operators(runs: Sequence[SiteRun], coded: Sequence[CodedRun], words: Words) -> list[Numbers]:
    """Per run, the operators of which it says too little to be believed.

    Of a run that was killed, or a shard of which is gone without a word of what it held, these are the
    operators that it has no row of and that the nearest complete run of every operator has; of the others it
    cannot be known.
    """
    present = [np.unique(one.operator) for one in coded]
    whole = [n for n, run in enumerate(runs) if run.state == COMPLETE and run.takes_all]
    lost = []
    for number, run in enumerate(runs):
        named = words.operators.numbers(sorted(run.unfinished))
        silent = any(s.state is ShardState.MISSING and not s.unfinished for s in run.info.shards)
        killed = run.info.finished is None or silent
        if killed and run.takes_all and whole:
            nearest = min(whole, key=lambda other: (abs(other - number), other))
            named = np.union1d(named, np.setdiff1d(present[nearest], present[number]))
        lost.append(np.unique(named))
    return lost


def without(run: CodedRun, lost: Numbers) -> CodedRun:
    """A run's rows without those of operators that it has lost."""
    if not len(lost):
        return run
    keep = ~np.isin(run.operator, lost)
    return CodedRun(**{name: values[keep] for name, values in vars(run).items()})
