"""Whether a case is ordinary use of its operator or an edge of it.

A case is **ordinary** where a model could well make its call. All of this holds:

- Its tensors are float32, float16 or int64, and so is a dtype that it asks for. A mask may be bool, and so
  may all tensors of an operator on truth values (``logical_not``, ``any``, ``where``).
- No tensor has a size of 0, and not every one is 0-d.
- Each tensor is contiguous, or contiguous with its dimensions in another order.
- Its values are finite and of everyday size: those of a recipe of an everyday style or of a domain that
  leaves no choice (indices, offsets), or numbers that the next point allows.
- Its numbers are finite and at most five digits large. None is negative zero or, but for 0, smaller than
  1e-12. A fill value may also be what masks are filled with, -inf or the lowest float32; an ``end`` may be
  the largest int64.

All others are **edge** cases: they find defects that a model rarely meets. The rule is frozen, so that shares
of runs of different dates are of the same kind of case. It reads nothing but a case's invocation.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.record import numbered_column

#: What `ordinary_rows` looks at. Cases of one structure differ in the values of their tensors only.
ORDINARY_COLUMNS = ("invocation", "structure_id")

_DTYPE = r'"dtype":"(?:float64|bfloat16|float8\w*|complex\w*|u?int8|u?int16|u?int32|uint64|u?q\w+)"'
_EMPTY = r'"(?:shape|size)":\[(?:\d+,)*0[,\]]'
_LAYOUT = r'"layout":"(?:sparse|jagged|_mkldnn)'
_COMPLEX_OR_NON_FINITE = r'\{"(?:complex|float)":'
_LARGE = r'(?:":|\[|\d,)-?\d{6}|\de\+\d'
_TINY = r"\de-(?:1[3-9]|[2-9]\d|\d{3})"
_NEGATIVE_ZERO = r"[\[,:]-0\.0[,\]}]"
#: Styles of `harness.core.values` that hold special values, extremes or either zero, by what they are of.
_SPEC = r'"strides":\[[\d,]*\],"offset":\d+,"recipe":\[\["'
_FREE = r"(?:any|finite|at_least|nonzero|ascending|descending)"
_EDGES = r"mixed|one|special|wide|saturating|(?:facing|every|alone|row|near) [^\"]*|equal [1-9]\d*"
_FLOAT_STYLE = rf'"float(?:32|16)",{_SPEC}{_FREE}"[^\]]*\],"(?:{_EDGES}|halves)"'
_INT_STYLE = rf'"int64",{_SPEC}{_FREE}"[^\]]*\],"(?:{_EDGES})"'
#: In a range, all but plain values are its ends and special values.
_RANGE_STYLE = rf'"float(?:32|16)",{_SPEC}range"[^\]]*\],"(?:{_EDGES}|halves|tied|decimals)"'
_OF_STRUCTURE = "|".join((_DTYPE, _EMPTY, _LAYOUT))
_OF_VALUES = "|".join(
    (_COMPLEX_OR_NON_FINITE, _LARGE, _TINY, _NEGATIVE_ZERO, _FLOAT_STYLE, _INT_STYLE, _RANGE_STYLE)
)
#: Numbers that models give although they look like edges.
_USUAL = (
    r'"(?:value|fill_value)":(?:\{"float":"-inf"\}|-3\.40282\d+e\+38)'
    r'|"end":9223372036854775807'
)
_TRUTH = (
    r'^\{"overload":"aten\.(?:logical_|bitwise_(?:and|or|not|xor)|all\.|any\.|where\.|__i?(?:and|or|xor)__)'
)
_TENSOR = re.compile(r'"shape":\[([\d,]*)\],"dtype":"\w+","strides":\[([\d,]*)\]')


def ordinary_rows(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Per row of the record, whether its case is ordinary; only `ORDINARY_COLUMNS` are looked at."""
    calls = rows["invocation"]
    structure, ids = numbered_column(rows["structure_id"])
    if len(ids) and pc.any(pc.equal(ids, "")).as_py():
        # Rows of an old version have none: each call is its own.
        structure, ids = numbered_column(calls)
    first = np.zeros(len(ids), dtype=np.int64)
    first[structure[::-1]] = np.arange(len(structure))[::-1]
    found: npt.NDArray[np.bool_] = _structures(calls.take(pa.array(first)).combine_chunks())[structure]
    start = 0
    # Chunk by chunk, in which the texts that are copied stay small.
    for chunk in calls.chunks:
        of_chunk = found[start : start + len(chunk)]
        of_chunk[of_chunk] = _values(chunk.filter(pa.array(of_chunk)))
        start += len(chunk)
    return found


def with_ordinary(rows: pa.Table) -> pa.Table:
    """Rows with a column ``ordinary``, true or false, in place of `ORDINARY_COLUMNS`: calls are long."""
    ordinary = pa.array(ordinary_rows(rows), pa.bool_())
    return rows.drop_columns(list(ORDINARY_COLUMNS)).append_column("ordinary", ordinary)


def _structures(calls: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether dtypes, shapes and layouts are ordinary."""
    tensors, sized = _matches(calls, r'"tensor":\{'), _matches(calls, r'"shape":\[\d')
    plain, truth = _matches(calls, r'"dtype":"(?:float32|float16|int64)","strides'), _matches(calls, _TRUTH)
    found = ~_matches(calls, _OF_STRUCTURE) & (~tensors | (sized & (plain | truth)))
    places = np.flatnonzero(found & tensors)
    texts = calls.take(pa.array(places)).to_pylist()
    found[places] = [all(_dense(*one) for one in _TENSOR.findall(text)) for text in texts]
    return found


def _values(calls: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether values of tensors and other numbers are ordinary."""
    return ~_matches(pc.replace_substring_regex(calls, _USUAL, '"usual":0'), _OF_VALUES)


def _matches(calls: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.match_substring_regex(calls, pattern).to_numpy(zero_copy_only=False)
    return found


@cache
def _dense(shape: str, strides: str) -> bool:
    """Whether a tensor is contiguous once its dimensions are sorted; comma-separated sizes and strides."""
    expected = 1
    if not shape:
        return True
    for stride, size in sorted(zip(map(int, strides.split(",")), map(int, shape.split(",")), strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
