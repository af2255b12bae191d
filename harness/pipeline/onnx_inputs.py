"""The runs of an ONNX file without given inputs: values drawn from its signature at sizes that it runs at.

1. Open dimensions of one name have one size; each without a name has its own.
2. The first of a few sizes at which the file runs, the same for all, is taken. If it runs at none, the sizes of its
   constants are tried: a constant may fix a size that is declared open.
3. Each size is then changed by itself: one that cannot be changed is fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from harness.core.dtypes import ALL, PRECISION, WIDE_UNSIGNED
from harness.core.invocation import Invocation, Recipe, TensorSpec, contiguous_strides
from harness.pipeline.graph_structure import signature
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import FixedSize, ModelInputs

#: Sizes that open dimensions are tried at; the first that runs, and the next, are taken.
SIZES = (2, 8, 32, 64, 224)
#: Combinations with sizes of constants that are tried at most.
_MOST_TRIED = 120
#: The largest whole number in a constant that may be a size.
_LARGEST_SIZE = 65536
_SEED = 20261125

#: Name of an open dimension → its size.
Sizes: TypeAlias = Mapping[str, int]
#: Whether the file runs at some sizes.
Runs: TypeAlias = Callable[[Sizes], bool]


def open_sizes(model: onnx.ModelProto) -> list[str]:
    """Return the names of the open dimensions, in order: their own, or ``input:dimension``."""
    found: dict[str, None] = {}
    for value in signature(model):
        for place, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                found[_name(value, place, dim)] = None
    return list(found)


def _name(value: onnx.ValueInfoProto, place: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    return dim.dim_param or f"{value.name}:{place}"


def running_sizes(model: onnx.ModelProto, runs: Runs) -> dict[str, int] | None:
    """Return sizes at which a file runs, the same for all open dimensions if possible; None if there are none."""
    names = open_sizes(model)
    same = (dict.fromkeys(names, size) for size in SIZES)
    sizes = sorted({size for held in _constant_sizes(model).values() for size in held})
    of_one = ({**dict.fromkeys(names, rest), name: s} for rest in SIZES[:2] for name in names for s in sizes)
    of_all = (dict(zip(names, chosen, strict=True)) for chosen in itertools.product(sizes, repeat=len(names)))
    for tried in itertools.islice(itertools.chain(same, of_one, of_all), len(SIZES) + _MOST_TRIED):
        if runs(tried):
            return tried
    return None


def fixed_sizes(model: onnx.ModelProto, sizes: Sizes, runs: Runs) -> list[FixedSize]:
    """Return the open sizes that cannot be changed, alone or together with the others of their size."""
    found = []
    for name, size in sizes.items():
        alike = [other for other, its in sizes.items() if its == size]
        changes = (dict.fromkeys(chosen, other) for other in (size + 1, 2 * size) for chosen in ([name], alike))
        if not any(runs({**sizes, **change}) for change in changes):
            held = _constant_sizes(model)
            found.append(FixedSize(name, size, tuple(c for c, its in held.items() if size in its)[:3]))
    return found


def other_sizes(sizes: Sizes, fixed: Iterable[FixedSize], runs: Runs) -> dict[str, int] | None:
    """Return further sizes at which a file runs: all open ones change, if possible to different sizes; None if none
    do."""
    held = {size.name for size in fixed}
    free = [name for name in sizes if name not in held]
    if not free:
        return None
    for size in (*SIZES, *(s + 1 for s in SIZES)):
        apart = {**sizes, **{name: size + place for place, name in enumerate(free)}}
        for tried in (apart, {**sizes, **dict.fromkeys(free, size)}):
            if all(tried[name] != sizes[name] for name in free) and runs(tried):
                return tried
    return None


def _constant_sizes(model: onnx.ModelProto) -> dict[str, set[int]]:
    """Constant → the sizes that it may fix: its own, and whole numbers in a short list."""
    found: dict[str, set[int]] = {}
    for name, tensor in _constants(model):
        sizes = set(tensor.dims)
        if tensor.data_type == onnx.TensorProto.INT64 and int(np.prod(tensor.dims)) <= 16:
            sizes |= {int(n) for n in numpy_helper.to_array(tensor).reshape(-1) if 0 < n <= _LARGEST_SIZE}
        found[name] = sizes - {0, 1}
    return found


def _constants(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield from ((tensor.name, tensor) for tensor in model.graph.initializer)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t


#: Values of the normal distribution, and 0 or 1 in equal shares, which any index may be.
_NUMBERS, _INDICES = ("like", 0.0, 1.0, -4.0, 4.0, 0.0), ("share", 0.5)


def drawn_inputs(model: onnx.ModelProto, sizes: Sizes, seed: int) -> tuple[tuple[str, TensorSpec], ...]:
    """Return inputs by name that are drawn from a file's signature, at some sizes of its open dimensions.

    Raises:
        ModelProblem: an input is not a tensor, or of a dtype that is not drawn.
    """
    found = []
    for number, value in enumerate(signature(model)):
        tensor = value.type.tensor_type
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)) if tensor.elem_type else ""
        if not value.type.HasField("tensor_type") or dtype not in (*ALL, *WIDE_UNSIGNED):
            raise ModelProblem(f"input {value.name} is not a tensor of numbers: give inputs with --inputs FILE.npz")
        dims = enumerate(tensor.shape.dim)
        shape = tuple(d.dim_value if d.HasField("dim_value") else sizes[_name(value, place, d)] for place, d in dims)
        recipe = Recipe(_NUMBERS if dtype in PRECISION else _INDICES, "plain", _SEED + 100 * seed + number)
        found.append((value.name, TensorSpec(shape, dtype, contiguous_strides(shape), 0, recipe)))
    return tuple(found)


def list_file_runs(
    model: onnx.ModelProto, overload: str, runs: Callable[[Invocation], bool]
) -> tuple[ModelInputs, ...]:
    """Return the inputs to run a file with: drawn values, other values, and other sizes.

    Args:
        model: The graph.
        overload: The name for the record's column of operators.
        runs: Whether the runtime runs the file with some inputs.

    Raises:
        ModelProblem: `drawn_inputs` raises it.
    """

    def inputs(sizes: Sizes, seed: int = 0) -> Invocation:
        return Invocation(overload, drawn_inputs(model, sizes, seed))

    names = open_sizes(model)
    if not names:
        return ModelInputs(inputs({})), ModelInputs(inputs({}, 1), "other values")

    def runs_at(sizes: Sizes) -> bool:
        return runs(inputs(sizes))

    sizes = running_sizes(model, runs_at)
    if sizes is None:
        # The runtime's message about the file is the answer.
        sizes = dict.fromkeys(names, SIZES[0])
        return (ModelInputs(inputs(sizes), _named(sizes)),)
    fixed: tuple[FixedSize, ...] = ()
    others = other_sizes(sizes, (), runs_at)
    if others is None:
        fixed = tuple(fixed_sizes(model, sizes, runs_at))
        others = other_sizes(sizes, fixed, runs_at)
    found = [ModelInputs(inputs(sizes), _named(sizes), fixed=fixed)]
    if others is not None:
        found.append(ModelInputs(inputs(others), _named(others), resized=True, fixed=fixed))
    found.append(ModelInputs(inputs(sizes, 1), "other values", fixed=fixed))
    return tuple(found)


def _named(sizes: Sizes) -> str:
    """Return ``N 3, T 8``, or ``dynamic dimensions set to 2`` if all are the same."""
    different = set(sizes.values())
    if len(different) == 1:
        return f"dynamic dimensions set to {different.pop()}"
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
