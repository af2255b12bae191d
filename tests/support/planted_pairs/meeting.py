"""The drawn calls of a run that meet two conditions at once."""

from __future__ import annotations

from collections.abc import Iterator

from planted.pair_conditions import Conjunction, seen

from harness.core.invocation import Invocation
from harness.generate.draws import draw_examples
from harness.generate.operator_case import OPERATOR_CASES


def meeting(pair: Conjunction, seed: int, examples: int) -> Iterator[Invocation]:
    """The drawn calls of a run that meet a pair, one of each structure."""
    case = OPERATOR_CASES[pair.overload]
    for drawn in draw_examples(case, seed=seed, examples=examples):
        if pair.is_structural and not pair.holds(seen(drawn.invocations[0])):
            continue
        yield from [call for call in drawn.invocations if pair.holds(seen(call))][:1]
