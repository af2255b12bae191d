"""Calls of operators for which the TorchScript exporter has no symbolic function, by kind.

Such a call fails where its operator is looked up. What comes before that, tracing and the first passes over
the program, sees the types of a call's arguments and not what they hold: where one call gets as far as to be
looked up, all of its kind do, and fail there in the same words.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch

from harness.convert.operator_calls import OperatorCall
from harness.convert.torch_private import PrivatePartMissing, script_symbolic_versions
from harness.core import TENSOR_PLACE, OpOverload


def kinds_of_unknown(calls: Sequence[OperatorCall]) -> list[list[int]]:
    """Those of some calls whose operator has no symbolic function at any opset, by their places: a list for
    each kind."""
    kinds: dict[Hashable, list[int]] = {}
    for index, one in enumerate(calls):
        # What takes no tensor may be computed before anything is looked up.
        if one.tensors and _is_unknown(one.call.target):
            named = tuple((name, _kind(argument)) for name, argument in one.call.keywords)
            given = tuple(map(_kind, one.call.positional))
            kinds.setdefault((one.call.target, given, named), []).append(index)
    return list(kinds.values())


def is_unknown_itself(call: OperatorCall, error: Exception | None) -> bool:
    """Whether the exporter says of the very operator of a call, and of no other, that it does not know it."""
    if not isinstance(error, torch.onnx.errors.UnsupportedOperatorError):
        return False
    return f"operator '{_name(call.call.target)}' to" in str(error)


def _is_unknown(target: object) -> bool:
    try:
        return isinstance(target, OpOverload) and not script_symbolic_versions(_name(target))
    except PrivatePartMissing:
        return False


def _name(target: Any) -> str:
    """As the exporter knows an operator: ``aten::celu``."""
    return str(target._schema.name)


def _kind(argument: object) -> Any:
    if isinstance(argument, list):
        return frozenset(map(_kind, argument))
    return torch.Tensor if argument is TENSOR_PLACE else type(argument)
