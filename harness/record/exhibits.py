"""What only running an operator can give, written beside a run so that pages can show it without running any.

RESULTS/graphs.jsonl    `Graph`: what a converter makes of an operator, ONNX as text
RESULTS/scripts.jsonl   `Script`: a failure as a script of its own

`conformance graphs RUN` writes both; one JSON object per line, appended as it goes on.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from harness.record.errors import ResultsError, reason

GRAPHS_FILE = "graphs.jsonl"
SCRIPTS_FILE = "scripts.jsonl"


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What one converter makes of one operator.

    Attributes:
        overload: The operator.
        converter: Name; with its version.
        case_id: The recorded case that was exported.
        opset: That was emitted.
        node_types: ONNX operators of the graph, each once, sorted.
        text: The model in ONNX's text format.
    """

    overload: str
    converter: str
    converter_version: str = ""
    case_id: str
    opset: int | None = None
    node_types: tuple[str, ...] = ()
    text: str


@dataclass(frozen=True, kw_only=True)
class Script:
    """A failure as a script.

    Attributes:
        case_id: The recorded case; that of a shrunk one is the case that it was shrunk from.
        converter: Where it fails.
        backend: Likewise.
        text: Python.
    """

    case_id: str
    converter: str
    backend: str
    text: str


_Piece = TypeVar("_Piece", Graph, Script)


def add_graph(results_dir: Path, graph: Graph) -> None:
    """Append one.

    Raises:
        ResultsError: the file cannot be written.
    """
    _append(results_dir / GRAPHS_FILE, graph)


def add_script(results_dir: Path, script: Script) -> None:
    """Append one.

    Raises:
        ResultsError: the file cannot be written.
    """
    _append(results_dir / SCRIPTS_FILE, script)


def read_graphs(results_dir: Path) -> dict[tuple[str, str], Graph]:
    """(overload, converter) → graph; of several the last. A line that a crash cut short is left out.

    Raises:
        ResultsError: the file cannot be read.
    """
    found: dict[tuple[str, str], Graph] = {}
    for graph in _read(results_dir / GRAPHS_FILE, Graph):
        found[graph.overload, graph.converter] = graph
    return found


def read_scripts(results_dir: Path) -> dict[tuple[str, str, str], Script]:
    """(case id, converter, backend) → script; as `read_graphs`.

    Raises:
        ResultsError: the file cannot be read.
    """
    return {(s.case_id, s.converter, s.backend): s for s in _read(results_dir / SCRIPTS_FILE, Script)}


def _append(path: Path, piece: Graph | Script) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(piece)) + "\n")
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def _read(path: Path, kind: type[_Piece]) -> list[_Piece]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    names = {f.name: f.type for f in dataclasses.fields(kind)}
    found = []
    for line in lines:
        try:
            data: dict[str, Any] = {k: v for k, v in json.loads(line).items() if k in names}
            texts = [name for name, kind_ in names.items() if kind_ == "str" and name in data]
            if not all(isinstance(data[name], str) for name in texts):
                continue
            if "node_types" in data:
                data["node_types"] = tuple(map(str, data["node_types"]))
            found.append(kind(**data))
        except (ValueError, TypeError, AttributeError):
            continue
    return found
