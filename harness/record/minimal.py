"""The smallest invocations that still fail as a run's failures do: ``RESULTS/minimal.jsonl``.

One JSON object per line, appended as shrinking goes on, so that whatever ends it keeps what was found.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from harness.compare import Outcome, Stage
from harness.record.errors import ResultsError, reason

MINIMAL_FILE = "minimal.jsonl"


@dataclass(frozen=True, kw_only=True)
class Minimal:
    """A shrunk failure.

    Attributes:
        case_id: Of the recorded case that was shrunk.
        overload: Its operator.
        converter: Where it failed.
        backend: Likewise.
        stage: How the recorded and the minimal case fail, as `Verdict` has it; likewise the next three.
        outcome: Likewise.
        signature: Likewise.
        blame: Likewise.
        evidence: What the witnesses said of the minimal case.
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
    evidence: str
    message: str
    minimal_id: str
    invocation: str
    exported_invocation: str = ""
    matters: tuple[str, ...] = ()
    elements: int = 0
    evaluations: int = 0
    finished: bool = True


def add_minimal(results_dir: Path, minimal: Minimal) -> None:
    """Append one.

    Raises:
        ResultsError: the file cannot be written.
    """
    path = results_dir / MINIMAL_FILE
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(minimal)) + "\n")
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None


def read_minimal(results_dir: Path) -> list[Minimal]:
    """All of a run, in the order in which they were found; of several for one case, the last.

    A line that a crash cut short is left out.

    Raises:
        ResultsError: the file cannot be read.
    """
    path = results_dir / MINIMAL_FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    found: dict[tuple[str, str, str], Minimal] = {}
    for line in lines:
        try:
            data = json.loads(line)
            minimal = Minimal(
                **{
                    **data,
                    "stage": Stage(data["stage"]),
                    "outcome": Outcome(data["outcome"]),
                    "matters": tuple(data["matters"]),
                }
            )
        except (ValueError, KeyError, TypeError):
            continue
        found[minimal.case_id, minimal.converter, minimal.backend] = minimal
    return list(found.values())
