"""What the arguments of a call tell of the place of a defect."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Words that choose among the algorithms of an operator, each of which a converter treats in its own way.
_CHOICE = re.compile(r'"(rounding_mode|reduce|approximate|mode)":"(\w+)"|"(align_corners)":(true)')
_COMPLEX = '"dtype":"complex'
_TENSOR = re.compile(r'"shape":\[(\d?)[\d,]*\],"dtype":"(\w+)"')
#: Dtypes with fewer digits than float64.
_SHORT = frozenset({"float32", "float16", "bfloat16"})
#: A regular expression that is found in every call that tells something.
TELLING_CALL = rf'{_CHOICE.pattern}|"shape":\[\]|{_COMPLEX}|\],"dtype":"float64"'


@dataclass(frozen=True, order=True)
class CallFacts:
    """What a call tells.

    Attributes:
        choice: The algorithm that it asks for: ``rounding_mode=floor``; "" where there is one only.
        only_single: Whether all of its tensors, of which it has some, are 0-d, and it asks for no dtype.
        has_single: Whether some of its tensors are 0-d.
        has_complex: Whether some of its tensors are complex.
        is_short: Whether it has tensors, and none of float64.
        is_mixed: Whether it has some of float64 and some of shorter floats.
    """

    choice: str = ""
    only_single: bool = False
    has_single: bool = False
    has_complex: bool = False
    is_short: bool = False
    is_mixed: bool = False


def call_facts(invocation: str) -> CallFacts:
    """Read them from an invocation, JSON."""
    choice = _CHOICE.search(invocation)
    tensors = _TENSOR.findall(invocation)
    dtypes = {dtype for _, dtype in tensors}
    single = [not size for size, _ in tensors]
    only_single = bool(single) and all(single) and '"dtype":{' not in invocation
    return CallFacts(
        choice="=".join(filter(None, choice.groups())) if choice else "",
        only_single=only_single,
        has_single=any(single),
        has_complex=_COMPLEX in invocation,
        is_short=bool(dtypes) and "float64" not in dtypes,
        is_mixed="float64" in dtypes and not dtypes.isdisjoint(_SHORT),
    )
