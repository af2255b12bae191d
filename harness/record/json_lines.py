"""Files of a run in addition to its rows, one JSON document per line.

RESULTS/minimal.jsonl   `Minimal`: the smallest invocations that fail as the run's failures do
RESULTS/graphs.jsonl    `Graph`: the model that a converter emits for an operator, as ONNX text
RESULTS/scripts.jsonl   `Script`: a failure as a stand-alone script
RESULTS/flaky.jsonl     the cases that ended differently when they ran again

All but the last are appended to, so nothing is lost if the work is interrupted. If two lines describe the same thing,
the later one counts; a line that a crash cut short is ignored. All functions raise `ResultsError` if a file cannot be
read or written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeVar

from harness.compare.verdict import CaseKey, Outcome, Stage, Verdict
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
        case_id: The recorded case that was shrunk; it fails with this converter on this backend.
        stage: The stage at which both the recorded and the minimal case end.
        outcome: How both end.
        signature: The signature of both failures.
        blame: The blamed component.
        message: The minimal case's failure message.
        minimal_id: Case id of the minimal invocation.
        invocation: The minimal invocation as JSON.
        evidence: Only in records of an earlier version: the evidence for the minimal case's blame.
        component: The minimal case's diagnosis, like `place`, `fault`, `detail` and `diagnosis`: see `Verdict`.
        exported_invocation: The exported invocation if its sizes differ; else "".
        matters: One sentence per argument that the failure depends on: "fails with ceil_mode=True; not with False".
        elements: Tensor elements of the minimal invocation.
        evaluations: Number of invocations that were tried.
        finished: Whether shrinking ended because nothing smaller fails rather than because its budget was used up.
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

    def as_verdict(self, row: Verdict) -> Verdict:
        """Return the row of the recorded case with the shrunk case and its ending in place of its own."""
        shared = {field.name for field in fields(Verdict)} & set(vars(self)) - {"case_id", "overload", "elements"}
        return replace(row, **{name: getattr(self, name) for name in shared})


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The model that a converter emits for an operator.

    Attributes:
        case_id: The recorded case that was exported.
        opset: The ONNX opset of the model.
        node_types: The distinct ONNX operators of the graph, sorted.
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
    """A failure on one route, as a Python script.

    Attributes:
        case_id: The recorded case; for a shrunk failure, the case that it was shrunk from.
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
    """Append a document to the file of its kind."""
    path = results_dir / _FILES[type(document)]
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(to_json(document) + "\n")
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def read_minimal(results_dir: Path) -> list[Minimal]:
    """Return all shrunk failures of a run, in the order in which they were found."""
    # Early versions recorded terminal sequences.
    documents = [replace(m, message=strip_escapes(m.message)) for m in _read(results_dir, Minimal)]
    return list({(m.case_id, m.converter, m.backend): m for m in documents}.values())


def read_graphs(results_dir: Path) -> dict[tuple[str, str], Graph]:
    """Return the graphs of a run by overload and converter."""
    return {(graph.overload, graph.converter): graph for graph in _read(results_dir, Graph)}


def read_scripts(results_dir: Path) -> dict[tuple[str, str, str], Script]:
    """Return the scripts of a run by case id, converter and backend."""
    return {(s.case_id, s.converter, s.backend): s for s in _read(results_dir, Script)}


def _read(results_dir: Path, kind: type[_Kind]) -> list[_Kind]:
    path = results_dir / _FILES[kind]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    documents = []
    for line in lines:
        try:
            documents.append(parse_json(kind, line))
        except ValueError:
            continue
    return documents


def write_flaky(results_dir: Path, flaky: Collection[CaseKey]) -> None:
    """Write the flaky cases of a run; no file is written if there are none."""
    if flaky:
        with layout.replacing(results_dir / FLAKY_FILE) as temporary:
            temporary.write_text("".join(f"{to_json(case)}\n" for case in sorted(flaky)), encoding="utf-8")


def read_flaky(results_dir: Path) -> frozenset[CaseKey]:
    """Return the flaky cases of a run."""
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
