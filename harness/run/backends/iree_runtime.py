"""IREE, an MLIR compiler, on the CPU.

1. IREE's importer writes the ONNX model as MLIR; it needs the shapes of intermediate values.
2. ``iree-compile``, a separate process, compiles it for this machine's CPU. By default it computes float64 in float32,
   which is disabled here.
3. The compiled module runs on the caller's thread. Its integers have no sign and are read as the model declares them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
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

_PACKAGES = ("iree-base-compiler", "iree-base-runtime")
_FLAGS = ("--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false")
#: An error of the compiler, and the node that it refers to.
_ERROR = re.compile(r"error: (?:loc\((?P<where>.*?)\): )?(?P<words>[^\n]*)")
_NODE = re.compile(r'"([^"]+)"')
_UNSUPPORTED = re.compile(
    r"failed to legalize operation '[\w.]+'|not supported|unsupported|unimplemented|not implemented", re.IGNORECASE
)
#: The end of such a message, with the operation and the types of the case.
_OPERATION = re.compile(r" that was explicitly marked illegal.*")


class IreeSession:
    """A compiled module.

    Args:
        module: The module as bytes.
        model: The model that it was compiled from.
    """

    runnable = True

    def __init__(self, module: bytes, model: onnx.ModelProto) -> None:
        import iree.runtime

        context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
        context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
        self._function = context.modules.module[model.graph.name]
        self._inputs = [value.name for value in graph_inputs(model)]
        self._dtypes = [
            onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type) for output in model.graph.output
        ]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        try:
            output = self._function(*(np.ascontiguousarray(feeds[n]).reshape(feeds[n].shape) for n in self._inputs))
            results = output if isinstance(output, list | tuple) else [output]
            return [_array(result, dtype) for result, dtype in zip(results, self._dtypes, strict=True)]
        except Exception as error:
            raise BackendFailure(_first_line(error)) from None


def _array(result: Any, declared: np.dtype[Any]) -> Array:
    array = np.asarray(result.to_host() if hasattr(result, "to_host") else result)
    signless = array.dtype.kind in "iu" and declared.kind in "iu" and array.dtype.itemsize == declared.itemsize
    return array.view(declared) if signless else array


class IreeBackend:
    """IREE for this machine's CPU."""

    name, device = "iree", "cpu"

    def __init__(self) -> None:
        self.version: str = installed_version(_PACKAGES[0])

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype that it takes is kept."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> IreeSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        import iree.compiler

        try:
            module = iree.compiler.compile_str(
                _to_mlir(model), input_type="onnx", target_backends=["llvm-cpu"], extra_args=list(_FLAGS)
            )
        except iree.compiler.CompilerToolError as error:
            raise _translated(str(error), model) from None
        return IreeSession(module, model)


def _to_mlir(model: onnx.ModelProto) -> str:
    """Return a model as IREE's importer writes it, with the names of its nodes.

    Raises:
        UnsupportedModel: The importer cannot represent something in it.
    """
    from iree.compiler.extras import onnx_importer
    from iree.compiler.ir import Context

    info = onnx_importer.ModelInfo(onnx.shape_inference.infer_shapes(model, data_prop=True))
    module = info.create_module(context=Context()).operation
    try:
        onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
    except onnx_importer.OnnxImportError as error:
        raise UnsupportedModel(_first_line(error)) from None
    text: str = module.get_asm(enable_debug_info=True)
    return text


def _translated(message: str, model: onnx.ModelProto) -> Exception:
    """Return the exception of our interface for a message of the compiler."""
    found = _ERROR.search(message)
    if found is None:
        code = re.search(r"Error code: (-?\d+)", message)
        return BackendFailure(f"iree-compile ends with status {code[1]}" if code else message.splitlines()[0])
    words = _OPERATION.sub("", found["words"])
    nodes: Sequence[str] = node_names.known(_NODE.findall(found["where"] or ""), model)
    return (UnsupportedModel if _UNSUPPORTED.search(words) else BackendFailure)(words, nodes)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].partition("; while ")[0] if lines else type(error).__name__


def _probe(argument: str) -> Unavailable | None:
    for part in ("compiler", "runtime"):
        try:
            missing = importlib.util.find_spec(f"iree.{part}") is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            return Unavailable(
                reason=f"iree-base-{part} is not installed", install="pip install 'aten-onnx-conformance[iree]'"
            )
    return None


def _snippet(wanted: RunWanted) -> RunSnippet:
    given = "inputs[i.name]" if wanted.arrays else "inputs[i.name].contiguous().numpy()"
    taken = "np.asarray(o)" if wanted.arrays else "torch.as_tensor(np.asarray(o))"
    return RunSnippet(
        load=(
            "info = onnx_importer.ModelInfo(onnx.shape_inference.infer_shapes(model, data_prop=True))",
            "imported = info.create_module(context=Context()).operation",
            "onnx_importer.NodeImporter.define_function(info.main_graph, imported).import_all()",
            f"flags = {list(_FLAGS)}",
            "compiled = iree.compiler.compile_str(",
            '    str(imported), input_type="onnx", target_backends=["llvm-cpu"], extra_args=flags',
            ")",
            'context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))',
            "context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, compiled))",
        ),
        run=(
            f"found = context.modules.module[model.graph.name](*({given} for i in model.graph.input))",
            f"outputs = [{taken} for o in (found if isinstance(found, (list, tuple)) else [found])]",
        ),
        imports=(
            "import iree.compiler",
            "import iree.runtime",
            "import numpy as np",
            "import onnx",
            "from iree.compiler.extras import onnx_importer",
            "from iree.compiler.ir import Context",
        ),
        packages=installed(*_PACKAGES),
    )


register(
    BackendEntry(
        name="iree",
        probe=_probe,
        create=lambda argument: IreeBackend(),
        version=lambda argument: installed_version(_PACKAGES[0]),
        summary="IREE, compiled for the CPU",
        # iree/base/internal/fpu_state.h
        flushes="its runtime asks of the processor",
        snippet=_snippet,
        tracker="iree-org/iree",
        distributions=_PACKAGES,
        on_cpu=True,
    )
)
