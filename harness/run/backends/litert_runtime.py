"""LiteRT's interpreter on the CPU, with XNNPACK by default, or plain with its reference kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, importable, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run.artefact import LITERT, Artefact
from harness.run.backend import BackendEntry, BackendFailure, ShapeRange, UnsupportedModel, register

_UNSUPPORTED = re.compile(
    r"not supported|[Uu]nsupported|[Nn]ot implemented|Failed to convert value into readable tensor|Unknown data type"
)


class LiteRTSession:
    """A model in an interpreter."""

    runnable = True

    def __init__(self, interpreter: Any, model: Artefact) -> None:
        self._interpreter = interpreter
        self._runner = interpreter.get_signature_runner()
        self._taken = set(self._runner.get_input_details())
        self._model = model

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        import numpy as np

        named = {f"args_{i}": feeds[name] for i, name in enumerate(self._model.input_names)}
        try:
            results = self._runner(**{name: array for name, array in named.items() if name in self._taken})
        except (RuntimeError, ValueError) as error:
            raise _translated(error) from error
        return [np.array(results[f"output_{i}"], order="C") for i in range(len(self._model.output_names))]


class LiteRTBackend:
    """The interpreter in one thread.

    Args:
        reference: Use the reference kernels, without XNNPACK.
    """

    name, device = "litert", "cpu"

    def __init__(self, *, reference: bool = False) -> None:
        self.version: str = installed_version("ai-edge-litert")
        self._reference = reference

    def plain(self) -> LiteRTBackend:
        """See `harness.run.backend.HasPlain`."""
        return LiteRTBackend(reference=True)

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype is kept."""
        return None

    def load(self, model: Artefact, shapes: Mapping[str, ShapeRange] | None) -> LiteRTSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_REF if self._reference else OpResolverType.AUTO
        try:
            interpreter = Interpreter(model_content=model.content, num_threads=1, experimental_op_resolver_type=kernels)
            return LiteRTSession(interpreter, model)
        except (RuntimeError, ValueError) as error:
            raise _translated(error) from error


def _translated(error: Exception) -> Exception:
    return (UnsupportedModel if _UNSUPPORTED.search(str(error)) else BackendFailure)(str(error))


def _probe(argument: str) -> Unavailable | None:
    if importable("ai_edge_litert"):
        return None
    return Unavailable(reason="ai-edge-litert is not installed", install="pip install 'aten-onnx-conformance[litert]'")


def _snippet(wanted: RunWanted) -> RunSnippet:
    return RunSnippet(
        load=("runner = Interpreter(model_content=model, num_threads=1).get_signature_runner()",),
        run=(
            'feeds = {f"args_{i}": x.contiguous().numpy() for i, x in enumerate(inputs.values())}',
            "found = runner(**{n: a for n, a in feeds.items() if n in runner.get_input_details()})",
            'outputs = [torch.tensor(found[f"output_{i}"]) for i in range(len(found))]',
        ),
        imports=("from ai_edge_litert.interpreter import Interpreter",),
        packages=("ai-edge-litert",),
    )


register(
    BackendEntry(
        name="litert",
        probe=_probe,
        create=lambda argument: LiteRTBackend(),
        version=lambda argument: installed_version("ai-edge-litert"),
        summary="LiteRT's interpreter with XNNPACK, one thread",
        # xnn_run_operator of XNNPACK runs everything with PTHREADPOOL_FLAG_DISABLE_DENORMALS.
        flushes="XNNPACK asks of the processor",
        snippet=_snippet,
        tracker="google-ai-edge/LiteRT",
        distributions=("ai-edge-litert",),
        on_cpu=True,
        takes=(LITERT,),
    )
)
