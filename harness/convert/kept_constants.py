"""torch.onnx's dynamo exporter without repeating what is constant in a process.

`torch.onnx.export(..., dynamo=True)` rebuilds its registry, its decomposition table and the list of
composite-implicit operators on every call: over nine tenths of the time of a one-operator export. While
`kept()` is active those functions answer from what they gave the first time, and `run_decompositions` is left
out where it has nothing to do. Everything else, the public entry point included, runs as it is.

The functions are private to PyTorch. Each is looked up by name and left alone where it is not found, which
costs speed and nothing else.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_EXPORTER = "torch.onnx._internal.exporter"
_PLACES = {
    "registry": (f"{_EXPORTER}._registration", "ONNXRegistry"),
    "decompositions": (f"{_EXPORTER}._decomp", "create_onnx_friendly_decomposition_table"),
    "decompose": (f"{_EXPORTER}._fx_passes", "decompose_with_registry"),
    "composites": ("torch.export.exported_program", "_collect_all_valid_cia_ops"),
    "overrides": ("torch.export.exported_program", "_override_composite_implicit_decomp"),
    "strategies": (f"{_EXPORTER}._capture_strategies", "CAPTURE_STRATEGIES"),
}


@cache
def _originals() -> dict[str, tuple[Any, str, Any]]:
    """Name → (module or class to patch, attribute, original)."""
    found: dict[str, tuple[Any, str, Any]] = {}
    for name, (module_name, attribute) in _PLACES.items():
        try:
            module = importlib.import_module(module_name)
            target = getattr(module, attribute)
        except (ImportError, AttributeError):
            continue
        if name == "registry":
            if "from_torchlib" in vars(target):
                found[name] = (target, "from_torchlib", vars(target)["from_torchlib"])
        else:
            found[name] = (module, attribute, target)
    return found


@contextmanager
def kept(*, fallbacks: bool = True) -> Iterator[None]:
    """Let exports in this block reuse the process's constants.

    Args:
        fallbacks: Where PyTorch's first way of capturing a program fails, let it try the others, as it
            does by itself; they take many times as long.
    """
    originals = _originals()
    if not {"decompositions", "composites"} <= originals.keys():
        originals = {name: place for name, place in originals.items() if name != "decompose"}
    replacements: dict[str, Any] = {
        "registry": classmethod(_from_torchlib),
        "decompositions": _decomposition_table,
        "decompose": _decompose_where_needed,
        "composites": _composites,
        "overrides": _overridden,
    }
    if not fallbacks and "strategies" in originals:
        replacements["strategies"] = originals["strategies"][2][:1]
    _last.clear()
    for name, replacement in replacements.items():
        if name in originals:
            owner, attribute, _ = originals[name]
            setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for owner, attribute, original in originals.values():
            setattr(owner, attribute, original)


@cache
def _pristine_registry(opset: int) -> Any:
    owner, _, original = _originals()["registry"]
    return original.__get__(None, owner)(opset_version=opset)


def _from_torchlib(cls: Any, opset_version: int = 18) -> Any:
    # Callers add their own functions to the registry that they get.
    source = _pristine_registry(opset_version)
    registry = cls()
    registry._opset_version = source._opset_version
    registry.functions = {target: list(metas) for target, metas in source.functions.items()}
    return registry


_tables: dict[frozenset[Any], dict[Any, Callable[..., Any]]] = {}


def _kept_table(registered: frozenset[Any]) -> dict[Any, Callable[..., Any]]:
    if registered not in _tables:
        _tables[registered] = _originals()["decompositions"][2](set(registered))
    return _tables[registered]


def _decomposition_table(registered: set[Any]) -> dict[Any, Callable[..., Any]]:
    # PyTorch removes entries from the table that it gets.
    return dict(_kept_table(frozenset(registered)))


@cache
def _composite_operators() -> frozenset[Any]:
    return frozenset(_originals()["composites"][2]())


def _composites() -> set[Any]:
    return set(_composite_operators())


@dataclass(frozen=True)
class _Kernels:
    """What one operator's entries in PyTorch's dispatch tables are outside and inside an override."""

    before: dict[Any, Any]
    within: dict[Any, Any]
    fake_rule: Any


_snapshots: dict[frozenset[Any], dict[Any, _Kernels]] = {}


@contextmanager
def _overridden(callables: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """PyTorch's override of some seven hundred composite operators, put in place from a snapshot of what
    it was the first time."""
    from torch._subclasses.fake_impls import op_implementations_dict as fake_rules

    key = frozenset(callables.items())
    snapshot = _snapshots.get(key)
    if snapshot is None or any(op.py_kernels != kernels.before for op, kernels in snapshot.items()):
        before = {op: dict(op.py_kernels) for op in callables}
        with _originals()["overrides"][2](callables):
            _snapshots[key] = {
                op: _Kernels(before[op], dict(op.py_kernels), fake_rules.get(op)) for op in callables
            }
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


@dataclass(frozen=True)
class _Decomposed:
    """What the last export in this process was about to translate."""

    program: Any
    registry: Any


_last: list[_Decomposed] = []


def missing_functions(outputs: Sequence[str]) -> dict[str, str]:
    """Which outputs of the program last exported under `kept()` need an operator without ONNX function.

    The exporter stops at the first such operator. All of them are known by then: it looks functions up
    by operator alone, so an operator that has none fails wherever it stands.

    Args:
        outputs: Names for the program's outputs, in order.

    Returns:
        Output name → operator; empty where no program is known.
    """
    if not _last:
        return {}
    program, registry = _last[-1].program, _last[-1].registry
    lacking: dict[torch.fx.Node, str] = {}
    for node in program.graph.nodes:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and not registry.is_registered(target):
            lacking[node] = str(target)
        else:
            inherited = next((lacking[n] for n in node.all_input_nodes if n in lacking), None)
            if inherited is not None and node.op != "output":
                lacking[node] = inherited
    (results,) = program.graph.output_node().args
    if len(results) != len(outputs):
        return {}
    return {name: lacking[r] for name, r in zip(outputs, results, strict=True) if r in lacking}


def _decompose_where_needed(program: Any, registry: Any) -> Any:
    decomposed = _decomposed(program, registry)
    _last[:] = [_Decomposed(decomposed, registry)]
    return decomposed


def _decomposed(program: Any, registry: Any) -> Any:
    implemented = importlib.import_module(_PLACES["decompositions"][0]).get_onnx_implemented_overloads
    table = _kept_table(frozenset(implemented(registry)))
    if all(_stays(node, table) for node in program.graph.nodes):
        return program
    return _originals()["decompose"][2](program, registry)


def _stays(node: torch.fx.Node, table: dict[Any, Callable[..., Any]]) -> bool:
    """Whether decomposition would leave `node` as it is.

    It replaces the operators that are in its table (those with a decomposition, or composed of others,
    that have no ONNX function), takes apart composites that PyTorch cannot preserve and operators whose
    Python kernels retracing would run, ONNX function or not, rewrites what mutates, and retraces the
    rest unchanged.
    """
    if node.op != "call_function" or node.target is operator.getitem:
        return node.op != "get_attr"
    target = node.target
    return (
        isinstance(target, torch._ops.OpOverload)
        and target not in table
        and not target._schema.is_mutable
        and not (target.py_kernels.keys() - {torch._C.DispatchKey.Meta})
        and (not _is_composite(target) or target in _composite_operators())
    )


def _is_composite(target: torch._ops.OpOverload) -> bool:
    name: str = target.name()  # type: ignore[no-untyped-call]
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
