"""Conditions that all calls of a cause meet: what a defect depends on."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from harness.analyse.coded_rows import CodedRows
from harness.record import Numbers

#: A tensor has no dimensions; one has no elements; tensors have different ranks; all are of integers or truth
#: values; there is none.
SINGLE, EMPTY, RANKS, WHOLE, NO_TENSOR = "single", "empty", "ranks", "whole", "no tensor"
_NAMES = (SINGLE, EMPTY, RANKS, WHOLE, NO_TENSOR)
_TENSOR = '"shape":'
#: Tensors of each rank, of which no operator takes more dimensions.
_RANKS = (r'"shape":\[\]', *(rf'"shape":\[\d+(?:,\d+){{{more}}}\]' for more in range(8)))
_EMPTY = r'"shape":\[(?:\d+,)*0[\],]'
_NOT_WHOLE = r'\],"dtype":"(?:float|bfloat|complex)'
#: Up to which share of an operator's failing calls a condition says something of one of its defects.
_RARE = 0.5


@dataclass(frozen=True, kw_only=True)
class CallConditions:
    """What all failing calls of a cause have in common.

    Attributes:
        met: The conditions.
        rare: Those of them that most failing calls of the same operators do not meet.
        given: Of the arguments that are asked about, those that are given.
    """

    met: frozenset[str] = frozenset()
    rare: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()


def call_conditions(
    rows: CodedRows, cause: Numbers, count: int, asked: Collection[str] = ()
) -> list[CallConditions]:
    """Those of each cause, given each row's.

    Args:
        asked: Names of arguments, without the axis or what else ``scales`` has in ``scale_factors``.
    """
    words = rows.words("invocation")
    met = _met(words)[rows.numbers("invocation")]
    names = sorted(asked)
    # `null` is None.
    patterns = (rf'"{re.escape(name.removesuffix("s"))}\w*":[^n]' for name in names)
    given = [_matches(words, pattern)[rows.numbers("invocation")] for pattern in patterns]
    overload = rows.numbers("overload")
    failing = np.bincount(overload)
    by_overload = np.stack([np.bincount(overload, column, len(failing)) for column in met.T], axis=1)
    order = np.argsort(cause, kind="stable")
    found = []
    for part in np.split(order, np.searchsorted(cause[order], np.arange(1, count))):
        operators = np.unique(overload[part])
        share = by_overload[operators].sum(axis=0) / failing[operators].sum()
        common = np.logical_and.reduce(met[part])
        found.append(
            CallConditions(
                met=_named(common),
                rare=_named(common & (share < _RARE)),
                given=frozenset(name for name, some in zip(names, given, strict=True) if some[part].all()),
            )
        )
    return found


def _met(calls: pa.Array) -> npt.NDArray[np.bool_]:
    """Which conditions each call meets."""
    some = _matches(calls, _TENSOR)
    ranks = [_matches(calls, rank) for rank in _RANKS]
    conditions = (
        ranks[0],
        _matches(calls, _EMPTY),
        np.sum(ranks, axis=0) > 1,
        some & ~_matches(calls, _NOT_WHOLE),
        ~some,
    )
    return np.stack(conditions, axis=1)


def _matches(calls: pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.match_substring_regex(calls, pattern).to_numpy(zero_copy_only=False)
    return found


def _named(conditions: npt.NDArray[np.bool_]) -> frozenset[str]:
    return frozenset(name for name, holds in zip(_NAMES, conditions.tolist(), strict=True) if holds)
