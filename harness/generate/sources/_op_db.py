"""Captures ATen calls while PyTorch's `op_db` runs its samples. Runs in a process of its own."""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from harness.core.dtypes import ALL, is_float
from harness.core.invocation import Argument, Enumerated, Invocation, Literal, Recipe, TensorSpec
from harness.core.overloads import all_overloads
from harness.core.tensors import bind, build_tensors, overload
from harness.core.torch_operators import (
    COMPOSITE,
    OpOverload,
    TorchDispatchMode,
    is_composite,
    op_db,
    python_dispatcher,
)

#: A tensor up to this many storage elements keeps its values: most samples are smaller, and indices,
#: boundaries and matrices with a property lie below. A larger floating one is drawn in its range.
_LITERAL = 1024
#: Larger storage makes a sample too slow to be worth it.
_LARGEST = 2**16
#: Samples that are captured for each that is wanted, so that the choice is spread over all of them.
_SURPLUS = 4


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A request to capture samples.

    Attributes:
        overload: Dotted name.
        dtypes: Dtypes of the samples, in order of preference.
        only_these: Whether invocations of other dtypes are useless.
        seed: Seed of the samples' values.
        count: Maximum number of invocations.
        literal: Whether floating tensors keep their values, as far as they are small.
    """

    overload: str
    dtypes: tuple[str, ...]
    only_these: bool
    seed: int
    count: int
    literal: bool


@dataclass(frozen=True)
class Captured:
    """The captured samples.

    Attributes:
        invocations: Distinct invocations of the wanted overload.
        others: All other functional overloads that were called meanwhile.
    """

    invocations: tuple[Invocation, ...]
    others: tuple[str, ...]


class _Unwanted(Exception):
    """A captured call that cannot be written as an invocation."""


def prepare() -> None:
    """Prepare the process that captures."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)


def capture(wanted: Wanted) -> Captured:
    """Run samples and keep the calls of one overload.

    An operator's own entries come first; where they do not call the overload, all that do.
    """
    composite = _is_composite(wanted.overload)
    entries = _own_entries(wanted.overload)
    found, others = _capture_entries(wanted, entries, composite)
    if not found:
        calling, everything = _index(composite)
        others |= everything
        found, _ = _capture_entries(wanted, calling.get(wanted.overload, ()), composite)
    others.discard(wanted.overload)
    return Captured(_spread(found, wanted.count), tuple(sorted(others)))


def _capture_entries(
    wanted: Wanted, entries: Sequence[int], composite: bool
) -> tuple[dict[str, list[Invocation]], set[str]]:
    """Return valid, distinct invocations by dtype, and the overloads that were called."""
    found: dict[str, dict[str, Invocation]] = defaultdict(dict)
    called: set[str] = set()

    def see(target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        called.add(str(target))
        if str(target) != wanted.overload:
            return
        try:
            invocation = _invocation(target, args, kwargs, wanted)
        except _Unwanted:
            return
        if invocation.dtype in wanted.dtypes or not wanted.only_these:
            found[invocation.dtype].setdefault(invocation.case_id, invocation)

    enough = -(-wanted.count * _SURPLUS // max(len(wanted.dtypes), 1))
    for dtype in wanted.dtypes:
        for entry in entries:
            if sum(map(len, found.values())) >= wanted.count * _SURPLUS and len(found[dtype]) >= enough:
                break
            for run in _calls(entry, dtype, wanted.seed):
                _watched(run, see, composite)
    valid = {dtype: [i for i in cases.values() if _is_accepted(i)] for dtype, cases in found.items()}
    return {dtype: cases for dtype, cases in valid.items() if cases}, {n for n in called if _is_functional(n)}


def _spread(found: Mapping[str, Sequence[Invocation]], count: int) -> tuple[Invocation, ...]:
    """Choose at most `count` invocations: dtypes in turn, and each dtype's samples evenly from first to last."""
    share = dict.fromkeys(found, 0)
    left = min(count, sum(map(len, found.values())))
    while left:
        for dtype in share:
            if left and share[dtype] < len(found[dtype]):
                share[dtype] += 1
                left -= 1
    return tuple(
        found[dtype][i * len(found[dtype]) // number] for dtype, number in share.items() for i in range(number)
    )


# The database


@cache
def _database() -> list[Any]:
    return op_db()


def _own_entries(name: str) -> list[int]:
    """Return the entries with the operator's name, or with an alias of that name."""
    packet = name.split(".")[1]
    words = {packet, packet.lstrip("_")}
    return [i for i, entry in enumerate(_database()) if words & set(_names(entry))]


def _names(entry: Any) -> Iterator[str]:
    for name in (entry.name, entry.aten_name, *(alias.name for alias in entry.aliases)):
        yield name.replace(".", "_")
        yield name.rpartition(".")[2]


@cache
def _index(composite: bool) -> tuple[dict[str, list[int]], set[str]]:
    """Find the entries that call each overload by running the samples of one dtype, which takes some seconds."""
    calling: dict[str, list[int]] = defaultdict(list)
    for entry, info in enumerate(_database()):
        known = {str(dtype).removeprefix("torch."): None for dtype in info.supported_dtypes("cpu")}
        dtype = next((d for d in ALL if d in known), None)
        called: set[str] = set()
        if dtype is not None:
            for run in _calls(entry, dtype, 0):
                _watched(run, partial(_note, called), composite)
        for name in called:
            calling[name].append(entry)
    return calling, {name for name in calling if _is_functional(name)}


def _note(called: set[str], target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    called.add(str(target))


def _calls(entry: int, dtype: str, seed: int) -> Iterator[Callable[[], Any]]:
    """Yield the samples of one entry, by each of its names; nothing if it does not take the dtype."""
    info = _database()[entry]
    kind = getattr(torch, dtype)
    if kind not in info.supported_dtypes("cpu"):
        return
    for seeded in (torch.manual_seed, random.seed, np.random.seed):
        seeded(seed % 2**32)
    # Left alone, it takes a seed of its own before each sample.
    for sample in info.sample_inputs("cpu", kind, set_seed=False):
        for function in (info.op, *(alias.op for alias in info.aliases)):
            yield partial(function, sample.input, *sample.args, **sample.kwargs)


# Watching


def _watched(
    run: Callable[[], Any],
    see: Callable[[OpOverload, Sequence[Any], Mapping[str, Any]], None],
    composite: bool,
) -> None:
    """Run a sample and report the ATen calls that it makes.

    Args:
        run: A sample that PyTorch rejects, such as one for other devices, is none.
        see: Told of each call, before it is made.
        composite: Whether to report operators that PyTorch takes apart before a dispatch mode sees them.
            Others may then be decomposed, too, by decompositions that Python registers for them.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(_Mode(see))
        if composite:
            _hook_composites()
            _LISTENERS.append(see)
            stack.callback(_LISTENERS.pop)
            stack.enter_context(python_dispatcher())
        try:
            run()
        except Exception:
            return


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, see: Callable[..., None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._see(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


#: The listener for calls of composite operators; at most one.
_LISTENERS: list[Callable[..., None]] = []


def _is_composite(name: str) -> bool:
    try:
        return is_composite(overload(name))
    except LookupError:
        return False


@cache
def _hook_composites() -> None:
    """Have every composite operator report its calls while the Python dispatcher is on."""
    for name in all_overloads():
        if _is_composite(name):
            target = overload(name)

            def report(*args: Any, target: OpOverload = target, **kwargs: Any) -> Any:
                for listener in _LISTENERS:
                    listener(target, args, kwargs)
                return target._op_dk(COMPOSITE, *args, **kwargs)

            target.py_kernels.pop(COMPOSITE, None)
            target.py_impl(COMPOSITE)(report)


def _is_functional(name: str) -> bool:
    try:
        return name.startswith("aten.") and not overload(name)._schema.is_mutable
    except LookupError:
        return False


# Converting


def _invocation(target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], wanted: Wanted) -> Invocation:
    names = [argument.name for argument in target._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    arguments = tuple((name, _argument(given[name], wanted)) for name in names if name in given)
    return Invocation(wanted.overload, arguments)


def _argument(value: Any, wanted: Wanted) -> Argument:
    if isinstance(value, torch.Tensor):
        return _tensor(value, wanted)
    if isinstance(value, list | tuple):
        return tuple(_argument(element, wanted) for element in value)
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format | torch.device):
        return Enumerated(type(value).__name__, str(value).removeprefix("torch."))
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    raise _Unwanted(f"{type(value).__name__} is not an argument of an invocation")


def _tensor(tensor: torch.Tensor, wanted: Wanted) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    if dtype not in ALL or not plain or any(stride < 0 for stride in tensor.stride()):
        raise _Unwanted("a kind of tensor that no invocation has")
    spec = TensorSpec(tuple(tensor.shape), dtype, tuple(tensor.stride()), int(tensor.storage_offset()), Literal(()))
    size = spec.storage_size
    if size > _LARGEST or (size > _LITERAL and not is_float(dtype)):
        raise _Unwanted("too large")
    storage = tensor.detach().as_strided((size,), (1,), 0)
    values: Literal | Recipe = Literal(tuple(storage.tolist()))
    if is_float(dtype) and size and (size > _LITERAL or not wanted.literal):
        values = _range(storage, wanted.seed)
    return TensorSpec(spec.shape, dtype, spec.strides, spec.offset, values)


def _range(storage: torch.Tensor, seed: int) -> Recipe:
    finite = storage[storage.isfinite()].double()
    if not len(finite):
        raise _Unwanted("no finite value to draw others like")
    return Recipe(("range", float(finite.min()), float(finite.max())), "plain", seed)


def _is_accepted(invocation: Invocation) -> bool:
    """Whether PyTorch takes the call once its tensors are rebuilt: values drawn anew may not do."""
    with torch.no_grad():
        try:
            bind(invocation)(build_tensors(invocation))
        except Exception:
            return False
    return True
