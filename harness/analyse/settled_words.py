"""What is wrong at a place where a wrong element alone does not tell.

One element may be inexact or infinite for several reasons. What else is wrong in the same function decides:

| an element | and beside it | is |
| --- | --- | --- |
| as exact as float32 | what shows another dtype | computed in that |
| as exact as float32, of a float32 | what leaves the range | of the same formula |
| inexact otherwise, of float64 | one that is as exact as float32 | the same: the rest cancels out |
| infinite, where float32 ends | a result that is cast to float32 | the same: it has no room |
| anything, which a cast leaves open | an end of the integers | of the same cast |
| near the right one | what leaves the range | of the same formula, which is not stable |
| as exact as float32, of a kernel for float64 | one that is exact in another degree | as inexact as that |
| wrong or zero, of a kernel | one that is near the right one | as inexact, and what is left of it |
| NaN, of a kernel | an infinity | of the same overflow |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from harness.analyse.blamed_place import ANOTHER_DTYPE, LEAVES_RANGE, LOSES_DIGITS, RESTS_ON_CAST
from harness.analyse.failure_key import Cause
from harness.analyse.kernel_fault import (
    INEXACT_FLOAT64,
    INEXACT_NUMBERS,
    MAKES_INFINITIES,
    MAKES_NAN,
    NARROW_FLOAT64,
    SMALL_NUMBERS,
    WRONG_NUMBERS,
)
from harness.analyse.wrong_elements import BEYOND, CANCELLED, CAST, DIGITS, INEXACT, LEFT, THROUGH_INTEGERS
from harness.compare import BACKEND

#: What a kernel gives → what that is where it gives this, too.
_OF_KERNELS = {
    WRONG_NUMBERS: (INEXACT_NUMBERS, INEXACT_FLOAT64),
    SMALL_NUMBERS: (INEXACT_NUMBERS, INEXACT_FLOAT64),
    NARROW_FLOAT64: (INEXACT_FLOAT64,),
    MAKES_NAN: (MAKES_INFINITIES,),
}


def settled_words(causes: Sequence[Cause], places: Sequence[Hashable]) -> list[str]:
    """The words of causes, by what is wrong beside each in its place."""
    here: defaultdict[Hashable, set[tuple[str, str]]] = defaultdict(set)
    for cause, place in zip(causes, places, strict=True):
        here[place].add((cause.words, cause.element))
    return [_settled(cause, here[place]) for cause, place in zip(causes, places, strict=True)]


def _settled(cause: Cause, here: set[tuple[str, str]]) -> str:
    words, element = cause.words, cause.element
    if cause.blame == BACKEND:
        said_here = {said for said, _ in here}
        return next((as_well for as_well in _OF_KERNELS.get(words, ()) if as_well in said_here), words)
    narrow = any(said == ANOTHER_DTYPE for said, _ in here)
    if words == LOSES_DIGITS:
        return ANOTHER_DTYPE if narrow else words
    if words == LEAVES_RANGE:
        return ANOTHER_DTYPE if element == BEYOND and (ANOTHER_DTYPE, CAST) in here else words
    if words == RESTS_ON_CAST:
        return "values" if ("values", THROUGH_INTEGERS) in here else words
    if words != "values" or element not in (DIGITS, CANCELLED, INEXACT):
        return words
    shown = any(said in (ANOTHER_DTYPE, LOSES_DIGITS) and kind in (CAST, DIGITS) for said, kind in here)
    if (narrow and element == DIGITS) or (shown and element == CANCELLED):
        return ANOTHER_DTYPE if narrow else LOSES_DIGITS
    return LEAVES_RANGE if (LEAVES_RANGE, LEFT) in here else words
