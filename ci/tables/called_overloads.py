"""Write down which overloads OpInfo calls and torch.export sees, which costs minutes to ask.

    python ci/tables/called_overloads.py            # both; minutes on one core

rewrites ``opinfo.txt`` and ``exported.txt`` in `cases`, one overload a line, sorted, with the version of
PyTorch that they were made with in the first line. `target` reads them.

- ``opinfo.txt``: the overloads that the samples of OpInfo's `op_db` call, seen by a `TorchDispatchMode`.
  Every operator, every sample, in each dtype of `DTYPES` that it supports on the CPU; once with autograd's
  dispatch keys, where a composite operator has been decomposed before the mode sees it, and once in
  inference mode, where the mode sees the composite operator itself.
- ``exported.txt``: the call targets in the graphs that `torch.export.export` makes of every module of
  `torch.nn` (as `module_db` builds them, in training and in evaluation) and of every function of
  `torch.nn.functional` (with OpInfo's samples). PyTorch's exporter rejects some of them; these add nothing.

Both keep what is functional (`harness.coverage.target`).
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from harness.core.torch_operators import TorchDispatchMode, module_db, op_db
from harness.coverage.target import SourceMissing, functional_overloads, record

#: Kernels differ between kinds of numbers, and with them what an operator calls.
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64)


def _infos(name: str, read: Callable[[], list[Any]]) -> list[Any]:
    """OpInfo or ModuleInfo, which are part of PyTorch and need packages that PyTorch does not."""
    try:
        return read()
    except ImportError as error:
        raise SourceMissing(f"{name} cannot be imported: {error}; pip install expecttest") from None


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(str(func))
        return func(*args, **(kwargs or {}))


def called_by_op_info(infos: Iterable[Any] | None = None) -> frozenset[str]:
    """The functional overloads that OpInfo's samples call.

    Args:
        infos: Some of `op_db`; all by default.

    Raises:
        SourceMissing: OpInfo cannot be imported.
    """
    recorder = _Recorder()
    for info in _infos("OpInfo", op_db) if infos is None else infos:
        for dtype in DTYPES:
            for sample in _samples(info, dtype):
                for inference in (False, True):
                    with torch.inference_mode(inference), recorder:
                        _try(partial(info, sample.input, *sample.args, **sample.kwargs))
    return frozenset(recorder.seen & functional_overloads())


def exported_from_nn(limit: int | None = None) -> frozenset[str]:
    """The functional overloads in the graphs that torch.export makes of torch.nn and its functional half.

    Args:
        limit: Only so many modules and functions; all by default.

    Raises:
        SourceMissing: OpInfo or ModuleInfo cannot be imported.
    """
    seen: set[str] = set()
    for info in _infos("ModuleInfo", module_db)[:limit]:
        for training in (False, True):
            for module, inputs in _modules(info, training):
                seen |= _targets(module, inputs.args, inputs.kwargs)
    functions = [info for info in _infos("OpInfo", op_db) if info.name.startswith("nn.functional.")]
    for info in functions[:limit]:
        dtype = next((d for d in DTYPES if info.supports_dtype(d, "cpu")), None)
        for sample in _samples(info, dtype) if dtype else ():
            seen |= _targets(_Calling(info), (sample.input, *sample.args), sample.kwargs)
    return frozenset(seen & functional_overloads())


class _Calling(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    if not info.supports_dtype(dtype, "cpu"):
        return []
    return _try(lambda: list(info.sample_inputs("cpu", dtype, requires_grad=False))) or []


def _modules(info: Any, training: bool) -> Iterator[tuple[torch.nn.Module, Any]]:
    """Modules that `info` describes, with inputs."""
    make = info.module_inputs_func
    described = _try(lambda: make(info, device="cpu", dtype=torch.float32, requires_grad=False, training=training))
    for one in described or ():
        arguments = one.constructor_input
        module = _try(partial(info.module_cls, *arguments.args, **arguments.kwargs))
        if module is not None and one.forward_input is not None:
            yield module.train(training), one.forward_input


def _targets(module: torch.nn.Module, args: Any, kwargs: Any) -> set[str]:
    program = _try(lambda: torch.export.export(module, tuple(args), dict(kwargs), strict=False))
    if program is None:
        return set()
    graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return {str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"}


def _try(call: Callable[[], Any]) -> Any:
    """Return the result of `call`; None if PyTorch refuses, as it does for samples of other devices."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception:
        return None


def main() -> None:
    """Write both files."""
    # PyTorch reports every program that it rejects, at length.
    logging.disable(logging.ERROR)
    record("opinfo", called_by_op_info())
    record("exported", exported_from_nn())


if __name__ == "__main__":
    try:
        main()
    except SourceMissing as error:
        raise SystemExit(str(error)) from None
