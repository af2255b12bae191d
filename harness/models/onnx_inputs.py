"""Inputs of an ONNX file: given ones, or values drawn from its signature at sizes that it runs at.

1. Open dimensions of one name have one size; each without a name has its own.
2. The first of a few sizes at which the file runs, the same for all, is taken. Where it runs at none, the sizes of its
   constants are tried: a constant may fix a size that is declared open.
3. Each size is then changed by itself: one that cannot be changed is fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from harness.core.documents import one_line
from harness.core.dtypes import PRECISION
from harness.models.graph_part import Feeds
from harness.pipeline.model_loading import ModelProblem

#: Sizes that open dimensions are tried at; the first that runs, and the next, are taken.
SIZES = (2, 8, 32, 64, 224)
#: Combinations with sizes of constants that are tried at most.
_MOST_TRIED = 120
#: The largest whole number in a constant that may be a size.
_LARGEST_SIZE = 65536

#: Name of an open dimension → its size.
Sizes: TypeAlias = Mapping[str, int]
#: Whether the file runs at some sizes.
Runs: TypeAlias = Callable[[Sizes], bool]


@dataclass(frozen=True)
class FixedSize:
    """A size that a file declares open and that only one number fits.

    Attributes:
        name: Of the dimension, or ``input:dimension``.
        size: That it has to have.
        by: Constants that have this size, of those a node of the graph reads.
    """

    name: str
    size: int
    by: tuple[str, ...]


def signature(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that have no default."""
    held = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in held]


def open_sizes(model: onnx.ModelProto) -> list[str]:
    """The names of the open dimensions, in order: their own, or ``input:dimension``."""
    found: dict[str, None] = {}
    for value in signature(model):
        for place, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                found[_name(value, place, dim)] = None
    return list(found)


def _name(value: onnx.ValueInfoProto, place: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    return dim.dim_param or f"{value.name}:{place}"


def running_sizes(model: onnx.ModelProto, runs: Runs) -> dict[str, int] | None:
    """Sizes at which a file runs, the same for all open dimensions if there is such; None where none is found."""
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
    """The open sizes that cannot be changed by themselves, nor together with the others of their size."""
    found = []
    for name, size in sizes.items():
        alike = [other for other, its in sizes.items() if its == size]
        changes = (dict.fromkeys(chosen, other) for other in (size + 1, 2 * size) for chosen in ([name], alike))
        if not any(runs({**sizes, **change}) for change in changes):
            held = _constant_sizes(model)
            found.append(FixedSize(name, size, tuple(c for c, its in held.items() if size in its)[:3]))
    return found


def other_sizes(sizes: Sizes, fixed: Iterable[FixedSize], runs: Runs) -> dict[str, int] | None:
    """Further sizes at which a file runs: all open ones change, if possible to different sizes; None for none."""
    held = {one.name for one in fixed}
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


def drawn_inputs(model: onnx.ModelProto, sizes: Sizes, seed: int) -> Feeds:
    """Values by a file's signature. Integers are 0 or 1, which any index may be.

    Raises:
        ModelProblem: an input is not a tensor of numbers.
    """
    random = np.random.default_rng(20261125 + seed)
    found: Feeds = {}
    for value in signature(model):
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or tensor.elem_type in (0, onnx.TensorProto.STRING):
            raise ModelProblem(f"input {value.name} is not a tensor of numbers: give inputs with --inputs FILE.npz")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        dims = enumerate(tensor.shape.dim)
        shape = [d.dim_value if d.HasField("dim_value") else sizes[_name(value, place, d)] for place, d in dims]
        if str(dtype) in PRECISION:
            found[value.name] = random.standard_normal(shape).astype(dtype)
        else:
            found[value.name] = random.integers(0, 2, shape).astype(dtype)
    return found


def read_inputs(path: Path, model: onnx.ModelProto) -> Feeds:
    """Inputs from an ``.npz`` by name, or one from a ``.pb`` (a `TensorProto`).

    Raises:
        ModelProblem: the file cannot be read, or an input is missing.
    """
    names = [value.name for value in signature(model)]
    try:
        if path.suffix == ".npz":
            with np.load(path) as file:
                found = {name: file[name] for name in file.files}
        else:
            tensor = onnx.TensorProto.FromString(path.read_bytes())
            found = {tensor.name or names[0]: numpy_helper.to_array(tensor)}
    except Exception as error:
        raise ModelProblem(f"--inputs {path} cannot be read: {type(error).__name__}: {one_line(error)}") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise ModelProblem(f"--inputs {path} has no {missing[0]!r}; the model takes {', '.join(names)}")
    return {name: found[name] for name in names}
