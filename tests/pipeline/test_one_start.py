"""Converters, rules and backends are started in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import harness
from harness.convert.transform import TRANSFORMS, TransformEntry
from harness.core.route import FILE, Route
from harness.pipeline.start import start, start_converter

HOUSE = Path(harness.__file__).parent
#: Where `create` starts something else: a source of cases.
_OF_SOURCES = {"plan/plan.py"}


def test_nothing_else_creates_a_converter_or_a_backend() -> None:
    creating = {
        str(path.relative_to(HOUSE))
        for path in HOUSE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("create", "create_with_rules")
    }
    assert creating - _OF_SOURCES == {"pipeline/start.py"}


def test_a_route_is_started_once() -> None:
    route = Route.parse("dynamo → ort-cpu")
    assert start(route).backend is start(route).backend
    assert start(route).converter is start_converter(route)


def test_a_file_needs_no_converter() -> None:
    started = start(Route(converter=FILE, backend="ort-cpu"))
    assert (started.converter, started.backend is not None) == (None, True)


def test_a_transform_needs_no_converter_of_its_own() -> None:
    entry = TransformEntry(name="kept", probe=lambda: None, apply=lambda model: model, version=lambda: "")
    TRANSFORMS[entry.name] = entry
    try:
        assert start_converter(Route.parse("dynamo+kept")) is start_converter(Route.parse("dynamo"))
    finally:
        del TRANSFORMS[entry.name]
