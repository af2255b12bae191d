"""Values that a user's files hold: a recipe names the file and the array in it.

A file is ``.npz`` (arrays by name), ``.npy``, ``.pb`` (a `TensorProto`), a folder of ONNX's backend tests with
``input_0.pb`` and so on, or anything that a user's function reads: ``FILE.py:FUNCTION`` takes a path, and returns an
array or a mapping from names to arrays.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.dtypes import Array
from harness.core.text import one_line

#: The name of an array that its file does not name.
UNNAMED = ""
#: Files that stay read: inputs of one run are built several times.
_KEPT = 4
_INPUT_FILE = re.compile(r"input_(\d+)\.pb")


class GivenFileProblem(Exception):
    """A file with inputs, or the function that reads it, cannot be used; the message is for a person."""


def read_given(path: str, function: str) -> Mapping[str, Array]:
    """Return the arrays of a file by name: `UNNAMED` for the only one of a file that names none, and their numbers in a
    folder of backend tests.

    Args:
        path: The file or folder.
        function: ``FILE.py:FUNCTION``, which reads it; "" for the formats above.

    Raises:
        GivenFileProblem: it cannot be read.
    """
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise GivenFileProblem(f"{path} cannot be read: {error.strerror}") from None
    return _read(path, function, changed)


@lru_cache(maxsize=_KEPT)
def _read(path: str, function: str, changed: int) -> Mapping[str, Array]:
    try:
        return _by_function(Path(path), function) if function else _by_format(Path(path))
    except GivenFileProblem:
        raise
    except Exception as error:
        by = f" by {function}" if function else ""
        raise GivenFileProblem(f"{path} cannot be read{by}: {type(error).__name__}: {one_line(error)}") from None


def _by_format(path: Path) -> Mapping[str, Array]:
    if path.is_dir():
        found = {match[1]: file for file in path.iterdir() if (match := _INPUT_FILE.fullmatch(file.name))}
        return {number: _tensor(found[number])[1] for number in sorted(found, key=int)}
    if path.suffix == ".npz":
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    if path.suffix == ".npy":
        return {UNNAMED: np.load(path)}
    if path.suffix == ".pb":
        name, array = _tensor(path)
        return {name: array}
    raise GivenFileProblem(f"{path} is no .npz, .npy or .pb: --preprocess FILE.py:FUNCTION names what reads it")


def _tensor(path: Path) -> tuple[str, Array]:
    # A file of arrays needs no ONNX.
    import onnx
    from onnx import numpy_helper

    tensor = onnx.TensorProto.FromString(path.read_bytes())
    return tensor.name, numpy_helper.to_array(tensor)


def _by_function(path: Path, function: str) -> Mapping[str, Array]:
    made = user_function(function)(path)
    named = made if isinstance(made, Mapping) else {UNNAMED: made}
    # A tensor of PyTorch is an array to NumPy.
    return {str(name): np.ascontiguousarray(array) for name, array in named.items()}


@lru_cache(maxsize=_KEPT)
def user_function(word: str) -> Any:
    """Return the function that ``FILE.py:FUNCTION`` names.

    Raises:
        GivenFileProblem: there is none, or the file raises when it is imported.
    """
    head, _, name = word.rpartition(":")
    path = Path(head)
    if path.suffix != ".py" or not path.is_file():
        raise GivenFileProblem(f"{word} names no function: FILE.py:FUNCTION is wanted")
    module_name = f"given_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GivenFileProblem(f"{path} cannot be imported: {type(error).__name__}: {one_line(error)}") from None
    if not callable(getattr(module, name, None)):
        raise GivenFileProblem(f"{path} has no function {name!r}")
    return getattr(module, name)


def content_number(array: Array) -> int:
    """Return the number by which a recipe knows the content of an array."""
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def given_values(path: str, name: str, function: str, number: int) -> Array:
    """Return the elements of an array of a file, as `harness.core.values.compute` returns values.

    Args:
        path: The file.
        name: The array in it.
        function: See `read_given`.
        number: The `content_number` that it had when the recipe was made.

    Raises:
        GivenFileProblem: the file cannot be read, or has other content.
    """
    array = read_given(path, function).get(name)
    if array is None or content_number(array) != number:
        raise GivenFileProblem(f"{path} has changed since this case was made")
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind in "biu":
        return flat if flat.dtype.kind == "b" else flat.astype(np.uint64 if flat.dtype == np.uint64 else np.int64)
    return flat.astype(np.complex128 if flat.dtype.kind == "c" else np.float64)
