"""`torch.compile` with Inductor, or with only the steps before it.

A module is captured whole (``fullgraph=True``), decomposed and compiled when it is loaded, which takes seconds because
a C++ compiler runs for each fused loop. `aot-eager` captures and traces the module and runs the result with PyTorch's
kernels; `aot-eager-decomposed` also decomposes it as Inductor does. If these are right and Inductor is not, its code is
wrong.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import partial
from typing import Any

from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, installed_version
from harness.core.snippet import RunSnippet, RunWanted
from harness.run.artefact import CALLABLE, Artefact
from harness.run.backend import BackendEntry, BackendFailure, ShapeRange, UnsupportedModel, register

#: Backend → PyTorch's name.
_NAMES = {
    "inductor": "inductor",
    "aot-eager": "aot_eager",
    "aot-eager-decomposed": "aot_eager_decomp_partition",
}
#: Precedes the line of a module at which a capture failed.
_CAUSED_BY = "\n\n\nCaused by:"
#: Compilers that Inductor looks for, after the environment's.
_COMPILERS = ("g++", "clang++", "c++")


class CompiledSession:
    """A compiled module."""

    runnable = True

    def __init__(self, compiled: Any, model: Artefact) -> None:
        self._compiled = compiled
        self._model = model

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        import torch

        from harness.core.torch_arrays import to_numpy, to_torch

        model = self._model
        tensors = [to_torch(feeds[n], like=x) for n, x in zip(model.input_names, model.examples, strict=True)]
        with torch.no_grad():
            return [to_numpy(output) for output in self._compiled(*tensors)]


class TorchCompileBackend:
    """`torch.compile` with one of its backends, in one thread.

    Args:
        name: One of `_NAMES`.
    """

    device = "cpu"

    def __init__(self, name: str) -> None:
        self.name = name
        self.version: str = installed_version("torch")

    def narrows(self, dtype: str) -> str | None:
        """Return None, since every dtype is kept."""
        return None

    def load(self, model: Artefact, shapes: Mapping[str, ShapeRange] | None) -> CompiledSession:
        """Compile a module by calling it with its example inputs."""
        import torch

        module, is_dynamic = model.content
        # Earlier compilations belong to other modules and would count towards the limit.
        torch.compiler.reset()
        # One thread, as everywhere in the harness; Inductor's workers would outlive a killed process.
        options: dict[str, Any] | None = {"compile_threads": 1} if self.name == "inductor" else None
        compiled = torch.compile(module, backend=_NAMES[self.name], fullgraph=True, dynamic=is_dynamic, options=options)
        try:
            with torch.no_grad():
                compiled(*(tensor.clone() for tensor in model.examples))  # type: ignore[no-untyped-call]
        except Exception as error:
            kind = type(error).__name__
            # The rest quotes a line of the generated module, which is the same for all.
            message, _, _ = str(error).partition(_CAUSED_BY)
            # The exception's class is private, so its name is compared.
            if kind == "Unsupported":
                raise UnsupportedModel(message) from None
            raise BackendFailure(f"{kind}: {message}") from None
        return CompiledSession(compiled, model)


def _compiler_missing() -> Unavailable | None:
    if any(map(shutil.which, filter(None, (os.environ.get("CXX"), *_COMPILERS)))):
        return None
    return Unavailable(reason="Inductor needs a C++ compiler", install="apt-get install g++, or set CXX")


def _snippet(name: str, wanted: RunWanted) -> RunSnippet:
    dynamic = bool(wanted.ranges)
    return RunSnippet(
        load=(
            f'compiled = torch.compile(model, backend="{_NAMES[name]}", fullgraph=True, dynamic={dynamic})',
            "compiled(*examples)",
        ),
        run=("outputs = list(compiled(*inputs.values()))",),
    )


for _place, _name in enumerate(_NAMES):
    register(
        BackendEntry(
            name=_name,
            probe=lambda argument, name=_name: _compiler_missing() if name == "inductor" else None,  # type: ignore[misc]
            create=lambda argument, name=_name: TorchCompileBackend(name),  # type: ignore[misc]
            version=lambda argument: installed_version("torch"),
            engine=_name,
            summary=f'torch.compile(backend="{_NAMES[_name]}"), one thread',
            snippet=partial(_snippet, _name),
            tracker="pytorch/pytorch",
            distributions=("torch",),
            on_cpu=True,
            default=_name == "inductor",
            witness=None if _name == "inductor" else 20 - _place,
            takes=(CALLABLE,),
        )
    )
