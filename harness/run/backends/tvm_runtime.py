"""TVM, a tensor compiler, on the CPU.

1. TVM's importer turns the ONNX model into a Relax module with weights as constants; a dynamic size becomes a variable.
2. The default pipeline compiles it with LLVM, in 5 ms per node.
3. TVM's virtual machine runs it on the caller's thread.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, installed, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run import node_names
from harness.run.backend import (
    BackendEntry,
    BackendFailure,
    ShapeRange,
    UnsupportedModel,
    graph_inputs,
    register,
)

_PACKAGE = "apache-tvm"
#: The importer's messages about operators that it does not know, and about those that it knows in part.
_MISSING = re.compile(r"not supported for frontend ONNX: (?P<operators>[\w, ]+)")
_UNSUPPORTED = re.compile(
    r"not supported|[Uu]nsupported|not implemented|[Oo]nly [\w ,]*support|requires? a statically known"
    r"|must be a constant|unknown intrinsic"
)
#: Lines of a message that quote TVM's own stack.
_STACK = re.compile(r"\s*(?:File |\[bt\]|at |Stack trace|Traceback)")


class TvmSession:
    """A compiled module in a virtual machine."""

    runnable = True

    def __init__(self, executable: Any, model: onnx.ModelProto) -> None:
        import tvm
        from tvm import relax

        self._device = tvm.cpu()
        self._run = relax.VirtualMachine(executable, self._device)["main"]
        self._inputs = [value.name for value in graph_inputs(model)]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        import tvm

        try:
            output = self._run(*(tvm.runtime.tensor(_dense(feeds[name]), self._device) for name in self._inputs))
            # A single output is returned without a list.
            is_list = not hasattr(output, "numpy") and not isinstance(output, tvm.runtime.ShapeTuple)
            return [_array(result) for result in (output if is_list else [output])]
        except Exception as error:
            raise BackendFailure(_message(error)) from None


def _dense(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(array.shape)


def _array(result: Any) -> Array:
    """Return a result of TVM as an array; sizes are tuples there."""
    array: Array = result.numpy() if hasattr(result, "numpy") else np.array(list(result), np.int64)
    return array


class TvmBackend:
    """TVM for this machine's CPU."""

    name, device = "tvm", "cpu"

    def __init__(self) -> None:
        self.version: str = installed_version(_PACKAGE)
        # TVM reads this when it first runs something.
        os.environ.setdefault("TVM_NUM_THREADS", "1")
        # Imported here, so that a broken installation (as with LiteRT's version of typing_extensions) fails no case.
        importlib.import_module("tvm.relax.frontend.onnx")

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype that it takes is kept."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> TvmSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        import tvm
        from tvm.relax.frontend.onnx import from_onnx

        try:
            module = from_onnx(model, keep_params_in_input=False)
            return TvmSession(tvm.compile(module, target="llvm"), model)
        except Exception as error:
            raise _translated(error, model) from None


def _translated(error: Exception, model: onnx.ModelProto) -> Exception:
    """Return the exception of our interface for one of the importer's or the compiler's."""
    message = _message(error)
    missing = _MISSING.search(message)
    if missing:
        # The importer ignores domains.
        operators = missing["operators"].split(", ")
        return UnsupportedModel(message, [node.name for node in model.graph.node if node.op_type in operators])
    nodes = node_names.known(_current_nodes(error), model)
    unsupported = isinstance(error, NotImplementedError) or _UNSUPPORTED.search(message)
    return UnsupportedModel(message, nodes) if unsupported else BackendFailure(message, nodes)


def _current_nodes(error: Exception) -> Iterator[str]:
    """Yield the nodes that the importer was converting, from the stack, since its message does not name them."""
    frame = error.__traceback__
    while frame is not None:
        node = frame.tb_frame.f_locals.get("node")
        if isinstance(node, onnx.NodeProto):
            yield node.name
        frame = frame.tb_next


def _message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not _STACK.match(line)]
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def _probe(argument: str) -> Unavailable | None:
    if importlib.util.find_spec("tvm") is None:
        return Unavailable(reason="apache-tvm is not installed", install="pip install 'aten-onnx-conformance[tvm]'")
    return None


def _snippet(wanted: RunWanted) -> RunSnippet:
    given = "inputs[i.name]" if wanted.arrays else "inputs[i.name].contiguous().numpy()"
    taken = "o.numpy()" if wanted.arrays else "torch.as_tensor(o.numpy())"
    return RunSnippet(
        load=(
            "module = from_onnx(model, keep_params_in_input=False)",
            'compiled = tvm.relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())',
        ),
        run=(
            f'found = compiled["main"](*(tvm.runtime.tensor({given}) for i in model.graph.input))',
            f'outputs = [{taken} for o in ([found] if hasattr(found, "numpy") else found)]',
        ),
        imports=("import onnx", "import tvm", "from tvm.relax.frontend.onnx import from_onnx"),
        packages=installed(_PACKAGE),
    )


register(
    BackendEntry(
        name="tvm",
        probe=_probe,
        create=lambda argument: TvmBackend(),
        version=lambda argument: installed_version(_PACKAGE),
        summary="TVM, compiled for the CPU with LLVM",
        snippet=_snippet,
        tracker="apache/tvm",
        distributions=(_PACKAGE,),
        on_cpu=True,
        variables=("TVM",),
    )
)
