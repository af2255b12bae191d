"""TorchScript exports of many calls in which the failure of a conversion costs one call.

The exporter translates one node of the traced program after the other, each with a symbolic function, and
stops at the first that raises. Here what a symbolic function raises is kept as the failure of the call that
the node belongs to, constants stand in for what this call returns, and the others go on in the same export.

Calls of operators for which the TorchScript exporter has no symbolic function, by kind.

Such a call fails where its operator is looked up. What comes before that, tracing and the first passes over
the program, sees the types of a call's arguments and not what they hold: where one call gets as far as to be
looked up, all of its kind do, and fail there in the same words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import torch

from harness.convert.converter import ExportRequest, PartialResult
from harness.convert.operator_calls import OperatorCall, OperatorCalls
from harness.convert.torch_private import Patch, PrivatePartMissing, script_symbolic_versions
from harness.core.tensors import TENSOR_PLACE
from harness.core.torch_operators import OpOverload

#: Exports a request; what it raises is the failure of the whole program.
Export = Callable[[ExportRequest], onnx.ModelProto]
#: Takes calls by their places in the program.
Begin = Callable[[Sequence[int]], None]

#: Element types that the exporter cannot write, and how it says so.
_NOT_WRITTEN = frozenset((torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.complex64, torch.complex128))
_CANNOT_WRITE = "ScalarType "


class ScriptParts:
    """Exports the calls of a request in as few models as succeed.

    Args:
        request: Of a program of `OperatorCalls`.
        export: The exporter.
        failure_of: What stands for the exception of a symbolic function.
        begin: See `harness.convert.converter.ConvertsParts`.
        symbolic: The private function that calls the symbolic functions.
    """

    def __init__(
        self,
        request: ExportRequest,
        export: Export,
        failure_of: Callable[[Exception, ExportRequest], Exception],
        begin: Begin,
        symbolic: Patch,
    ) -> None:
        assert isinstance(request.program, OperatorCalls)
        self._request = request
        self._calls = request.program.calls
        self._export = export
        self._failure_of = failure_of
        self._begin = begin
        self._symbolic = symbolic

    def run(self) -> Iterator[PartialResult]:
        """What becomes of the calls.

        Of calls of unknown operators one of each kind is tried first. Where a failure does not tell whose it
        is, the program is tried again in quarters; after a call that fails alone the next is tried alone, and
        programs grow again from there.
        """
        unknown = self._unknown()
        yield from self._failed(unknown)
        left = [i for i in range(len(self._calls)) if i not in unknown]
        size = len(left)
        while left:
            some = left[:size]
            tried = self._attempt(some)
            failures: Mapping[int, Exception | None] = tried.failures
            if tried.error is not None and not failures:
                failures = {some[0]: tried.error} if len(some) == 1 else self._guilty(some, tried)
            elif len(some) > 1:
                failures = {i: error if _is_sure(error) else None for i, error in tried.failures.items()}
            yield from self._failed(failures)
            rest = [i for i in some if i not in failures]
            if tried.error is None or len(some) == 1:
                if rest:
                    yield PartialResult(calls=tuple(rest), model=tried.model)
                left = left[len(some) :]
                size = 1 if tried.error is not None else 2 * len(some)
            else:
                left = [*rest, *left[len(some) :]]
                size = max(1, len(rest) if failures else len(some) // 4)

    def _unknown(self) -> dict[int, Exception | None]:
        """The calls that fail because the exporter does not know their operators, as far as one of a kind
        tells it of others."""
        kinds = [kind for kind in kinds_of_unknown(self._calls) if len(kind) > 1]
        failures: dict[int, Exception | None] = {}
        together = self._attempt([kind[0] for kind in kinds]).failures if kinds else {}
        for first, *others in kinds:
            # Another kind may have ended the export before anything was looked up.
            error = together.get(first) or (None if len(kinds) == 1 else self._attempt([first]).failures.get(first))
            if is_unknown_itself(self._calls[first], error):
                failures.update(dict.fromkeys((first, *others), error))
        return failures

    def _attempt(self, some: Sequence[int], *, translate: bool = True) -> _Attempt:
        """Export some of the calls, or only go as far as their translation."""
        self._begin(some)
        translation = Translation(some, [self._calls[i].results for i in some], self._begin, stop=not translate)
        model = error = None
        try:
            with translation.watched(self._symbolic):
                model = self._export(self._part(some))
        except Stopped:
            pass
        except Exception as raised:
            error = raised
        return _Attempt(model, error, translation.failures, translation.begun)

    def _guilty(self, some: Sequence[int], tried: _Attempt) -> dict[int, Exception | None]:
        """Those of some calls that fail by themselves, as far as a failure of all of them gives a hint."""
        failures: dict[int, Exception | None] = {}
        if not tried.translated:
            for index in some:
                error = self._attempt([index], translate=False).error
                if error is not None:
                    failures[index] = error
            return failures
        alike: dict[torch.dtype, list[int]] = {}
        for index in some:
            dtype = next((t.dtype for t in self._part([index]).inputs if t.dtype in _NOT_WRITTEN), None)
            if dtype is not None:
                alike.setdefault(dtype, []).append(index)
        for calls in alike.values():
            error = self._attempt(calls[:1]).error
            if error is not None:
                # Whatever has such an input, and has been translated, fails in these words.
                shared = str(error).startswith(_CANNOT_WRITE)
                failures.update(dict.fromkeys(calls if shared else calls[:1], error))
        return failures

    def _failed(self, failures: Mapping[int, Exception | None]) -> Iterator[PartialResult]:
        """The calls that fail, those with the same words together; None for words that are not sure."""
        alike: dict[tuple[type, str, bool], list[int]] = {}
        for index, error in failures.items():
            if error is None:
                yield PartialResult(calls=(index,))
            else:
                is_complex = any(tensor.is_complex() for tensor in self._part([index]).inputs)
                alike.setdefault((type(error), str(error), is_complex), []).append(index)
        for calls in alike.values():
            error = failures[calls[0]]
            assert error is not None
            yield PartialResult(calls=tuple(calls), failure=self._failure_of(error, self._part(calls)))

    def _part(self, some: Sequence[int]) -> ExportRequest:
        """The export of some of the calls."""
        chosen = set(some)
        inputs: list[int] = []
        outputs: list[int] = []
        taken = returned = 0
        for index, one in enumerate(self._calls):
            if index in chosen:
                inputs += range(taken, taken + one.tensors)
                outputs += range(returned, returned + one.results)
            taken += one.tensors
            returned += one.results
        whole = self._request
        dims = whole.dynamic_dims
        return replace(
            whole,
            program=OperatorCalls([self._calls[i] for i in some]).eval(),
            inputs=tuple(whole.inputs[i] for i in inputs),
            input_names=tuple(whole.input_names[i] for i in inputs),
            output_names=tuple(whole.output_names[i] for i in outputs),
            dynamic_dims=None if dims is None else tuple(dims[i] for i in inputs),
        )


def _is_sure(error: Exception) -> bool:
    """Whether a call fails alone as it fails among others.

    That there is no symbolic function holds everywhere. One that raises may quote the whole program, and what
    it learns of values may depend on the calls before.
    """
    return isinstance(error, torch.onnx.errors.UnsupportedOperatorError)


@dataclass(frozen=True)
class _Attempt:
    """What an export came to.

    Attributes:
        error: That ended it; there may be neither this nor a model where all calls have failed.
        failures: Call → what a symbolic function raised for it.
        translated: Whether translation began.
    """

    model: onnx.ModelProto | None
    error: Exception | None
    failures: Mapping[int, Exception]
    translated: bool


class Stopped(BaseException):
    """Raised to stop the export: all calls have failed. The exporter prints the program if it is an `Exception`."""


class Translation:
    """The translation of one traced program.

    Args:
        calls: Their places in the whole program.
        results: How many tensors each of them returns.
        begin: Called with the calls that a node belongs to before it is translated.
        stop: Stop the export where translation begins.
    """

    def __init__(self, calls: Sequence[int], results: Sequence[int], begin: Begin, *, stop: bool = False) -> None:
        self._calls = tuple(calls)
        self._results = tuple(results)
        self._begin = begin
        self._stop = stop
        self._said: tuple[int, ...] = ()
        self._nodes: NodeOwners | None = None
        #: Call → what a symbolic function raised for it.
        self.failures: dict[int, Exception] = {}

    @contextlib.contextmanager
    def watched(self, symbolic: Patch) -> Iterator[None]:
        """Watch the symbolic functions of one export; `symbolic` is the private function that calls them."""

        def run(graph: Any, block: Any, node: Any, *arguments: Any, **more: Any) -> Any:
            def translate() -> Any:
                return symbolic.original(graph, block, node, *arguments, **more)

            return self._translate(block, node, translate)

        with symbolic.replaced_by(run):
            yield

    @property
    def begun(self) -> bool:
        """Whether any node has been translated."""
        return self._nodes is not None

    def _translate(self, block: Any, node: Any, translate: Callable[[], Any]) -> Any:
        if self._stop:
            raise Stopped
        if self._nodes is None:
            self._nodes = NodeOwners(node.owningBlock(), self._calls, self._results)
        owners = self._nodes.of(node)
        if owners is None:
            # Within another node, which fails with it.
            return translate()
        going = self._going(owners)
        found = self._attempt(block, node, going, translate) if going or not owners else _stand_in(block, node)
        if self._nodes.is_last(node):
            # What follows concerns all of them.
            self._say(self._going(self._calls))
        return found

    def _attempt(self, block: Any, node: Any, calls: tuple[int, ...], translate: Callable[[], Any]) -> Any:
        """What a node becomes; `calls` need it, none where that is not known."""
        self._say(calls or self._going(self._calls))
        try:
            return translate()
        except Exception as error:
            if not calls:
                raise
            self.failures.update(dict.fromkeys(calls, error))
            if len(self.failures) == len(self._calls):
                raise Stopped from error
            return _stand_in(block, node)

    def _going(self, calls: Sequence[int]) -> tuple[int, ...]:
        return tuple(call for call in calls if call not in self.failures)

    def _say(self, calls: tuple[int, ...]) -> None:
        if calls != self._said:
            self._said = calls
            self._begin(calls)


class NodeOwners:
    """Which calls need which nodes of a traced program."""

    def __init__(self, block: Any, calls: Sequence[int], results: Sequence[int]) -> None:
        self._owners: dict[int, tuple[int, ...]] = {}
        nodes = list(block.nodes())
        self._last = next((key for node in reversed(nodes) if (key := _key(node)) is not None), None)
        values: dict[int, set[int]] = {}
        returned = [call for call, count in zip(calls, results, strict=True) for _ in range(count)]
        outputs = list(block.outputs())
        if len(outputs) == len(returned):
            for value, call in zip(outputs, returned, strict=True):
                values.setdefault(value.unique(), set()).add(call)
        for node in reversed(nodes):
            needing: set[int] = set().union(*(values.get(v.unique(), ()) for v in node.outputs()))
            for value in _taken(node):
                values.setdefault(value.unique(), set()).update(needing)
            key = _key(node)
            if key is not None:
                self._owners[key] = tuple(sorted(needing))

    def of(self, node: Any) -> tuple[int, ...] | None:
        """The calls that need a node; None for one that stands within another node."""
        key = _key(node)
        return () if key is None else self._owners.get(key)

    def is_last(self, node: Any) -> bool:
        """Whether no other node follows."""
        return _key(node) == self._last


def _key(node: Any) -> int | None:
    """What tells a node from others of its program; None for one without results."""
    return next((int(value.unique()) for value in node.outputs()), None)


def _taken(node: Any) -> Iterator[Any]:
    yield from node.inputs()
    for block in node.blocks():
        for inner in block.nodes():
            yield from _taken(inner)
        yield from block.outputs()


def _stand_in(block: Any, node: Any) -> list[Any]:
    """Constants in the place of the results of a node."""
    constants = []
    for _ in node.outputs():
        constant = block.addNode("onnx::Constant", [])
        constant.t_("value", torch.zeros(()))
        constants.append(constant.output())
    return constants


def kinds_of_unknown(calls: Sequence[OperatorCall]) -> list[list[int]]:
    """Those of some calls whose operator has no symbolic function at any opset, by their places: a list for
    each kind."""
    kinds: dict[Hashable, list[int]] = {}
    for index, one in enumerate(calls):
        # What takes no tensor may be computed before anything is looked up.
        if one.tensors and _is_unknown(one.call.target):
            named = tuple((name, _kind(argument)) for name, argument in one.call.keywords)
            given = tuple(map(_kind, one.call.positional))
            kinds.setdefault((one.call.target, given, named), []).append(index)
    return list(kinds.values())


def is_unknown_itself(call: OperatorCall, error: Exception | None) -> bool:
    """Whether the exporter says of the very operator of a call, and of no other, that it does not know it."""
    if not isinstance(error, torch.onnx.errors.UnsupportedOperatorError):
        return False
    return f"operator '{_name(call.call.target)}' to" in str(error)


def _is_unknown(target: object) -> bool:
    try:
        return isinstance(target, OpOverload) and not script_symbolic_versions(_name(target))
    except PrivatePartMissing:
        return False


def _name(target: Any) -> str:
    """As the exporter knows an operator: ``aten::celu``."""
    return str(target._schema.name)


def _kind(argument: object) -> Any:
    if isinstance(argument, list):
        return frozenset(map(_kind, argument))
    return torch.Tensor if argument is TENSOR_PLACE else type(argument)
