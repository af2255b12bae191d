"""Any module that implements the ONNX Backend API: ``prepare(model, device).run(inputs)``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, installed_version
from harness.core.snippet import RunSnippet, RunWanted, numpy_exchange
from harness.run import node_names as _messages
from harness.run.backend import (
    BackendEntry,
    BackendFailure,
    InvalidModel,
    ShapeRange,
    UnsupportedModel,
    graph_inputs,
    register,
)

_PREFIX = "onnx-api:"
_EXAMPLE = "write --backend onnx-api:MODULE, for example onnx-api:onnxruntime.backend"

#: The API defines no exceptions; runtimes use classes with these names.
_UNSUPPORTED = frozenset({"NotImplementedError", "NotImplemented", "BackendIsNotSupposedToImplementIt", "SkipTest"})
_INVALID = frozenset({"ValidationError", "InvalidGraph", "InvalidProtobuf", "InferenceError"})


class NotABackend(LookupError):
    """A module is missing or lacks the ONNX Backend API; the message is one line."""


class ApiSession:
    """The result of `prepare` for a model."""

    runnable = True

    def __init__(self, prepared: Any, model: onnx.ModelProto) -> None:
        self._prepared = prepared
        self._model = model
        self._inputs = [value.name for value in graph_inputs(model)]
        self._outputs = [value.name for value in model.graph.output]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        try:
            outputs = self._prepared.run([feeds[name] for name in self._inputs])
        except Exception as error:
            raise _translated(error, self._model, loading=False) from error
        if isinstance(outputs, Mapping):
            outputs = [outputs[name] for name in self._outputs]
        if len(outputs) != len(self._outputs):
            raise BackendFailure(f"{len(outputs)} outputs came back, the model has {len(self._outputs)}")
        return [np.asarray(output, order="C") for output in outputs]


class ApiBackend:
    """A module with the ONNX Backend API, on the CPU."""

    device = "cpu"

    def __init__(self, module: str) -> None:
        self._api = _api(module)
        self.name = _PREFIX + module
        self.version = _version(module)
        if hasattr(self._api, "supports_device") and not self._api.supports_device("CPU"):
            raise RuntimeError(f"{self.name} does not support the device CPU")

    def narrows(self, dtype: str) -> str | None:
        """Return None, since the API does not report it."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> ApiSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        try:
            if hasattr(self._api, "is_compatible") and not self._api.is_compatible(model, "CPU"):
                raise UnsupportedModel(f"{self.name}: is_compatible says no")
            return ApiSession(self._api.prepare(model, "CPU"), model)
        except UnsupportedModel:
            raise
        except Exception as error:
            raise _translated(error, model, loading=True) from error


def _api(name: str) -> Any:
    """Return the object with `prepare`: the module `name`, or a class `Backend` in it.

    Raises:
        NotABackend: There is none.
    """
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise NotABackend(f"module {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    for candidate in (module, getattr(module, "Backend", None)):
        if callable(getattr(candidate, "prepare", None)):
            return candidate
    raise NotABackend(f"module {name!r} is not an ONNX backend: it has no function prepare(model, device)")


def _translated(error: Exception, model: onnx.ModelProto, *, loading: bool) -> Exception:
    message = f"{type(error).__name__}: {str(error).strip()}"
    names = {ancestor.__name__ for ancestor in type(error).__mro__}
    nodes = _messages.mentioned(message, model)
    if names & _UNSUPPORTED:
        return UnsupportedModel(message, nodes)
    if loading and names & _INVALID:
        return InvalidModel(message, nodes)
    return BackendFailure(message, nodes)


def _probe(argument: str) -> Unavailable | None:
    if not argument:
        return Unavailable(reason="no module is named after onnx-api:", install=_EXAMPLE)
    try:
        _api(argument)
    except NotABackend as error:
        return Unavailable(reason=str(error), install=_EXAMPLE)
    return None


def _version(argument: str) -> str:
    return installed_version(argument.partition(".")[0]) if argument else "unknown"


def _snippet(wanted: RunWanted) -> RunSnippet:
    is_module = hasattr(importlib.import_module(wanted.argument), "prepare")
    prepare = "backend.prepare" if is_module else "backend.Backend.prepare"
    feed, output, helpers = numpy_exchange(wanted.raw)
    return RunSnippet(
        load=(f"prepared = {prepare}(model, 'CPU')",),
        run=(
            *helpers,
            f"outputs = prepared.run([{feed} for i in model.graph.input])",
            f"outputs = [{output} for o in outputs]",
        ),
        imports=(
            *(("from ml_dtypes import bfloat16",) if wanted.raw else ()),
            "import numpy as np",
            f"import {wanted.argument} as backend",
        ),
    )


register(
    BackendEntry(
        name=_PREFIX,
        probe=_probe,
        create=ApiBackend,
        version=_version,
        summary="any module with the ONNX Backend API, e.g. onnx-api:onnxruntime.backend",
        snippet=_snippet,
    )
)
