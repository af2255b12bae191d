"""What operators return for tensors without values, without the work that only special cases need.

At each call PyTorch looks for constants, symbols, tensors of other kinds and rules of its own, or for the
same call in a cache. That takes longer than to find the result. Here a call whose tensors are all without
values, on the CPU and of known sizes goes at once the way that it would go in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from harness.convert.pointwise_forms import CallsAlike, Form, calls_alike, is_pointwise
from harness.convert.torch_private import part, replaceable
from harness.core import OpOverload, is_composite, pytree

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class _FakeParts:
    """What PyTorch has for tensors without values, see `harness.convert.torch_private.PARTS`."""

    dispatch: Callable[..., Any]
    tensor: type[Any]
    in_kernel: Callable[[Any], Any]
    rules: Mapping[Any, Callable[..., Any]]


@cache
def _parts() -> _FakeParts:
    return _FakeParts(replaceable("fake_dispatch").original, part("fake_tensor"), part("in_kernel"), part("fake_rules"))


@contextmanager
def quick_fakes() -> Iterator[None]:
    """Let operators find what they return for tensors without values by `fake_result` in this block."""
    with replaceable("fake_dispatch").replaced_by(fake_result):
        yield


def fake_result(
    mode: Any,
    func: Any,
    types: Sequence[type],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """What replaces the method of PyTorch's mode that every call goes through."""
    kwargs = kwargs or {}
    parts = _parts()
    by_decomposition = _by_decomposition(func)
    described = None if by_decomposition is None else _described(mode, parts.tensor, args, kwargs)
    if described is None:
        return parts.dispatch(mode, func, types, args, kwargs)
    device = kwargs.get("device") or _CPU
    call = (func, *described)
    form = _forms.get(call)
    alike = calls_alike(func, args, kwargs) if form is None and is_pointwise(func) else None
    if alike is not None:
        form = alike.known()
    if form is not None:
        with parts.in_kernel(mode):
            result = torch.empty_strided(form[0], form[1], dtype=form[2], device="meta")
        return parts.tensor(mode, result, device)
    if by_decomposition:
        with mode:
            result = by_decomposition(*args, **kwargs)
        if type(result) is parts.tensor and _is_new(result, args, kwargs):
            _remember(call, alike, result)
        return result
    rule = parts.rules.get(func)
    if rule is not None:
        result = rule(mode, func, *args, **kwargs)
        if result is not NotImplemented:
            return result
    try:
        with parts.in_kernel(mode):
            result = func(*args, **kwargs)
    except NotImplementedError:
        return parts.dispatch(mode, func, types, args, kwargs)
    if type(result) is not torch.Tensor:
        values = pytree.tree_leaves((args, kwargs))
        return mode.wrap_meta_outputs_with_default_device_logic(result, func, values, device=kwargs.get("device"))
    _remember(call, alike, result)
    return mode.fake_tensor_converter.from_meta_and_device(mode, result, device)


def _is_new(result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function in Python has made a tensor of known sizes on the CPU, and has not handed on
    another."""
    return (
        not result._is_view()
        and result.constant is None
        and result.fake_device == _CPU
        and not result._has_symbolic_sizes_strides
        and all(result is not value for value in pytree.tree_leaves((args, kwargs)))
    )


def _remember(call: tuple[Any, ...], alike: CallsAlike | None, result: torch.Tensor) -> None:
    """Note what a call returns, if that is a tensor with memory of its own."""
    if _is_fresh(call[0]) and not (result.is_conj() or result.is_neg() or result.storage_offset()):
        if len(_forms) >= _MOST_FORMS:
            _forms.clear()
        _forms[call] = form = tuple(result.shape), result.stride(), result.dtype
        if alike is not None:
            alike.learn(form)


#: Call, with descriptions in place of tensors → what it returns.
_forms: dict[tuple[Any, ...], Form] = {}
#: So many take some ten megabytes.
_MOST_FORMS = 20_000


def _described(mode: Any, kind: type[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Arguments with descriptions in place of tensors, which tell calls with other results apart.

    None unless at least one argument is a tensor, and all of them are without values, on the CPU and of known
    sizes.
    """
    described: list[Any] = [len(args), *kwargs]
    found = False
    for argument in (*args, *kwargs.values()):
        several = isinstance(argument, list | tuple)
        if several:
            described.append(len(argument))
        for value in argument if several else (argument,):
            if isinstance(value, torch.Tensor):
                if (
                    not isinstance(value, kind)
                    or value.fake_mode is not mode
                    or value.constant is not None
                    or value.fake_device != _CPU
                    or value._has_symbolic_sizes_strides
                ):
                    return None
                found = True
                described += (value.dtype, value.shape, value.stride(), value.is_conj(), value.is_neg())
            elif isinstance(value, _DESCRIBED):
                # One equals 1.0 and True.
                described += (type(value), value)
            else:
                return None
    return tuple(described) if found else None


_DESCRIBED = (
    *(int, float, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


@cache
def _is_fresh(func: OpOverload) -> bool:
    """Whether an operator returns a tensor with memory of its own."""
    return all(returned.alias_info is None for returned in func._schema.returns)


@cache
def _by_decomposition(func: Any) -> Any:
    """The function that PyTorch finds the result of an operator with, False for its own kernel; None where
    that is decided by more than the operator and its tensors."""
    if (
        not isinstance(func, OpOverload)
        or func.namespace not in ("aten", "prims")
        or func._schema.is_mutable
        or func in part("fake_mode").lift_fns
        or any(check(func) for check, _ in part("fake_checks")[1:])
    ):
        return None
    table = part("python_decompositions")
    if func not in part("meta_table") and not part("fake_mode").cpp_meta_supports_symint(part("fake_mode"), func):
        if func in table and part("is_torch_decomposition")(func):
            return table[func]
        if is_composite(func):
            return None
    if func.namespace == "prims":
        return func.prim_meta_impl if hasattr(func, "prim_meta_impl") else None
    return False if part("has_meta")(func) else None
