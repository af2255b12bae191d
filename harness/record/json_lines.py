"""What a run holds beside its rows, one JSON document on a line.

RESULTS/minimal.jsonl   `Minimal`: the smallest invocations that fail as the run's failures do
RESULTS/graphs.jsonl    `Graph`: what a converter makes of an operator, ONNX as text
RESULTS/scripts.jsonl   `Script`: a failure as a script of its own
RESULTS/flaky.jsonl     the cases that ended in two ways when they were run again

All but the last are appended to, so that whatever ends the work keeps what was found. Of two lines for the
same thing the last one counts, and a line that a crash cut short is left out. What cannot be written or read
raises `ResultsError`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from harness.compare.verdict import CaseKey, Outcome, Stage
from harness.core.documents import parse_json, to_json
from harness.core.text import strip_escapes
from harness.record import layout
from harness.record.layout import ResultsError, reason

MINIMAL_FILE = "minimal.jsonl"
FLAKY_FILE = "flaky.jsonl"


@dataclass(frozen=True, kw_only=True)
class Minimal:
    """A shrunk failure.

    Attributes:
        case_id: Of the recorded case that was shrunk; it fails with this converter on this backend.
        stage: Where the recorded and the minimal case end, as `Verdict` has it.
        outcome: How they end.
        signature: What their failure is known by.
        blame: Whose defect it is.
        evidence: Of an earlier version: what the witnesses said of the minimal case.
        component: Of the minimal case's diagnosis, as are place, fault, detail and diagnosis: as `Verdict` has
            them.
        message: The minimal case's failure in its own words.
        minimal_id: Case id of the minimal invocation.
        invocation: The minimal invocation, JSON.
        exported_invocation: What was exported, where that had other sizes; else "".
        matters: One sentence per argument that the failure depends on: "fails only with ceil_mode=True".
        elements: Tensor elements of the minimal invocation.
        evaluations: Invocations that were tried.
        finished: Whether shrinking ended because nothing smaller fails, and not for want of budget.
    """

    case_id: str
    overload: str
    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    signature: str
    blame: str
    message: str
    minimal_id: str
    invocation: str
    evidence: str = ""
    component: str = ""
    place: str = ""
    fault: str = ""
    detail: str = ""
    diagnosis: str = ""
    exported_invocation: str = ""
    matters: tuple[str, ...] = ()
    elements: int = 0
    evaluations: int = 0
    finished: bool = True


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What one converter makes of one operator.

    Attributes:
        case_id: The recorded case that was exported.
        opset: The ONNX opset of the model.
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
    """A failure, with one converter and backend, as a Python script.

    Attributes:
        case_id: The recorded case; that of a shrunk one is the case that it was shrunk from.
    """

    case_id: str
    converter: str
    backend: str
    text: str


_Kind = TypeVar("_Kind", Minimal, Graph, Script)
_FILES: dict[type, str] = {
    Minimal: MINIMAL_FILE,
    Graph: "graphs.jsonl",
    Script: "scripts.jsonl",
}


def append_line(results_dir: Path, document: Minimal | Graph | Script) -> None:
    """Add one to the file of its kind."""
    path = results_dir / _FILES[type(document)]
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(to_json(document) + "\n")
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def read_minimal(results_dir: Path) -> list[Minimal]:
    """All shrunk failures of a run, in the order in which they were found."""
    # Messages of earlier versions hold what a terminal obeys.
    found = [replace(m, message=strip_escapes(m.message)) for m in _read(results_dir, Minimal)]
    return list({(m.case_id, m.converter, m.backend): m for m in found}.values())


def read_graphs(results_dir: Path) -> dict[tuple[str, str], Graph]:
    """(overload, converter) → graph."""
    return {(graph.overload, graph.converter): graph for graph in _read(results_dir, Graph)}


def read_scripts(results_dir: Path) -> dict[tuple[str, str, str], Script]:
    """(case id, converter, backend) → script."""
    return {(s.case_id, s.converter, s.backend): s for s in _read(results_dir, Script)}


def _read(results_dir: Path, kind: type[_Kind]) -> list[_Kind]:
    path = results_dir / _FILES[kind]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    found = []
    for line in lines:
        try:
            found.append(parse_json(kind, line))
        except ValueError:
            continue
    return found


def write_flaky(results_dir: Path, flaky: Collection[CaseKey]) -> None:
    """Note the flaky cases of a run; without any there is no file."""
    if flaky:
        with layout.replacing(results_dir / FLAKY_FILE) as temporary:
            temporary.write_text("".join(f"{to_json(case)}\n" for case in sorted(flaky)), encoding="utf-8")


def read_flaky(results_dir: Path) -> frozenset[CaseKey]:
    """The flaky cases of a run."""
    path = results_dir / FLAKY_FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return frozenset(parse_json(tuple[str, str, str, str], line) for line in lines)
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"{path} is damaged ({reason(error)}); restore it, or delete it to take no case for flaky"
        ) from None
