"""ONNX Runtime in WebAssembly: onnxruntime-web, which browser applications use, in Node.

Each backend has a Node process, which runs `ort_web.cjs`, communicates by a pipe, and ends with this one. The npm
package is searched in ``node_modules`` of the working directory and its parents, in the folders of ``NODE_PATH``, and
among Node's global packages.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable
from harness.run.backend import BackendEntry, DeviceLost, ShapeRange, UnsupportedModel, graph_inputs, register
from harness.run.backends.ort import issue_form, translated

_PACKAGE = "onnxruntime-web"
_SCRIPT = Path(__file__).with_name("ort_web.cjs")
#: Element types of its tensors → their names.
_TYPES = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BOOL: "bool",
    **{getattr(TensorProto, n.upper()): n for n in ("int8", "int16", "int32", "int64")},
    **{getattr(TensorProto, n.upper()): n for n in ("uint8", "uint16", "uint32", "uint64")},
}
#: Its numeric error codes → the names that other builds use.
_CODES = {"2": "INVALID_ARGUMENT", "7": "INVALID_PROTOBUF", "9": "NOT_IMPLEMENTED", "10": "INVALID_GRAPH"}
_CODE = re.compile(r"ERROR_CODE: (\d+), ERROR_MESSAGE:")
#: Messages of WebAssembly after which the module is unusable.
_ABORTED = re.compile(r"Aborted\(|memory access out of bounds|unreachable|table index is out of bounds")


class _NodeProcess:
    """A Node process that has loaded the package and answers one request at a time."""

    def __init__(self, node: str, package: Path) -> None:
        words = [node, str(_SCRIPT), str(package / "dist" / "ort.node.min.js")]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.ids = itertools.count()

    def ask(self, header: Mapping[str, Any], parts: Sequence[bytes] = ()) -> tuple[dict[str, Any], list[bytes]]:
        """Send a message and return the answer: a header, and the bytes of each output.

        Raises:
            DeviceLost: The process has ended, or its module has aborted.
        """
        text = json.dumps(header).encode()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"".join((struct.pack("<I", len(text)), text, *parts)))
            self._process.stdin.flush()
            answer = json.loads(self._read(struct.unpack("<I", self._read(4))[0]))
            contents = [self._read(output["bytes"]) for output in answer.get("outputs", ())]
        except (OSError, EOFError):
            raise DeviceLost(f"Node ended with status {self._process.wait()}") from None
        if _ABORTED.search(answer.get("error", "")):
            raise DeviceLost(f"{_PACKAGE}: {answer['error']}")
        return answer, contents

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(count)
        if len(content) < count:
            raise EOFError
        return content


class OrtWebSession:
    """A model that the process has loaded."""

    runnable = True

    def __init__(self, process: _NodeProcess, number: int, model: onnx.ModelProto) -> None:
        self._process = process
        self._id = number
        self._model = model
        self._inputs = {value.name: value.type.tensor_type.elem_type for value in graph_inputs(model)}
        self._outputs = [(value.name, value.type.tensor_type.elem_type) for value in model.graph.output]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        arrays = {name: np.ascontiguousarray(feeds[name]).reshape(feeds[name].shape) for name in self._inputs}
        descriptions = [
            {"name": name, "type": _TYPES[self._inputs[name]], "dims": list(array.shape), "bytes": array.nbytes}
            for name, array in arrays.items()
        ]
        names = [name for name, _ in self._outputs]
        header = {"kind": "run", "id": self._id, "feeds": descriptions, "outputs": names}
        answer, contents = self._process.ask(header, [array.tobytes() for array in arrays.values()])
        _raise_error(answer, self._model, loading=False)
        return [_array(output, content) for output, content in zip(answer["outputs"], contents, strict=True)]

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._process.ask({"kind": "release", "id": self._id})


def _array(output: Mapping[str, Any], content: bytes) -> Array:
    element = next(element for element, name in _TYPES.items() if name == output["type"])
    return np.frombuffer(content, helper.tensor_dtype_to_np_dtype(element)).reshape(output["dims"]).copy()


class OrtWebBackend:
    """ONNX Runtime's WebAssembly build, one thread.

    Raises:
        RuntimeError: Node or the package was removed after the probe.
    """

    name, device = "ort-web", "cpu"

    def __init__(self) -> None:
        node, package = shutil.which("node"), _package()
        if node is None or package is None:
            raise RuntimeError(f"Node or {_PACKAGE} is not there any more")
        self.version = _version("")
        self._level = "all"
        self._process = _NodeProcess(node, package)

    def plain(self) -> OrtWebBackend:
        """See `harness.run.backend.HasPlain`."""
        other = copy.copy(self)
        other._level = "disabled"
        return other

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype that it takes is kept."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> OrtWebSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        for value in (*graph_inputs(model), *model.graph.output):
            element = value.type.tensor_type.elem_type
            if element not in _TYPES:
                kind = TensorProto.DataType.Name(element).lower()
                raise UnsupportedModel(f"{_PACKAGE} has no tensors of {kind}, as {value.name} is")
        content, number = model.SerializeToString(), next(self._process.ids)
        header = {"kind": "load", "id": number, "level": self._level, "bytes": len(content)}
        answer, _ = self._process.ask(header, [content])
        _raise_error(answer, model, loading=True)
        return OrtWebSession(self._process, number, model)


def _raise_error(answer: Mapping[str, Any], model: onnx.ModelProto, *, loading: bool) -> None:
    if "error" in answer:
        message = _CODE.sub(lambda code: f"{_CODES.get(code[1], code[0])} :", answer["error"])
        raise translated(RuntimeError(message), model, loading=loading)


def _folders() -> Iterator[Path]:
    """Yield the folders that may contain Node's packages, nearest first."""
    here = Path.cwd()
    yield from (folder / "node_modules" for folder in (here, *here.parents))
    yield from (Path(folder) for folder in os.environ.get("NODE_PATH", "").split(os.pathsep) if folder)
    if node := shutil.which("node"):
        yield from (Path(node).resolve().parent.parent / "lib" / "node_modules", Path("/usr/local/lib/node_modules"))


def _package() -> Path | None:
    return next((folder / _PACKAGE for folder in _folders() if (folder / _PACKAGE / "package.json").is_file()), None)


def _version(argument: str) -> str:
    package = _package()
    if package is None:
        return "unknown"
    version: str = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    return version


def _probe(argument: str) -> Unavailable | None:
    if shutil.which("node") is None:
        return Unavailable(reason="Node is not installed", install=f"apt install npm && npm install {_PACKAGE}")
    if _package() is None:
        return Unavailable(reason=f"{_PACKAGE} is not installed", install=f"npm install {_PACKAGE}")
    return None


register(
    BackendEntry(
        name="ort-web",
        probe=_probe,
        create=lambda argument: OrtWebBackend(),
        version=_version,
        engine="onnxruntime",
        summary="ONNX Runtime in WebAssembly, in Node, as browsers run it",
        tracker="microsoft/onnxruntime",
        issue_form=issue_form("'wasm'/'cpu' (WebAssembly CPU)"),
        on_cpu=True,
        variables=("NODE",),
    )
)
