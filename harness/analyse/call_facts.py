"""What the arguments of a call tell of the place of a defect."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Words that choose among the algorithms of an operator, each of which a converter treats in its own way.
_CHOICE = re.compile(r'"(rounding_mode|reduce|approximate|mode)":"(\w+)"|"(align_corners)":(true)')
_COMPLEX = '"dtype":"complex'
_SHAPE = re.compile(r'"shape":\[(\d?)')
#: A regular expression that is found in every call that tells something.
TELLING_CALL = rf'{_CHOICE.pattern}|"shape":\[\]|{_COMPLEX}'


@dataclass(frozen=True, order=True)
class CallFacts:
    """What a call tells.

    Attributes:
        choice: The algorithm that it asks for: ``rounding_mode=floor``; "" where there is one only.
        only_single: Whether all of its tensors, of which it has some, are 0-d, and it asks for no dtype.
        has_complex: Whether some of its tensors are complex.
    """

    choice: str = ""
    only_single: bool = False
    has_complex: bool = False


def call_facts(invocation: str) -> CallFacts:
    """Read them from an invocation, JSON."""
    choice = _CHOICE.search(invocation)
    sizes = _SHAPE.findall(invocation)
    only_single = bool(sizes) and not any(sizes) and '"dtype":{' not in invocation
    return CallFacts(
        "=".join(filter(None, choice.groups())) if choice else "", only_single, _COMPLEX in invocation
    )
