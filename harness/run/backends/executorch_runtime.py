"""ExecuTorch's runtime, with its portable and optimised kernels and XNNPACK."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, importable, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run.artefact import EXECUTORCH, Artefact
from harness.run.backend import BackendEntry, BackendFailure, ShapeRange, UnsupportedModel, register

#: A line of the runtime's log, with its source location.
_LINE = re.compile(r"^\[(?P<file>\w+\.(?:cpp|h)):\d+\] (?P<text>.*)$", re.MULTILINE)
#: Log lines that report something missing, and those that add nothing.
_LACKS = re.compile(
    r"kernel '[^']*' not found|Missing operator|[Uu]nsupported|not supported|[Uu]nhandled dtype"
    r"|should be contiguous or channels-last"
)
_NO_KERNEL = re.compile(r"kernel '(?P<kernel>[^']*)' not found\.")
_FILLER = re.compile(
    r"dtype: \d+ \| dim order|^\d+,$|^\]$|instructions don't have corresponding operator|Missing operator"
)


class ExecuTorchSession:
    """A loaded method."""

    runnable = True

    def __init__(self, method: Any, model: Artefact) -> None:
        self._method = method
        self._model = model

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        from harness.core.torch_arrays import to_numpy, to_torch

        model = self._model
        tensors = [to_torch(feeds[n], like=x) for n, x in zip(model.input_names, model.examples, strict=True)]
        with _capture_log(model):
            outputs = self._method.execute(tensors)
        # Values that the program changes in place come before its outputs.
        return [to_numpy(output.clone()) for output in outputs[len(outputs) - len(model.output_names) :]]


class ExecuTorchBackend:
    """Loads ``.pte`` files in the process."""

    name, device = "executorch", "cpu"

    def __init__(self) -> None:
        from executorch.runtime import Runtime

        self.version: str = installed_version("executorch")
        with _capture_log(None):
            self._runtime = Runtime.get()

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype is kept."""
        return None

    def load(self, model: Artefact, shapes: Mapping[str, ShapeRange] | None) -> ExecuTorchSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        with _capture_log(model):
            return ExecuTorchSession(self._runtime.load_program(model.content).load_method("forward"), model)


@contextlib.contextmanager
def _capture_log(model: Artefact | None) -> Iterator[None]:
    """Add to exceptions what the runtime writes to standard error, if that is a file, as in a worker process."""
    is_file = stat.S_ISREG(os.fstat(2).st_mode)
    before = os.fstat(2).st_size if is_file else 0
    try:
        yield
    except Exception as error:
        written = ""
        if is_file:
            with Path("/dev/fd/2").open("rb") as file:
                file.seek(before)
                written = file.read().decode(errors="replace")
        raise _translated(error, written, model) from error


def _translated(error: Exception, written: str, model: Artefact | None) -> Exception:
    lines = dict.fromkeys(match["text"].strip() for match in _LINE.finditer(written))
    text = "\n".join([line for line in lines if not _FILLER.search(line)] or lines)
    message = f"{text}\n{error}" if text else str(error)
    if not _LACKS.search(f"{written}\n{error}"):
        return BackendFailure(message)
    missing = {match["kernel"].replace("::", "."): match[0] for match in _NO_KERNEL.finditer(written)}
    placed = model.placed if model is not None else {}
    reasons = {
        output: " ".join(dict.fromkeys(missing[node.operator] for node in nodes if node.operator in missing))
        for output, nodes in placed.items()
    }
    reasons = {output: reason for output, reason in reasons.items() if reason}
    return UnsupportedModel("\n".join(missing.values()) or message, tuple(reasons), reasons)


def _probe(argument: str) -> Unavailable | None:
    if importable("executorch"):
        return None
    return Unavailable(reason="executorch is not installed", install="pip install 'aten-onnx-conformance[executorch]'")


def _snippet(wanted: RunWanted) -> RunSnippet:
    return RunSnippet(
        load=('method = Runtime.get().load_program(model).load_method("forward")',),
        run=("outputs = [o.clone() for o in method.execute(list(inputs.values()))]",),
        imports=("from executorch.runtime import Runtime",),
        packages=("executorch",),
    )


register(
    BackendEntry(
        name="executorch",
        probe=_probe,
        create=lambda argument: ExecuTorchBackend(),
        version=lambda argument: installed_version("executorch"),
        summary="ExecuTorch's runtime on the CPU",
        # xnn_run_operator of XNNPACK runs everything with PTHREADPOOL_FLAG_DISABLE_DENORMALS.
        flushes="XNNPACK asks of the processor",
        snippet=_snippet,
        tracker="pytorch/executorch",
        distributions=("executorch",),
        on_cpu=True,
        takes=(EXECUTORCH,),
    )
)
