"""Whether an ONNX model loads in the backend that is installed here; it is loaded in a process of its own."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.documents import describe_error
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.run.backend import BACKENDS, ShapeRange

if TYPE_CHECKING:
    import onnx

#: Seconds that loading may take; some backends compile for minutes.
_TIMEOUT = 600.0
#: Sizes that an open dimension may have, for backends that compile for a range: least, typical, largest.
_SIZES = (1, 2, 4)


@dataclass(frozen=True)
class Loading:
    """What became of loading a model.

    Attributes:
        loads: None where the backend is not installed here, so that nothing is known.
        words: Why it does not load, in the backend's own words, or why it could not be tried.
    """

    loads: bool | None
    words: str = ""


def loaded(model: Path | onnx.ModelProto, backend: str) -> Loading:
    """Load a model, or the model in a file, in the backend called `backend`.

    Raises:
        LookupError: there is no such backend.
    """
    entry, argument = BACKENDS.find(backend)
    missing = entry.probe(argument)
    if missing is not None:
        return Loading(None, missing.reason)
    if isinstance(model, Path):
        return _loaded_file(model, backend)
    import onnx

    with tempfile.TemporaryDirectory(prefix="harness-model-") as directory:
        path = Path(directory) / "model.onnx"
        onnx.save(model, str(path))
        return _loaded_file(path, backend)


def _loaded_file(path: Path, backend: str) -> Loading:
    with IsolatedCalls(timeout=_TIMEOUT) as process:
        try:
            return process.call(_load, str(path), backend)
        except ProcessDied as died:
            return Loading(False, died.account)


def _load(path: str, backend: str) -> Loading:
    import onnx

    entry, argument = BACKENDS.find(backend)
    try:
        model = onnx.load(path)
        entry.create(argument).load(model, _ranges(model))
    except Exception as error:
        # Whatever a backend raises is its answer.
        return Loading(False, describe_error(error))
    return Loading(True)


def _ranges(model: Any) -> dict[str, ShapeRange] | None:
    """Ranges of sizes for inputs with open dimensions; None where all sizes are fixed."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    ranges: dict[str, ShapeRange] = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name in initializers or all(dim.HasField("dim_value") for dim in dims):
            continue
        sizes = [(dim.dim_value,) * 3 if dim.HasField("dim_value") else _SIZES for dim in dims]
        least, typical, largest = zip(*sizes, strict=True)
        ranges[value.name] = ShapeRange(min=least, opt=typical, max=largest)
    return ranges or None
