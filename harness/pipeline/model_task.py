"""Whole models as plain values: their names, variants and inputs, and the measurements of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.documents import parse_json, to_data, to_json
from harness.core.invocation import MODEL, Invocation
from harness.core.route import is_onnx_file
from harness.record.layout import ResultsError
from harness.record.run_info import read_run_info

#: Number of sizes of a range that are tried.
_SIZES_OF_RANGE = 4


@dataclass(frozen=True)
class Axis:
    """A size that may differ from one run of an exported model to the next.

    Attributes:
        name: A name for people: ``batch``, ``height``.
        where: Input name → its dimension of that size, or several, as for a square mask.
        others: Sizes to run a dynamic export at, apart from the exported one.
        lines: (input, dimension) → factor and offset, if a size is derived from the axis: ``4 * Dim("h")``.
    """

    name: str
    where: Mapping[str, int | tuple[int, ...]]
    others: tuple[int, ...]
    lines: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Axis:
        """Parse ``x:0=1..8``: dimension 0 of x has any size from 1 to 8; ``x:0=3,7``: 3 and 7.

        Raises:
            ValueError: It is not written so; the message is one line.
        """
        place, _, words = text.partition("=")
        name, _, dim = place.partition(":")
        first, dots, last = words.partition("..")
        numbers = (first, last) if dots else words.split(",")
        if not name or not all(word.isdecimal() for word in (dim, *numbers)):
            raise ValueError(f"{text}: write INPUT:DIM=SIZES, such as x:0=1..8 or x:2=7,12")
        sizes = sorted({int(word) for word in numbers})
        if dots:
            low, high = int(first), int(last)
            if low > high:
                raise ValueError(f"{text}: the range is empty")
            step = max((high - low) / (_SIZES_OF_RANGE - 1), 1)
            sizes = sorted({min(round(low + i * step), high) for i in range(_SIZES_OF_RANGE)})
        return cls(f"{name}:{dim}", {name: int(dim)}, tuple(sizes))

    def size_at(self, name: str, dim: int, size: int) -> int:
        """Return the size of one of its dimensions if the axis has `size`."""
        factor, offset = self.lines.get((name, dim), (1, 0))
        return factor * size + offset

    def dims_of(self, name: str) -> tuple[int, ...]:
        """Return the dimensions of an input that belong to the axis; empty for another input."""
        found = self.where.get(name, ())
        return (found,) if isinstance(found, int) else found


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A variation of the model that its function makes.

    Attributes:
        dtype: Dtype of its floating parameters, buffers and inputs; "" for its own.
        axes: Axes in addition to its own; an axis replaces one of the same name.
        example_sizes: Name of an axis, and the size that the example has there instead of its own.
        noise: Whether what it draws at random is an input (`harness.pipeline.noise`).
    """

    dtype: str = ""
    axes: tuple[Axis, ...] = ()
    example_sizes: tuple[tuple[str, int], ...] = ()
    noise: bool = False


#: The model that its function makes.
AS_MADE = Variant()


@dataclass(frozen=True)
class GivenFiles:
    """A user's inputs of a model.

    Attributes:
        path: A file, or a folder of files, each of them one run; "" if the inputs are drawn.
        function: ``FILE.py:FUNCTION``, which reads a file; "" for files that hold arrays.
    """

    path: str = ""
    function: str = ""


#: No inputs of a user's.
NO_FILES = GivenFiles()


@dataclass(frozen=True)
class ModelSource:
    """The source of a model.

    Attributes:
        word: The model as its user named it: a registered name, ``FILE.py:FUNCTION``, ``FILE.pt2`` or ``FILE.onnx``.
        variant: The variation of the model that its function makes.
        given: The user's inputs.
    """

    word: str
    variant: Variant = AS_MADE
    given: GivenFiles = NO_FILES

    @property
    def overload(self) -> str:
        """Return the name for the record's column of operators."""
        return MODEL + model_name(self.word)

    @property
    def is_graph(self) -> bool:
        """Whether it is an ONNX file: it has no program, and each runtime answers for itself what is right."""
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
        change: Description of the difference from the exported example; "" for the example itself.
        resized: Whether their sizes differ.
        fixed: Sizes that a file declares open and that its constants fix.
    """

    invocation: Invocation
    change: str = ""
    resized: bool = False
    fixed: tuple[FixedSize, ...] = ()


@dataclass(frozen=True)
class ErrorGrowth:
    """The growth of errors on the way to one result.

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
    """The error of one output of a model.

    Attributes:
        output: Its index.
        form: Dtype and shape, for people.
        error: The largest absolute error, in the values' unit; infinite if NaN or infinities differ.
        largest: The largest finite element that PyTorch gives.
        allowed: The allowed error of that element.
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
class UnjudgedNode:
    """A file's node that was not compared with its definition.

    Attributes:
        operator: Its operator, with the domain in front unless that is ONNX's.
        name: Its name in the file; its place if it has none.
        why: ``too-large``, ``not-reached``, or a `harness.pipeline.nodes.definition.WhyUndefined`.
        detail: What the evaluator said; "" if it was not asked.
    """

    operator: str
    name: str
    why: str
    detail: str = ""


@dataclass(frozen=True)
class NodesJudged:
    """Numbers of a file's nodes that were compared with their definitions.

    Attributes:
        nodes: Number of all nodes.
        judged: Number of nodes that were compared.
        wrong: Number of nodes that depart from their definition.
        unjudged: The other nodes, in order; of a file with too many nodes none is named.
    """

    nodes: int
    judged: int
    wrong: int
    unjudged: tuple[UnjudgedNode, ...] = ()


@dataclass(frozen=True)
class GraphChange:
    """A fault of a node of a transformed graph.

    Attributes:
        change: ``axis``, ``zero-point``, ``packing``, ``transposed``, ``weight`` or ``scale`` of numbers in steps;
            ``overflows`` or ``vanishes``, of a narrow dtype; ``values`` or ``shape``.
        operator: The operator.
        value: The name of its first result.
        steps: How many steps a weight is off at most; 0 for another change.
        largest: The largest magnitude in float32 that overflows; 0 for another change.
    """

    change: str
    operator: str
    value: str
    steps: float = 0.0
    largest: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RunAccuracy:
    """The accuracy of one run of a transformed model, or of a model with a user's inputs.

    Attributes:
        error: The largest error of a floating output, relative to its largest element; infinite if NaN or infinities
            differ.
        sqnr: The ratio of the outputs' energy to that of their errors, in decibels; None without an error.
        rows: Number of rows of the first output of two or more dimensions; 0 if no output has rows.
        top1: Number of rows whose largest element is another one.
        top5: Number of rows whose largest element is not among the five largest.
        margins: How far the right largest element of each row in `top1` is above the next one, relative to the largest
            of the output.
        range_loss: The first node that leaves the range of its dtype if all runs as the graph asks; None if none does.
    """

    error: float
    sqnr: float | None = None
    rows: int = 0
    top1: int = 0
    top5: int = 0
    margins: tuple[float, ...] = ()
    range_loss: GraphChange | None = None


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """Facts about a run of a model that a call does not have; the column ``model_run`` has them as JSON.

    Attributes:
        index: The number of the run; the example is 0.
        change: Description of the difference of the inputs from the exported example.
        growth: The growth of errors; None if it is not known.
        output_errors: The error of each output of a wrong result.
        traced: The path that tracing fixed, if that is the cause of the failure.
        fixed: See `ModelInputs`.
        nodes: The comparison of a file's nodes, in the run in which they were judged.
        accuracy: See `RunAccuracy`; None if the model is not transformed and its inputs are not a user's.
    """

    index: int = 0
    change: str = ""
    growth: ErrorGrowth | None = None
    output_errors: tuple[OutputError, ...] = ()
    traced: Traced | None = None
    fixed: tuple[FixedSize, ...] = ()
    nodes: NodesJudged | None = None
    accuracy: RunAccuracy | None = None

    @property
    def text(self) -> str:
        """The text for the record's column; "" without facts."""
        data = {name: value for name, value in to_data(self).items() if value}
        return to_json(data) if data else ""

    @classmethod
    def from_text(cls, text: str) -> ModelRun:
        """Parse a column's text."""
        return parse_json(cls, text) if text else cls()


@dataclass(frozen=True)
class NoModel:
    """The model could not be loaded; the message is for a person."""

    message: str


def split_word(word: str) -> tuple[Path | None, str]:
    """File and function of ``FILE.py:FUNCTION``, ``FILE.pt2`` or ``FILE.onnx``; no file for a registered name."""
    head, colon, function = word.rpartition(":")
    path = head if colon and head.endswith(".py") else word
    if path.endswith((".py", ".pt2", ".onnx")):
        return Path(path), function if path == head else ""
    return None, ""


def absolute_word(word: str) -> str:
    """Return the name of a model with the absolute path of its file, if it names one that exists."""
    file, colon, function = word.rpartition(":")
    if colon and Path(file).is_file():
        return f"{Path(file).resolve()}:{function}"
    return str(Path(word).resolve()) if Path(word).is_file() else word


def model_name(word: str) -> str:
    """Return the name of a model in the record: ``my_model.make`` for ``my_model.py:make``."""
    file, function = split_word(word)
    if file is None:
        return word
    return f"{file.stem}.{function}" if function else file.stem


def refuse_model(results_dir: Path, case_id: str, overload: str, what: str) -> None:
    """Raise `ResultsError` for a case of a model, which cannot be `what` (``shrunk``), and suggest an alternative."""
    word = model_word(results_dir, (overload,))
    if word is not None:
        raise ResultsError(
            f"case {case_id} is of a whole model and cannot be {what}: "
            f"`conformance check {word}` finds the operator where it goes wrong"
        )


def model_word(results_dir: Path, overloads: Sequence[str]) -> str | None:
    """Return the user's name for the model of a failure; None if the failure is an operator's."""
    if not overloads or not overloads[0].startswith(MODEL):
        return None
    name = overloads[0].removeprefix(MODEL)
    words = read_run_info(results_dir).options.get("model")
    named = [str(word) for word in words if model_name(str(word)) == name] if isinstance(words, list) else []
    return named[0] if named else name
