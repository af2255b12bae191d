"""The runs that a user's files give a model: each file, or each file of a folder, is one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from harness.core.dtypes import ALL, WIDE_UNSIGNED, Array
from harness.core.given_values import UNNAMED, GivenFileProblem, content_number, read_given
from harness.core.invocation import Invocation, Recipe, TensorSpec, contiguous_strides
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import GivenFiles, ModelInputs

#: The domain of values that a file holds.
FILE_DOMAIN = "file"


def given_runs(given: GivenFiles, overload: str, declared: Sequence[onnx.ValueInfoProto]) -> tuple[ModelInputs, ...]:
    """Return the runs that files give, in the order of their names.

    Args:
        given: The files.
        overload: The name of the model in the record.
        declared: The inputs that the model takes, with their dtypes and shapes.

    Raises:
        ModelProblem: a file cannot be read, or does not fit the model.
    """
    files = input_files(Path(given.path))
    names = [file.name for file in files] if len(files) > 1 else ["given inputs"]
    runs = (_invocation(file, given.function, overload, declared) for file in files)
    return tuple(map(ModelInputs, runs, names))


def input_files(path: Path) -> list[Path]:
    """Return the files of a run each: the path itself, or what is in a folder.

    A folder of ONNX's backend tests (``input_0.pb``) is one run.

    Raises:
        ModelProblem: the folder is empty.
    """
    if not path.is_dir() or any(path.glob("input_*.pb")):
        return [path]
    files = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    if not files:
        raise ModelProblem(f"--inputs {path} is an empty folder")
    return files


def _invocation(file: Path, function: str, overload: str, declared: Sequence[onnx.ValueInfoProto]) -> Invocation:
    try:
        arrays = read_given(str(file), function)
    except GivenFileProblem as problem:
        raise ModelProblem(f"--inputs {problem}") from None
    keys = _keys(file, arrays, declared)
    sizes: dict[str, tuple[int, str]] = {}
    specs = []
    for value, key in zip(declared, keys, strict=True):
        array = arrays[key]
        _require_fit(file, value, array, sizes)
        if str(array.dtype) not in (*ALL, *WIDE_UNSIGNED):
            raise ModelProblem(f"{value.name} in {file} is of dtype {array.dtype}, which no run is given in")
        recipe = Recipe((FILE_DOMAIN, str(file.absolute()), key, function), "plain", content_number(array))
        spec = TensorSpec(array.shape, str(array.dtype), contiguous_strides(array.shape), 0, recipe)
        specs.append((value.name, spec))
    return Invocation(overload, tuple(specs))


def _keys(file: Path, arrays: Mapping[str, Array], declared: Sequence[onnx.ValueInfoProto]) -> list[str]:
    """Return the names in a file of the inputs that a model takes; raises `ModelProblem` if they are others."""
    names = [value.name for value in declared]
    if len(names) == len(arrays) == 1 and next(iter(arrays)) in (UNNAMED, "0"):
        return list(arrays)
    if list(arrays) == [str(i) for i in range(len(names))]:
        # A folder of backend tests.
        return list(arrays)
    takes = ", ".join(names)
    for name in names:
        if name not in arrays:
            raise ModelProblem(f"--inputs {file} has no {name!r}; the model takes {takes}")
    for name in arrays:
        if name not in names:
            raise ModelProblem(f"--inputs {file} has {name!r}, which the model does not take; it takes {takes}")
    return names


def _require_fit(path: Path, value: onnx.ValueInfoProto, array: Array, sizes: dict[str, tuple[int, str]]) -> None:
    """Raise `ModelProblem` if an array has another dtype or shape than the model declares.

    Args:
        path: The file with the array.
        value: The declaration.
        array: The array.
        sizes: Named dimension → its size in an input before, and that input; added to.
    """
    kind = value.type.tensor_type
    if kind.elem_type:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if dtype != str(array.dtype):
            raise ModelProblem(f"{value.name} must be {dtype}, {path} has {array.dtype}")
    if not kind.HasField("shape"):
        return
    dims = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
    wanted = f"{value.name} must be [{', '.join(dims)}], {path} has {list(array.shape)}"
    if len(dims) != array.ndim:
        raise ModelProblem(wanted)
    for dim, size in zip(kind.shape.dim, array.shape, strict=True):
        if dim.HasField("dim_value") and dim.dim_value != size:
            raise ModelProblem(wanted)
        if dim.dim_param:
            other, where = sizes.setdefault(dim.dim_param, (size, value.name))
            if other != size:
                raise ModelProblem(f"{wanted}, and {dim.dim_param} is {other} in {where}")
