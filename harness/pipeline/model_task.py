"""Whole models as plain values: their names, variants and inputs, and what was measured of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.documents import parse_json, to_data, to_json
from harness.core.invocation import MODEL, Invocation
from harness.core.route import is_onnx_file
from harness.record.layout import ResultsError
from harness.record.run_info import read_run_info


@dataclass(frozen=True)
class Axis:
    """A size that may differ from one run of an exported model to the next.

    Attributes:
        name: For people: ``batch``, ``height``.
        where: Input name → the dimension that has it, or those, as of a square mask.
        others: Sizes to run a dynamic export at, beside the exported one.
        lines: (input, dimension) → factor and offset, where a size is derived from the axis: ``4 * Dim("h")``.
    """

    name: str
    where: Mapping[str, int | tuple[int, ...]]
    others: tuple[int, ...]
    lines: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def size_at(self, name: str, dim: int, size: int) -> int:
        """The size of one of its dimensions where the axis has `size`."""
        factor, offset = self.lines.get((name, dim), (1, 0))
        return factor * size + offset

    def dims_of(self, name: str) -> tuple[int, ...]:
        """The dimensions of an input that have it; none for another input."""
        found = self.where.get(name, ())
        return (found,) if isinstance(found, int) else found


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What is asked for of a model beyond what its function makes.

    Attributes:
        dtype: Of its floating parameters, buffers and inputs; "" for its own.
        axes: In addition to its own; one of the same name takes the place of its own.
        example_sizes: Name of an axis, and the size that the example has there in place of its own.
    """

    dtype: str = ""
    axes: tuple[Axis, ...] = ()
    example_sizes: tuple[tuple[str, int], ...] = ()


#: A model as it is made.
AS_MADE = Variant()


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        word: The model as its user named it: a registered name, ``FILE.py:FUNCTION``, ``FILE.pt2`` or ``FILE.onnx``.
        variant: What is asked for beyond what its function makes.
        inputs: The file with the inputs of an ``.onnx`` file; "" draws them.
    """

    word: str
    variant: Variant = AS_MADE
    inputs: str = ""

    @property
    def overload(self) -> str:
        """What the record has in the column of operators."""
        return MODEL + model_name(self.word)

    @property
    def is_file(self) -> bool:
        """Whether it is an ONNX file."""
        return is_onnx_file(self.word)


@dataclass(frozen=True)
class FixedSize:
    """A size that an ONNX file declares open and that only one number fits.

    Attributes:
        name: The name of the dimension, or ``input:dimension``.
        size: The only size that fits.
        by: Constants that have this size, of those that a node of the graph reads.
    """

    name: str
    size: int
    by: tuple[str, ...]


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of one run of a model.

    Attributes:
        invocation: The inputs, as arguments of ``model.NAME``.
        change: In what they differ from the exported example, for people; "" for the example itself.
        resized: Whether their sizes differ.
        fixed: Sizes that a file declares open and that its constants fix.
    """

    invocation: Invocation
    change: str = ""
    resized: bool = False
    fixed: tuple[FixedSize, ...] = ()


@dataclass(frozen=True)
class ErrorGrowth:
    """How errors grew on the way to one result.

    Attributes:
        error: The backend's largest error against float64, relative to the largest element of its output.
        own: PyTorch's largest error.
        explained: The largest error that rounding every operator's result once explains.
    """

    error: float
    own: float
    explained: float


@dataclass(frozen=True)
class OutputError:
    """By how much one output of a model is off.

    Attributes:
        output: Its index.
        form: Dtype and shape, for people.
        error: The largest absolute error, in the values' unit; infinite where NaN or infinities differ.
        largest: The largest finite element that PyTorch gives.
        allowed: The error that is allowed at that.
    """

    output: int
    form: str
    error: float
    largest: float
    allowed: float


@dataclass(frozen=True)
class Traced:
    """The finding that a failure is of tracing: the export is right for the inputs that it was made with.

    Attributes:
        what: ``control flow`` or ``sizes``.
        evidence: The finding in a sentence.
        fixed: Open sizes that the export has made numbers: input and dimension.
    """

    what: str
    evidence: str
    fixed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class NodesJudged:
    """How many nodes of a file were compared with their definitions.

    Attributes:
        nodes: All nodes.
        judged: Those that were compared.
        wrong: Those that give something else.
    """

    nodes: int
    judged: int
    wrong: int


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """What is known of a run of a model beyond what is known of a call; the column ``model_run`` has it as JSON.

    Attributes:
        index: The number of the run; the example is 0.
        change: In what the inputs differ from the exported example, for people.
        growth: How errors grew; None where that is not known.
        output_errors: By how much each output of a wrong result is off.
        traced: Where tracing is to blame.
        fixed: See `ModelInputs`.
        nodes: Of a file, in the run in which its nodes were judged.
    """

    index: int = 0
    change: str = ""
    growth: ErrorGrowth | None = None
    output_errors: tuple[OutputError, ...] = ()
    traced: Traced | None = None
    fixed: tuple[FixedSize, ...] = ()
    nodes: NodesJudged | None = None

    @property
    def text(self) -> str:
        """The column; "" where there is nothing to say."""
        data = {name: value for name, value in to_data(self).items() if value}
        return to_json(data) if data else ""

    @classmethod
    def from_text(cls, text: str) -> ModelRun:
        """Return what a column says."""
        return parse_json(cls, text) if text else cls()


@dataclass(frozen=True)
class NoModel:
    """That the model cannot be had, in words for a person."""

    message: str


def split_word(word: str) -> tuple[Path | None, str]:
    """File and function of ``FILE.py:FUNCTION``, ``FILE.pt2`` or ``FILE.onnx``; no file for a registered name."""
    head, colon, function = word.rpartition(":")
    path = head if colon and head.endswith(".py") else word
    if path.endswith((".py", ".pt2", ".onnx")):
        return Path(path), function if path == head else ""
    return None, ""


def model_name(word: str) -> str:
    """What the model that a user's word names is called in the record: ``my_model.make`` of ``my_model.py:make``."""
    file, function = split_word(word)
    if file is None:
        return word
    return f"{file.stem}.{function}" if function else file.stem


def refuse_model(results_dir: Path, case_id: str, overload: str, what: str) -> None:
    """Raises `ResultsError` for a case of a model, which cannot be `what` (``shrunk``), and says what can."""
    word = model_word(results_dir, (overload,))
    if word is not None:
        raise ResultsError(
            f"case {case_id} is of a whole model and cannot be {what}: "
            f"`conformance check {word}` finds the operator where it goes wrong"
        )


def model_word(results_dir: Path, overloads: Sequence[str]) -> str | None:
    """How a run's user named the model that a failure is of; None where it is of an operator."""
    if not overloads or not overloads[0].startswith(MODEL):
        return None
    name = overloads[0].removeprefix(MODEL)
    words = read_run_info(results_dir).options.get("model")
    named = [str(word) for word in words if model_name(str(word)) == name] if isinstance(words, list) else []
    return named[0] if named else name
