"""A condition of a call, and which two of them make a pair.

A condition is one thing that is so of a call, whatever else is: a dtype, a rank, a flag, an omitted argument,
a NaN in a tensor. Most defects that a single condition does not show need two of them at once, so that pairs
say how much of an operator's space was tried.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ConditionKind(StrEnum):
    """What a condition is about, as reports group them."""

    DTYPE = "dtype"
    PROMOTION = "promotion"
    RANK = "rank"
    SIZE = "size"
    LAYOUT = "layout"
    SHAPES = "shapes"
    PRESENCE = "presence"
    ATTRIBUTE = "attribute"
    SPELLING = "spelling"
    EXACTNESS = "exactness"
    DIMS = "dims"
    WINDOW = "window"
    VALUES = "values"
    INDICES = "indices"


#: Conditions of the values of tensors; all others are of the structure.
OF_VALUES = frozenset((ConditionKind.VALUES, ConditionKind.INDICES))
_OF_TENSORS = (
    frozenset(
        (
            ConditionKind.DTYPE,
            ConditionKind.PROMOTION,
            ConditionKind.RANK,
            ConditionKind.SIZE,
            ConditionKind.LAYOUT,
            ConditionKind.SHAPES,
        )
    )
    | OF_VALUES
)


class Condition(NamedTuple):
    """One condition.

    Attributes:
        kind: What it is about.
        subject: The argument that it is about; "" for the whole call.
        about: Of conditions that are about the same a call has one; of values, one or more.
        name: For people, unique within an operator: ``self rank 0``, ``keepdim=True``, ``self NaN``. Where
            `harness.analyse.argument_coverage` names the same point, the name is the same.
    """

    kind: ConditionKind
    subject: str
    about: str
    name: str

    @property
    def is_of_values(self) -> bool:
        """Whether it depends on the values of tensors, and not on the structure alone."""
        return self.kind in OF_VALUES


def make_pair(a: Condition, b: Condition) -> bool:
    """Whether two conditions say more together than each alone, and neither follows from the other."""
    if a.about == b.about:
        return False
    if a.subject != b.subject or not a.subject:
        return True
    if ConditionKind.PRESENCE in (a.kind, b.kind) or not (a.kind in _OF_TENSORS and b.kind in _OF_TENSORS):
        # What an argument is follows from what it is exactly.
        return False
    # A single number has no layout, and nothing has no values.
    ranks, sizes = (
        next((c.name for c in (a, b) if c.kind is kind), "") for kind in (ConditionKind.RANK, ConditionKind.SIZE)
    )
    if ranks.endswith(" rank 0") and {a.kind, b.kind} & {ConditionKind.SIZE, ConditionKind.LAYOUT}:
        return False
    return not (sizes.endswith((" size 0", " one element")) and {a.kind, b.kind} & {ConditionKind.LAYOUT, *OF_VALUES})
