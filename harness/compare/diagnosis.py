"""A diagnosis: whose defect a failure is, where it is and what is wrong there.

A `Testimony` holds the answer of a witness: its role, its finding, a statement and named facts. A `Diagnosis` holds the
component to blame, the rule that decided, the place, the fault and all testimonies. Faults are a closed set of stable
ids. Everything here is data; `harness.present.evidence` makes the sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any

from harness.core.documents import as_data, of_data

#: What a comparison finds wrong with elements.
OF_VALUES = frozenset({"values", "nan-positions", "infinities", "sign-of-zero"})
#: What is wrong with the shape of a result.
OF_SHAPE = frozenset({"shape", "unfit-shapes", "too-few-dimensions", "too-many-dimensions", "emptied"})
#: Of a backend's kernel, by its operator's definition.
OF_KERNEL = frozenset(
    {
        *("wrong-without-elements", "wrong-dtype", "wrong-shape", "wrong-truth-values", "wrong-integers"),
        *("wrong-complex-numbers", "makes-nan", "kernel-loses-nan", "makes-infinities", "loses-infinities"),
        *("loses-sign-of-zero", "flushes-small-numbers", "inexact", "inexact-float64", "float64-in-float32"),
        *("wrong-numbers", "number-of-results", "inaccurate"),
    }
)
#: Of a converter.
OF_CONVERTER = frozenset(
    {
        *("no-conversion", "computes-in-another-dtype", "larger-dtype", "undefined-dtype", "loses-nan"),
        *(
            "as-exact-as-float32",
            "leaves-range",
            "ignores-argument",
            "rests-on-open-question",
            "constant-result",
        ),
        *("scalars-as-numbers", "no-dimensions", "integer-division-by-zero", "wrong-list-length"),
        *("unfit-inputs", "asks-unfit", "leaves-16-bits-in-float32", "unknown-alias", "no-bool-as-number"),
        *("no-such-overload", "specialised"),
    }
)
FAULTS = frozenset(
    {
        *(*OF_VALUES, *OF_SHAPE, *OF_KERNEL, *OF_CONVERTER),
        # Of any: the specification leaves it open; a runtime or exporter says it in words of its own, which
        # `Detail.symptom` has; an ending without words.
        *("left-open", "fails", "no-kernel", "dtype", "count", "crash", "timeout"),
    }
)

#: What `harness.compare.output_comparison` calls a problem → its fault. Small numbers that become zero are wrong
#: like others, and large ones that become infinite like infinities.
OF_PROBLEM = {
    "number of outputs": "count",
    "dtype": "dtype",
    "shape": "shape",
    "values": "values",
    "NaN positions": "nan-positions",
    "infinities": "infinities",
    "overflow to infinity": "infinities",
    "subnormals flushed to zero": "values",
    "sign of zero": "sign-of-zero",
}


class Finding(StrEnum):
    """What a witness found.

    Of something else that computes the same call: `RIGHT`, PyTorch's answer; `SAME`, the failing backend's
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
    each is right and the failing backend's answer follows; `SHAPE_OR_DTYPE`, the same where a shape or dtype
    is wrong, or where a node fails and the shape would be wrong; `OPEN`, the specification leaves the wrong
    one's result open; `VALID`, the one that fails is valid; `INVALID`, it is not.

    Of the witness itself, which decides nothing: `DIED`, it crashed while being asked; `RAISED`, it raised an
    exception.
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
    SHAPE_OR_DTYPE = "shape-or-dtype"
    OPEN = "open"
    SETTLED = "settled"
    INVENTED = "invented"
    DIED = "died"
    RAISED = "raised"


#: Facts of a diagnosis of a program: the overload of a call that fails by itself as the program does, or how many calls
#: the program has where none does, and how many of them fail otherwise or cannot be run by themselves.
CALL_ALONE, COMPOSED, OTHERWISE = "call_alone", "composed", "otherwise"
#: Facts of a diagnosis of a model's wrong result: the first value that departs from PyTorch's, as
#: `harness.blame.first_divergence.Divergence.to_data` has it, or why it is unknown.
DIVERGENCE, NO_DIVERGENCE = "divergence", "no_divergence"


class Role(StrEnum):
    """What kind of witness speaks; the decision table of `harness.blame.decide` is in these words."""

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
    EMISSION = "emission"
    """The functions of the converter that ran, and the nodes that each emitted."""
    PASS = "pass"
    """An optimiser, the runtime's or the exporter's, without single passes."""
    CONVERTER = "converter"
    """The failing backend on another converter's export."""
    PYTORCH = "pytorch"
    """PyTorch's own kernels, asked in another way."""
    OPERATOR = "operator"
    """The call, which is that of an operator of ONNX's own."""
    LOWERED = "lowered"
    """PyTorch's kernels on the program that a converter hands over to its runtime; of artefacts that are no ONNX
    models, all of which have this witness."""
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
    """A witness that raised an exception."""


@dataclass(frozen=True)
class Testimony:
    """What one witness found.

    Attributes:
        role: What kind of witness it is.
        finding: What it found; with the role, all that the decision table looks at.
        statement: Which sentence it is for people: a key of `harness.present.evidence.SENTENCES`.
        facts: What the sentence and the place of the defect need, by name: plain JSON values.
        independent: Whether the witness shares no engine with the failing backend. Agreement of one that does
            says nothing.
    """

    role: Role
    finding: Finding
    statement: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    independent: bool = True

    __test__ = False  # Not for pytest.


@dataclass(frozen=True)
class Detail:
    """What tells root causes at one place with one fault apart, or unites them; typed, few distinct values.

    Attributes:
        symptom: The argument that is ignored, the node that has no such dtype, or the normalised words of an
            exporter or runtime where nothing else explains a failure.
        choice: Which of the place's algorithms the call asks for: ``rounding_mode=floor``.
        element: The kind of the wrong element, one of `harness.compare.elements`.
    """

    symptom: str = ""
    choice: str = ""
    element: str = ""

    @property
    def text(self) -> str:
        """The detail as JSON without what is empty, as the record has it; "" for nothing."""
        given = {name: value for name, value in as_data(self).items() if value}
        return json.dumps(given) if given else ""

    @classmethod
    def from_text(cls, text: str) -> Detail:
        """What `text` gave."""
        return _detail(text)


@lru_cache(maxsize=10_000)
def _detail(text: str) -> Detail:
    return of_data(Detail, json.loads(text)) if text else Detail()


@dataclass(frozen=True)
class Difference:
    """The first thing that is wrong with outputs, as scripts and pages show it.

    Attributes:
        output: Index of the output; None where the number of outputs is wrong.
        element: Its index in the output; () for a scalar, a dtype or a shape.
        expected: PyTorch's number, dtype, shape or count, as text; "" where no one value is right.
        got: The backend's.
    """

    output: int | None = None
    element: tuple[int, ...] = ()
    expected: str = ""
    got: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Whose defect a failure is, where it is and what is wrong there.

    The table decides the blame by what witnesses found; the place and the fault are added after that.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        rule: The row of the decision table that decided, a stable id: ``optimiser-breaks-graph``.
        facts: What the sentence of the rule needs, by name.
        testimony: What all witnesses found, the most telling first.
        inherited_from: The case that was examined in place of this one, which fails in the same way; "" where
            this one was examined.
        call: Of a program or a model, the call that fails by itself, as JSON; "" where none does. Not recorded.
        component: Whose code is wrong: ``torchlib``, ``TorchScript``, ``dynamo``, ``ort-cpu``, ``PyTorch``,
            ``ONNX``, or ``rule`` for a user's conversion function.
        place: What of theirs: a function, a kernel, a pass, an operator.
        file: Of a function, relative to the folder of its package; "" where there is none.
        fault: What is wrong there, one of `harness.compare.diagnosis.FAULTS`.
        detail: What else tells the root cause.
        difference: What is wrong with the outputs; None where none were compared.
    """

    blame: str
    rule: str
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)
    testimony: tuple[Testimony, ...] = ()
    inherited_from: str = ""
    call: str = ""
    component: str = ""
    place: str = ""
    file: str = ""
    fault: str = ""
    detail: Detail = Detail()
    difference: Difference | None = None

    @property
    def json(self) -> str:
        """What the columns of the record do not say: the difference, the rule's facts, testimonies, inheritance."""
        data = as_data(self)
        kept = {name: data[name] for name in ("rule", "file", "difference", "facts", "testimony", "inherited_from")}
        return json.dumps({name: value for name, value in kept.items() if value}, default=str)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Diagnosis | None:
        """The diagnosis in a row of the record; None in one of an earlier version, or of a pass.

        Args:
            row: With the columns ``blame``, ``component``, ``place``, ``fault``, ``detail`` and
                ``diagnosis``.
        """
        if not row["diagnosis"]:
            return None
        told = json.loads(row["diagnosis"])
        columns = {name: row[name] for name in ("blame", "component", "place", "fault")}
        detail = json.loads(row["detail"]) if row["detail"] else {}
        return of_data(cls, {"rule": "", **told, **columns, "detail": detail})


def recorded_difference(diagnosis: str) -> Difference:
    """The difference in a column ``diagnosis``; an empty one where no outputs were compared."""
    found = json.loads(diagnosis).get("difference") if diagnosis else None
    return of_data(Difference, found) if found else Difference()
