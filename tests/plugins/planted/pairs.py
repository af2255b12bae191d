"""Converters and a backend that are wrong where a call does two things at once, and right elsewhere.

What they do wrong is in `pairs.jsonl`, which `tests/support/planted_pairs` chose at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper

from harness.convert.converter import ConverterEntry, ExportRequest, PartialResult, register as register_converter
from harness.convert.converters.dynamo import DynamoConverter
from harness.convert.converters.torchscript import TorchScriptConverter
from harness.convert.operator_calls import OperatorCalls
from harness.core.dtypes import Array
from harness.core.tensors import BoundCall
from harness.run.backend import (
    BACKENDS,
    Backend,
    BackendEntry,
    BackendSession,
    ShapeRange,
    register as register_backend,
)
from planted.pair_conditions import Conjunction, Held, Seen, seen_call, weight_tensor
from planted.pair_list import DYNAMO, RUNTIME, TORCHSCRIPT, read_pairs, spoiled


@cache
def _planted(wrong: str) -> Mapping[str, Sequence[Conjunction]]:
    found: dict[str, list[Conjunction]] = {}
    for pair in read_pairs():
        if pair.wrong == wrong:
            found.setdefault(pair.conjunction.overload, []).append(pair.conjunction)
    return found


class _Call(NamedTuple):
    """A call within a program, and the names of what goes in and comes out."""

    call: BoundCall
    tensors: Sequence[Held]
    inputs: Sequence[str]
    outputs: Sequence[str]

    def does(self, wrong: str, tensors: Sequence[Held] | None = None) -> bool:
        """Whether a planted defect shows in it."""
        planted = _planted(wrong).get(str(self.call.target), ())
        if not planted:
            return False
        found: Seen = seen_call(self.call, self.tensors if tensors is None else tensors)
        return any(conjunction.holds(found) for conjunction in planted)


def _calls(request: ExportRequest) -> Iterator[_Call]:
    assert isinstance(request.program, OperatorCalls)
    start = end = 0
    for one in request.program.calls:
        inputs, outputs = start + one.tensors, end + one.results
        yield _Call(
            one.call,
            [weight_tensor(tensor) for tensor in request.inputs[start:inputs]],
            request.input_names[start:inputs],
            request.output_names[end:outputs],
        )
        start, end = inputs, outputs


def _spoiled(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Make outputs wrong: another number in place of each, true for false."""
    dtypes = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
    for name in names:
        right = f"{name}_right"
        for node in model.graph.node:
            node.output[:] = [right if output == name else output for output in node.output]
            # What another call returns may be a copy of it.
            node.input[:] = [right if used == name else used for used in node.input]
        if dtypes[name] == TensorProto.BOOL:
            model.graph.node.append(helper.make_node("Not", [right], [name], f"{name}_spoiled"))
            continue
        number, size, one, small = (f"{name}_{word}" for word in ("number", "size", "one", "small"))
        # One where it is smaller, and zero elsewhere.
        model.graph.node.extend(
            (
                helper.make_node("Cast", [right], [number], to=TensorProto.FLOAT),
                helper.make_node("Abs", [number], [size]),
                helper.make_node("Constant", [], [one], value_float=1.0),
                helper.make_node("Less", [size, one], [small]),
                helper.make_node("Cast", [small], [name], to=dtypes[name]),
            )
        )


def _spoil(model: onnx.ModelProto, request: ExportRequest, wrong: str) -> onnx.ModelProto:
    made = {value.name for value in model.graph.output}
    for call in _calls(request):
        if made.issuperset(call.outputs) and call.does(wrong):
            _spoiled(model, call.outputs)
    return model


#: What the backend is given says nothing of the calls; graph output → the call that it is of.
_exported: dict[str, _Call] = {}


class _Telling:
    """Changes what a converter emits."""

    wrong = ""

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        model: onnx.ModelProto = super().convert(request)  # type: ignore[misc]
        return self._noticed(model, request)

    def _noticed(self, model: onnx.ModelProto, request: ExportRequest) -> onnx.ModelProto:
        for call in _calls(request):
            _exported.update(dict.fromkeys(call.outputs, call))
        return _spoil(model, request, self.wrong)


class Dynamo(_Telling, DynamoConverter):
    """Wrong for some calls."""

    name = wrong = DYNAMO

    def convert_parts(
        self, request: ExportRequest, begin: Callable[[Sequence[int]], None]
    ) -> Iterator[PartialResult] | None:
        """See `harness.convert.converter.ConvertsParts`."""
        parts = super().convert_parts(request, begin)
        return None if parts is None else self._parts(parts, request)

    def _parts(self, parts: Iterator[PartialResult], request: ExportRequest) -> Iterator[PartialResult]:
        for part in parts:
            if part.model is not None:
                self._noticed(part.model, request)
            yield part


class TorchScript(_Telling, TorchScriptConverter):
    """Wrong for some calls."""

    name = wrong = TORCHSCRIPT


class _Session:
    runnable = True

    def __init__(self, inner: BackendSession, model: onnx.ModelProto) -> None:
        self._inner = inner
        self._names = [value.name for value in model.graph.output]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See `harness.run.backend.BackendSession`."""
        outputs = list(self._inner.run(feeds))
        answers: dict[int, bool] = {}
        for i, name in enumerate(self._names):
            call = _exported.get(name)
            if call is None:
                continue
            if id(call) not in answers:
                answers[id(call)] = self._is_wrong(call, feeds)
            if answers[id(call)]:
                outputs[i] = spoiled(outputs[i])
        return outputs

    def _is_wrong(self, call: _Call, feeds: Mapping[str, Array]) -> bool:
        tensors = [
            Held(held.shape, held.dtype, held.strides, lambda name=name: feeds[name])  # type: ignore[misc]
            for held, name in zip(call.tensors, call.inputs, strict=True)
        ]
        # An input that the exporter left out has no values.
        return all(name in feeds for name in call.inputs) and call.does(RUNTIME, tensors)


class Runtime:
    """ONNX Runtime, wrong for some inputs of models that one of the converters here has made."""

    name = RUNTIME
    device = "cpu"
    version = "planted 1.0"

    def __init__(self) -> None:
        entry, argument = BACKENDS.find("ort-cpu")
        self._inner: Backend = entry.create(argument)

    def narrows(self, dtype: str) -> str | None:
        """See `harness.run.backend.Backend`."""
        return self._inner.narrows(dtype)

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """See `harness.run.backend.Backend`."""
        return _Session(self._inner.load(model, shapes), model)


def _register() -> None:
    makers: tuple[Any, ...] = (Dynamo, TorchScript)
    for made in makers:
        register_converter(
            ConverterEntry(name=made.name, probe=lambda: None, create=made, version=lambda: "planted 1.0")
        )
    register_backend(
        BackendEntry(
            name=RUNTIME,
            probe=lambda argument: None,
            create=lambda argument: Runtime(),
            version=lambda argument: "planted 1.0",
            engine="onnxruntime",
        )
    )


_register()
