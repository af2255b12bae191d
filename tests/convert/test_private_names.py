"""Each private name of PyTorch that the fast lane uses may be removed, or change its meaning: verdicts stay public."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any
from unittest.mock import patch

import onnx
import pytest
from exporter_sources import read_once
from harness_runs import ROOT
from sampling import sampled

from harness.compare.signatures import normalise
from harness.convert import torch_private
from harness.convert.converter import CONVERTERS, Converter, find_converter
from harness.convert.fast import exporter_caches, exporter_check
from harness.convert.graph_lines import graph_lines
from harness.core.case_group import CaseGroup
from harness.core.isolation import IsolatedCalls
from harness.core.route import Route
from harness.core.text import describe_error
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.pipeline.batch_export import BatchExport, Converted, Member
from harness.pipeline.double_check import DoubleCheck
from harness.pipeline.program import CallStructure

pytestmark = pytest.mark.slowest(5)

FAST = ROOT / "harness" / "convert" / "fast"
#: What is exported: several outputs, a promoted pair, a decomposition, one without a conversion.
OPERATORS = ("aten.topk.default", "aten.add.Tensor", "aten.cosine_similarity.default", "aten.special_zeta.default")
#: What TorchScript's partial exports use, which have no self-test: their failures are the exporter's own.
_SCRIPT = {"_functions"}


def names_used() -> set[str]:
    """Attributes with a private spelling that the fast lane uses of objects that are not its own."""
    used: set[str] = set()
    own: set[str] = set()
    for path in FAST.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                own.add(node.name)
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
                continue
            holder = node.value.id if isinstance(node.value, ast.Name) else ""
            (own if holder in ("self", "cls") or isinstance(node.ctx, ast.Store) else used).add(node.attr)
    return used - own


def names_listed() -> set[str]:
    paths = [name for fields in torch_private.FIELDS for name in fields.names]
    return {part for path in paths for part in path.split(".")}


def test_every_private_name_is_in_the_list() -> None:
    assert names_used() - names_listed() - _SCRIPT == set()


PARTS = sorted(torch_private.PARTS)
#: Methods that dictionaries have, too.
_COMMON = {"get", "items", "keys", "clear"}
FIELDS = sorted({"." + part for part in names_listed() - _COMMON})


@cache
def accepted() -> tuple[Member, ...]:
    """A call of each operator."""
    drawn = [
        structure.invocations[0]
        for overload in OPERATORS
        for structure in draw_cases(load_cases()[overload], seed=1, structures=1, values=1, dtypes=["float32"])
    ]
    groups = (CaseGroup.of(call, index=i) for i, call in enumerate(drawn))
    return tuple(Member.of(CallStructure.of(group), group) for group in groups)


def endings(converter: Converter) -> dict[int, object]:
    """Index of each call → its graph, or the signature of its failure, as the harness records it."""
    found: dict[int, object] = {}
    with read_once():
        for result in DoubleCheck(BatchExport(Route(converter="dynamo"), converter)).export(accepted()):
            for member in result.members:
                if isinstance(result, Converted):
                    model = onnx.ModelProto.FromString(result.alone(member))
                    found[member.group.index] = graph_lines(model)
                else:
                    failure = result.failure
                    found[member.group.index] = failure.stage, failure.outcome, normalise(describe_error(failure.error))
    return found


@pytest.fixture(scope="module")
def public() -> dict[int, object]:
    """Return the graphs of the plain public call, with which the self-test compares."""
    exporter_check.public_lines()
    found = endings(find_converter("dynamo").create(True))
    assert len(found) == len(accepted())
    return found


def removed(value: object) -> object:
    raise AttributeError("no such attribute")


def changed(value: object) -> object:
    """Something else of the same kind where that is easy, else nothing."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, type):
        return type("Another", (), {})
    if isinstance(value, dict | list | tuple | set):
        return type(value)()
    return (lambda *args, **kwargs: None) if callable(value) else None


CHANGES: dict[str, Callable[[object], object]] = {"removed": removed, "changed": changed}
#: A name takes a second and a half for each change. The second is for `ci/next_versions`, which sets this.
TRIED = CHANGES if os.environ.get("PRIVATE_NAMES") == "all" else ("removed",)


class _Edited(ast.NodeTransformer):
    """Passes what is read of an attribute through the change."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr != self._name or not isinstance(node.ctx, ast.Load):
            return node
        return ast.Call(ast.Name("__private_change__", ast.Load()), [node], [])


class _Loader(importlib.machinery.SourceFileLoader):
    name_to_change = ""

    def get_code(self, fullname: str) -> CodeType:
        tree = _Edited(self.name_to_change).visit(ast.parse(Path(self.path).read_text(encoding="utf-8")))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not name.startswith("harness.convert.fast."):
            return None
        spec.loader = _Loader(name, spec.origin)
        return spec


def changed_endings(
    name: str, change: str, expected: dict[str, tuple[str, ...]]
) -> tuple[dict[int, object], list[str]]:
    """Return the endings and the notes of a run with a private name changed for the harness alone.

    Runs in a process of its own, which imports the fast lane once more.
    """
    import builtins

    altered = CHANGES[change]
    vars(builtins)["__private_change__"] = altered
    if name in torch_private.PARTS:
        _change_part(name, altered)
    else:
        _Loader.name_to_change = name.removeprefix(".")
        sys.meta_path.insert(0, _Finder)
    for module in [
        m for m in sys.modules if m.startswith(("harness.convert.fast", "harness.convert.converters.dynamo"))
    ]:
        del sys.modules[module]
    del CONVERTERS["dynamo"]
    check: Any = importlib.import_module("harness.convert.fast.exporter_check")
    caches: Any = importlib.import_module("harness.convert.fast.exporter_caches")
    without_conversion, registries = exporter_check._unconvertible_operator, exporter_caches._pristine_registries
    with (
        patch.object(check, "public_lines", lambda: expected),
        # PyTorch takes its definition once in a process.
        patch.object(check, "_unconvertible_operator", without_conversion),
        # What a public export was seen to build takes most of a second.
        patch.dict(caches._pristine_registries, registries),
    ):
        from harness.convert.converters.dynamo import DynamoConverter

        converter = DynamoConverter(False)
        found = endings(converter)
        assert converter.trust is not None
        return found, [*check.exporter_notes(), *converter.trust.notes]


def _change_part(name: str, altered: Callable[[object], object]) -> None:
    original, replaceable = torch_private.part, torch_private.replaceable

    def part(asked: str) -> Any:
        found = original(asked)
        return altered(found) if asked == name else found

    def patch_of(asked: str) -> Any:
        found = replaceable(asked)
        if asked != name:
            return found
        return torch_private.Patch(found.owner, found.attribute, altered(found.original))

    vars(torch_private).update(part=part, replaceable=patch_of)


#: The path that leads to each name is much the same: every eightieth is tried by default, and all with ``--thorough``
#: and by `ci/next_versions`, after whose new releases it matters.
NAMES = sampled([*PARTS, *FIELDS], every=80 if len(TRIED) == 1 else 1, slow=4)


@pytest.mark.parametrize("change", TRIED)
@pytest.mark.parametrize("name", NAMES)
def test_verdicts_stay_those_of_the_public_export(name: str, change: str, public: dict[int, object]) -> None:
    with IsolatedCalls(timeout=300, fork=True) as process:
        found, notes = process.call(changed_endings, name, change, exporter_check.public_lines())
    assert found == public
    # None if these calls do not use the name.
    assert len(notes) <= 1


@pytest.mark.parametrize(
    "name",
    sampled(["split_table", "fake_mode", "decompose", "from_torchlib", "._has_symbolic_sizes_strides"], every=5),
)
def test_one_line_says_that_the_fast_lane_failed(name: str, public: dict[int, object]) -> None:
    with IsolatedCalls(timeout=300, fork=True) as process:
        _, notes = process.call(changed_endings, name, "removed", exporter_check.public_lines())
    (note,) = notes
    assert "plain public call, which is slower" in note
