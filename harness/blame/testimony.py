"""What witnesses say and are asked, within a process and between processes: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from harness.compare import Outcome, Stage
from harness.execute import Group, Settings


class Finding(StrEnum):
    """What a witness found.

    Of somebody else who computes the same call: `RIGHT`, PyTorch's answer; `SAME`, the failing backend's
    answer; `OTHER`, a third one; `REFUSES`, an error; `LACKS`, an admitted gap.

    Of the model: `VALID`, `INVALID`; by ONNX's rules for dtypes and shapes also `RIGHT` and `SAME`. Of its
    precision, of an argument that it ignores or a result that it has as a constant: `SAME`, that explains the
    failing backend's answer.

    Of PyTorch: `CONFIRMS`, another way of its own gives its answer; `CONTRADICTS`, another way gives the
    backend's answer, or a different one each time; `INEXACT`, it is itself far from the truth, as is the
    backend.

    Of the specification: `OPEN`, the failure is in what it leaves open; `SETTLED`, in what it decides
    otherwise than the graph assumes; `INVENTED`, in what it leaves open and the graph alone asks.

    Of the graph's nodes, on the backend's own inputs: `WRONG`, one gives what its definition does not, and
    with the definition's result the failure is gone; `RIGHT`, one by one they give PyTorch's answer; `SAME`,
    each is right and the failing backend's answer follows; `FORM`, the same where a shape or dtype is wrong,
    or where a node fails and the shape would be wrong; `OPEN`, the specification leaves the wrong one's
    result open; `VALID`, the one that fails is valid; `INVALID`, it is not.

    Of the witness itself, which decides nothing: `DIED`, it did not survive being asked; `RAISED`, it raised
    an exception.
    """

    RIGHT = "right"
    SAME = "same"
    OTHER = "other"
    REFUSES = "refuses"
    LACKS = "lacks"
    VALID = "valid"
    INVALID = "invalid"
    CONFIRMS = "confirms"
    CONTRADICTS = "contradicts"
    INEXACT = "inexact"
    WRONG = "wrong"
    FORM = "form"
    OPEN = "open"
    SETTLED = "settled"
    INVENTED = "invented"
    DIED = "died"
    RAISED = "raised"


class Role(StrEnum):
    """What kind of witness speaks; the table of `decide` is in these words."""

    ALONE = "alone"
    """The failing backend again, on the one case without the rest of its batch."""
    NODES = "nodes"
    """The definitions of the graph's operators, node by node."""
    PROGRAM = "program"
    """PyTorch on the program that the exporter translates, decomposed."""
    RUNTIME = "runtime"
    """Another backend on the same model."""
    PLAIN = "plain"
    """The failing backend with its graph optimisations off, on the same model."""
    MODEL = "model"
    """The ONNX checker and shape inference."""
    UNOPTIMISED = "unoptimised"
    """The failing backend on the export before the exporter's optimiser."""
    PASS = "pass"
    """An optimiser, the runtime's or the exporter's, without single passes."""
    CONVERTER = "converter"
    """The failing backend on another converter's export."""
    PYTORCH = "pytorch"
    """PyTorch's own kernels, asked in another way."""
    DECOMPOSITION = "decomposition"
    """PyTorch's own definition of the operator by simpler ones."""
    META = "meta"
    """PyTorch's shape and dtype rules, which run no kernel."""
    FLOAT64 = "float64"
    """PyTorch in float64."""
    SPECIFICATION = "specification"
    """The text of the ONNX operators."""
    NARROWED = "narrowed"
    """The graph, held against the precision that the call has."""
    IGNORED = "ignored"
    """PyTorch on the call without one of its arguments."""
    CONSTANT = "constant"
    """The graph, which has the result as a constant."""
    ABSENT = "absent"
    """Nobody: the witness raised."""


#: Between a witness's name and its exception in the evidence of a failure; the summary counts it.
COULD_NOT_BE_ASKED = " could not be asked: "
#: How the evidence of a failure begins that is another's, since both fail in the same way.
INHERITED = "As case "


@dataclass(frozen=True)
class Testimony:
    """What one witness says.

    Attributes:
        words: One sentence for a person.
        independent: Whether it shares no engine with the failing backend. Agreement of one that does says
            nothing.
    """

    role: Role
    finding: Finding
    words: str
    independent: bool = True


@dataclass(frozen=True)
class Charge:
    """A failure, as far as the decision needs it: where the case ended, how, and in what words."""

    stage: Stage
    outcome: Outcome
    converter: str
    backend: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Complaint(Charge):
    """A failure to find out about.

    Attributes:
        index: Unique within its task.
        group: Of the case; all of its cases, since they decide which dimensions are dynamic.
        case: Index of the failing one.
        model: What was loaded, cut down to the case's group, serialised.
        thorough: Whether witnesses that export again may be asked.
        example: Whether a person may want to know what cannot change the blame.
        outputs: Those that the failure is about; none for all.
    """

    index: int
    group: Group
    case: int
    model: bytes
    thorough: bool
    outputs: tuple[int, ...] = ()
    example: bool = True


@dataclass(frozen=True)
class Decision:
    """Whose it is.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        evidence: Why, a sentence per witness.
    """

    blame: str
    evidence: str


@dataclass(frozen=True)
class BlameTask:
    """Failures to hear witnesses about.

    Attributes:
        dead: Complaint index → witnesses that did not survive being asked about it.
        barred: Witnesses that are not to be asked about any.
    """

    handler: ClassVar[str] = "harness.blame.examine:carry_out"

    complaints: tuple[Complaint, ...]
    settings: Settings
    dead: tuple[tuple[int, str], ...] = ()
    barred: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Asking:
    """The witness that is about to be asked about a complaint."""

    index: int
    witness: str


@dataclass(frozen=True)
class Blamed:
    """What was found out about a complaint."""

    index: int
    blame: str
    evidence: str


def witnesses_that_raised(evidence: str) -> list[str]:
    """Names of the witnesses of which the evidence of a failure says that they could not be asked."""
    if evidence.startswith(INHERITED):
        return []
    # Sentence by sentence, each but the first behind the full stop of another.
    return [before.rsplit(". ", 1)[-1] for before in evidence.split(COULD_NOT_BE_ASKED)[:-1]]
