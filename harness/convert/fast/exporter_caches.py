"""torch.onnx's dynamo exporter without repeated work: values that are constant in a process are kept.

`torch.onnx.export(..., dynamo=True)` rebuilds its registry, its decomposition table and the list of
composite-implicit operators on every call: over nine tenths of the time of a one-operator export. While
`cached_constants()` is active those functions return their first result, and `run_decompositions` is
skipped if it has nothing to do. Everything else, the public entry point included, runs unchanged.

The functions are private to PyTorch. `harness.convert.fast.exporter_check` checks their form, and gives
`cached_constants()` to exports.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.export.graph_signature import OutputKind

from harness.convert.fast.decomposition import Decompositions, NotDecomposed, decompose_directly
from harness.convert.fast.direct_program import LIFTS, is_sized_by_values
from harness.convert.fast.passes import evaluate, infer_node, quick_passes
from harness.convert.fast.tracing import fake_result
from harness.convert.torch_private import part, preserved_composites, replaceable
from harness.core.torch_operators import META, OpOverload, is_composite


class OnlyDecomposed(Exception):
    """Ends an export that was to decompose a program and no more."""


class CachedExport:
    """The last export under `cached_constants()`: the program that it was about to translate.

    Args:
        parts: See `cached_constants`.
    """

    def __init__(self, parts: str = "") -> None:
        self._parts = parts
        self._decomposed: tuple[Any, Any] | None = None

    @property
    def decomposed(self) -> torch.export.ExportedProgram:
        """The program after its decomposition."""
        assert self._decomposed is not None
        program: torch.export.ExportedProgram = self._decomposed[0]
        return program

    def missing_functions(self, outputs: Sequence[str]) -> dict[str, str]:
        """Return the outputs of the exported program that need an operator without an ONNX function.

        The exporter stops at the first such operator. All of them are known by then: it looks functions up
        by operator alone, so an operator that has none fails wherever it stands.

        Args:
            outputs: Names for the program's outputs, in order.

        Returns:
            Output name → operator; empty if no program is known or its outputs are other ones.
        """
        if self._decomposed is None:
            return {}
        lacking = self.lacking()
        if len(lacking) != len(outputs):
            return {}
        return {name: operator for name, operator in zip(outputs, lacking, strict=True) if operator}

    def lacking(self) -> list[str]:
        """Return the first operator without an ONNX function that each result of the program needs, or "". Return an
        empty list if the form of the results is not known."""
        assert self._decomposed is not None
        program, registry = self._decomposed
        # The exporter stops at the first one in the graph's order, whichever stands nearest to a result.
        lacking: dict[torch.fx.Node, tuple[int, str]] = {}
        for place, node in enumerate(program.graph.nodes):
            if node.op == "output" or _is_token(node):
                continue
            found = [lacking[n] for n in _inputs(node) if n in lacking]
            target = node.target
            if isinstance(target, OpOverload) and part("dispatch")(node, registry)[0] is None:
                found.append((place, str(target)))
            if found:
                lacking[node] = min(found)
        results = _results(program.graph)
        kinds = [spec.kind for spec in program.graph_signature.output_specs]
        if len(results) != len(kinds):
            return []
        return [
            lacking.get(result, (0, ""))[1]
            for result, kind in zip(results, kinds, strict=True)
            if kind is OutputKind.USER_OUTPUT
        ]

    def decompose(self, program: Any, registry: Any) -> Any:
        """Replace the exporter's function: decompose if that changes the program, and keep the result."""
        if self._parts != "after":
            decompositions = _decompositions_for(registry)
            if not all(_stays(node, decompositions.table) for node in program.graph.nodes):
                program = self._taken_apart(program, registry, decompositions)
        self._decomposed = program, registry
        if self._parts == "before":
            raise OnlyDecomposed
        return program

    def _taken_apart(self, program: Any, registry: Any, decompositions: Decompositions) -> Any:
        reason = None
        try:
            found = decompose_directly(program, decompositions)
            if found is not None:
                return found
        except NotDecomposed as error:
            # A program that is built here lacks PyTorch's facts about sizes that values decide.
            if is_sized_by_values(program) or (self._parts == "before" and error.raised):
                raise
            reason = error
        try:
            return replaceable("decompose").original(program, registry)
        except Exception as error:
            if self._parts == "before" and reason is not None:
                raise reason from error
            raise


#: How PyTorch exports a call with a side effect: it takes a token and the call, and returns a token first.
_EFFECT = "with_effects"


def _inputs(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """Return the inputs of a node, without the token that only orders effects."""
    if str(node.target) == _EFFECT:
        return [n for n in node.all_input_nodes if n is not node.args[0]]
    return node.all_input_nodes


def _is_token(node: torch.fx.Node) -> bool:
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, torch.fx.Node) and str(source.target) == _EFFECT and not node.args[1]


def _results(graph: torch.fx.Graph) -> Sequence[Any]:
    """Return the results of a graph; empty if it does not return a sequence."""
    returned: Sequence[Any] = next((node.args for node in graph.nodes if node.op == "output"), ())
    return returned[0] if len(returned) == 1 and isinstance(returned[0], list | tuple) else ()


@contextmanager
def cached_constants(*, fallbacks: bool = True, parts: str = "", adding: bool = True) -> Iterator[CachedExport]:
    """Let exports in this block reuse the process's constants.

    Args:
        fallbacks: Whether PyTorch tries its other ways of capturing a program if the first fails, as it
            does by itself; they take many times as long.
        parts: ``before`` to end the export with `OnlyDecomposed` when the program has been decomposed,
            ``after`` to take a decomposed program.
        adding: Whether conversion functions may be added to the exporter's.

    Raises:
        PrivatePartMissing: this PyTorch lacks a part that is replaced.
    """
    export = CachedExport(parts)
    replacements: dict[str, Any] = {
        "from_torchlib": classmethod(_registry_copied if adding else _pristine_registry),
        "decompositions": _decomposition_table,
        "decompose": export.decompose,
        "fake_dispatch": fake_result,
        "infer_node": infer_node,
        "evaluate": evaluate,
        **quick_passes(),
    }
    if not fallbacks:
        replacements["strategies"] = replaceable("strategies").original[:1]
    with ExitStack() as stack:
        for name, replacement in replacements.items():
            stack.enter_context(replaceable(name).replaced_by(replacement))
        stack.enter_context(cached_composites())
        # PyTorch takes longer to remember the results of a call than to make it.
        stack.enter_context(part("tracing_settings")(fake_tensor_cache_enabled=False))
        yield export


@contextmanager
def cached_composites() -> Iterator[None]:
    """Let PyTorch's own decompositions in this block reuse what it finds out about composite operators, two thirds of
    the time of decomposing a small program."""
    with (
        replaceable("composites").replaced_by(_composites),
        replaceable("overrides").replaced_by(_overridden),
    ):
        yield


#: Of the registries: lower ones are converted from it.
_LEAST_OPSET = 18
#: By opset, as they were before anybody added to them.
_pristine_registries: dict[int, Any] = {}
#: Target → functions for all opsets. To list them, the source of each is parsed; to choose those of an opset is quick.
_every_function: dict[Any, list[Any]] = {}


@contextmanager
def learned() -> Iterator[None]:
    """Let an export in this block run unchanged, and keep the registry that it builds."""
    patch = replaceable("from_torchlib")

    def build(cls: Any, opset_version: int = _LEAST_OPSET) -> Any:
        registry = _newly_built(cls, opset_version)
        _pristine_registries[opset_version] = _copy(registry)
        return registry

    with patch.replaced_by(classmethod(build)):
        yield


def _newly_built(cls: Any, opset_version: int) -> Any:
    choose = replaceable("for_opset")
    if _every_function:
        registry = cls()
        registry._opset_version = opset_version
        registry.functions = {target: list(metas) for target, metas in _every_function.items()}
        choose.original(registry)
        return registry

    def note(registry: Any) -> None:
        _every_function.update({target: list(metas) for target, metas in registry.functions.items()})
        choose.original(registry)

    with choose.replaced_by(note):
        return replaceable("from_torchlib").original.__get__(None, cls)(opset_version=opset_version)


def _pristine_registry(cls: Any, opset_version: int = _LEAST_OPSET) -> Any:
    if opset_version not in _pristine_registries:
        _pristine_registries[opset_version] = _newly_built(cls, opset_version)
    return _pristine_registries[opset_version]


def _registry_copied(cls: Any, opset_version: int = _LEAST_OPSET) -> Any:
    # Callers add their own functions to the registry that they get.
    return _copy(_pristine_registry(cls, opset_version))


def _copy(registry: Any) -> Any:
    copy = type(registry)()
    copy._opset_version = registry._opset_version
    copy.functions = {target: list(metas) for target, metas in registry.functions.items()}
    return copy


#: By opset, of the registries that are as they were.
_pristine_decompositions: dict[int, Decompositions] = {}


def _decompositions_for(registry: Any) -> Decompositions:
    opset = registry._opset_version
    if registry is not _pristine_registries.get(opset):
        return _kept_decompositions(frozenset(part("implemented")(registry)))
    if opset not in _pristine_decompositions:
        # To look them up by the registered operators takes a millisecond.
        _pristine_decompositions[opset] = _kept_decompositions(frozenset(part("implemented")(registry)))
    return _pristine_decompositions[opset]


def decompositions_at(opset: int | None) -> Decompositions | None:
    """Return the decompositions of the exporter's own registry for an opset, the same object for opsets that share
    them; None before the first export at it."""
    registry = _pristine_registries.get(max(opset or 0, _LEAST_OPSET))
    return None if registry is None else _decompositions_for(registry)


def first_decompositions() -> Decompositions | None:
    """Return the decompositions of the opset that this process first exported at; None before that."""
    registry = next(iter(_pristine_registries.values()), None)
    return None if registry is None else _decompositions_for(registry)


@cache
def _kept_decompositions(registered: frozenset[Any]) -> Decompositions:
    return Decompositions(replaceable("decompositions").original(set(registered)))


def _decomposition_table(registered: set[Any]) -> dict[Any, Callable[..., Any]]:
    # PyTorch removes entries from the table that it gets.
    return dict(_kept_decompositions(frozenset(registered)).table)


def _composites() -> set[Any]:
    return set(preserved_composites())


@dataclass(frozen=True)
class _Kernels:
    """An operator's entries in PyTorch's dispatch tables outside and inside an override."""

    before: dict[Any, Any]
    within: dict[Any, Any]
    fake_rule: Any


_snapshots: dict[frozenset[Any], dict[Any, _Kernels]] = {}
#: The callables that were last overridden with, and their key among the snapshots.
_last_key: list[tuple[dict[Any, Callable[..., Any]], frozenset[Any]]] = []


@contextmanager
def _overridden(callables: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Put PyTorch's override of some seven hundred composite operators in place, from a snapshot of its first
    use."""
    fake_rules = part("fake_rules")
    if not _last_key or callables is not _last_key[0][0]:
        _last_key[:] = [(callables, frozenset(callables.items()))]
    key = _last_key[0][1]
    snapshot = _snapshots.get(key)
    if snapshot is None or any(op.py_kernels != kernels.before for op, kernels in snapshot.items()):
        before = {op: dict(op.py_kernels) for op in callables}
        with replaceable("overrides").original(callables):
            _snapshots[key] = {op: _Kernels(before[op], dict(op.py_kernels), fake_rules.get(op)) for op in callables}
            yield
        return
    for op, kernels in snapshot.items():
        _replace_kernels(op, kernels.within)
        if kernels.fake_rule is not None:
            fake_rules.setdefault(op, kernels.fake_rule)
    try:
        yield
    finally:
        for op, kernels in snapshot.items():
            _replace_kernels(op, kernels.before)
            # As PyTorch does on leaving.
            fake_rules.pop(op, None)


def _replace_kernels(op: Any, kernels: dict[Any, Any]) -> None:
    op.py_kernels.clear()
    op.py_kernels.update(kernels)
    op._dispatch_cache.clear()


def _stays(node: torch.fx.Node, table: Mapping[Any, Callable[..., Any]]) -> bool:
    """Whether decomposition would leave `node` as it is.

    It replaces the operators that are in its table (those with a decomposition, or composed of others,
    that have no ONNX function), decomposes composites that PyTorch cannot preserve and operators whose
    Python kernels retracing would run, ONNX function or not, makes mutations functional, and retraces the
    rest unchanged.
    """
    if node.op != "call_function" or node.target is operator.getitem:
        return node.op != "get_attr"
    target = node.target
    return (
        isinstance(target, OpOverload)
        and target not in table
        and str(target) not in LIFTS
        and not target._schema.is_mutable
        and not (target.py_kernels.keys() - {META})
        and (not is_composite(target) or target in preserved_composites())
    )
