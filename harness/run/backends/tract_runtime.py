"""tract: Sonos's inference engine in Rust, which reads ONNX files."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, importable, installed, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run import node_names
from harness.run.backend import (
    BackendEntry,
    BackendFailure,
    InvalidModel,
    ShapeRange,
    UnsupportedModel,
    graph_inputs,
    register,
)

_DISTRIBUTION = "tract"
#: Patterns of messages that name a node, or an operator that tract does not know.
_NODES = re.compile(r'node #\d+ "(?P<name>[^"]*)"')
_UNIMPLEMENTED = re.compile(
    r"Unimplemented\(|Operator can not be made a TypedOp|Unknown DatumType|[Uu]nsupported|not supported"
    r"|[Nn]ot implemented|[Uu]nimplemented|not yet implemented"
)
_INVALID = re.compile(r"Failed analyse for node|Inconsistent|Impossible to unify")
#: The message about a bfloat16 value, which does not name the value.
_WITHOUT_BFLOAT16 = "Unknown DatumType Bfloat16"
#: Follows the message.
_BACKTRACE = "Stack backtrace:"


class TractSession:
    """A model that tract has compiled to a plan."""

    runnable = True

    def __init__(self, plan: Any, model: onnx.ModelProto) -> None:
        self._plan = plan
        self._model = model
        self._inputs = [value.name for value in graph_inputs(model)]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        try:
            tensors = self._plan.run([feeds[name] for name in self._inputs])
            return [_array(tensor) for tensor in tensors]
        except Exception as error:
            raise _translated(error, self._model, loading=False) from None


def _array(tensor: Any) -> Array:
    """Return a result of tract; sizes, int64 in ONNX, have a type of their own that its Python API cannot name."""
    import tract

    try:
        tensor.datum_type()
    except tract.TractError:
        tensor = tensor.convert_to(tract.DatumType.I64)
    array: Array = tensor.to_numpy()
    return array


class TractBackend:
    """tract with its optimisations."""

    name, device = "tract", "cpu"

    def __init__(self) -> None:
        self.version: str = installed_version(_DISTRIBUTION)
        # A backtrace takes 60 ms and would displace the error message at the end of a crash's log.
        os.environ["RUST_BACKTRACE"] = "0"

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype that it takes is kept."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> TractSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        import tract

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model.SerializeToString())
            try:
                plan = tract.onnx().load(str(path)).into_model().into_runnable()
            except Exception as error:
                raise _translated(error, model, loading=True) from None
        return TractSession(plan, model)


def _translated(error: Exception, model: onnx.ModelProto, *, loading: bool) -> Exception:
    """Return the exception of our interface for one of tract's."""
    message = " ".join(str(error).partition(_BACKTRACE)[0].split())
    nodes: Sequence[str] = node_names.known((match["name"] for match in _NODES.finditer(message)), model)
    if _WITHOUT_BFLOAT16 in message:
        nodes = node_names.consumers(model, _bfloat16_values(model))
    if _UNIMPLEMENTED.search(message):
        return UnsupportedModel(message, nodes)
    if loading and _INVALID.search(message):
        return InvalidModel(message, nodes)
    return BackendFailure(message or type(error).__name__, nodes)


def _bfloat16_values(model: onnx.ModelProto) -> Iterator[str]:
    graph, dtype = model.graph, onnx.TensorProto.BFLOAT16
    yield from (v.name for v in (*graph.input, *graph.value_info) if v.type.tensor_type.elem_type == dtype)
    yield from (tensor.name for tensor in graph.initializer if tensor.data_type == dtype)


def _probe(argument: str) -> Unavailable | None:
    if importable("tract"):
        return None
    return Unavailable(reason="tract is not installed", install="pip install 'aten-onnx-conformance[tract]'")


def _snippet(wanted: RunWanted) -> RunSnippet:
    given = "inputs[i.name]" if wanted.arrays else "inputs[i.name].contiguous().numpy()"
    taken = "o.to_numpy()" if wanted.arrays else "torch.as_tensor(o.to_numpy())"
    return RunSnippet(
        load=(
            'onnx.save(model, "model.onnx")',
            'plan = tract.onnx().load("model.onnx").into_model().into_runnable()',
        ),
        run=(f"outputs = [{taken} for o in plan.run([{given} for i in model.graph.input])]",),
        imports=("import onnx", "import tract"),
        packages=installed(_DISTRIBUTION),
    )


register(
    BackendEntry(
        name="tract",
        probe=_probe,
        create=lambda argument: TractBackend(),
        version=lambda argument: installed_version(_DISTRIBUTION),
        summary="tract, Sonos's engine in Rust",
        # linalg/x86_64/fma/*.S.j2: its matrix and activation kernels set MXCSR
        flushes="its kernels ask of the processor",
        snippet=_snippet,
        tracker="sonos/tract",
        distributions=(_DISTRIBUTION,),
        on_cpu=True,
    )
)
