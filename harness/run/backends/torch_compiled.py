"""`torch.compile`: Inductor, and the steps before it alone.

A module is captured whole (``fullgraph=True``), decomposed and compiled when it is loaded, which takes seconds: a C++
compiler is started for each fused loop. `aot-eager` captures and traces the module and runs what it gets with PyTorch's
own kernels; `aot-eager-decomposed` decomposes it as Inductor does before that. Where these are right and Inductor is
not, its code is wrong.
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

#: Ours → PyTorch's name.
_NAMES = {
    "inductor": "inductor",
    "aot-eager": "aot_eager",
    "aot-eager-decomposed": "aot_eager_decomp_partition",
}
#: Before the line of a module at which a capture ends.
_CAUSED_BY = "\n\n\nCaused by:"
#: What Inductor looks for, after what the environment names.
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
        """Every dtype is kept."""
        return None

    def load(self, model: Artefact, shapes: Mapping[str, ShapeRange] | None) -> CompiledSession:
        """Compile a module by calling it on its example inputs."""
        import torch

        module, is_dynamic = model.content
        # What was compiled before belongs to another module, and would count against the limit of compilations.
        torch.compiler.reset()
        # As the harness has it, one thread; the workers that Inductor starts otherwise outlive a killed process.
        options: dict[str, Any] | None = {"compile_threads": 1} if self.name == "inductor" else None
        compiled = torch.compile(module, backend=_NAMES[self.name], fullgraph=True, dynamic=is_dynamic, options=options)
        try:
            with torch.no_grad():
                compiled(*(tensor.clone() for tensor in model.examples))  # type: ignore[no-untyped-call]
        except Exception as error:
            kind = type(error).__name__
            # What follows quotes the line of the user's module, which is the same for all.
            words, _, _ = str(error).partition(_CAUSED_BY)
            # The class is a private one.
            if kind == "Unsupported":
                raise UnsupportedModel(words) from None
            raise BackendFailure(f"{kind}: {words}") from None
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
