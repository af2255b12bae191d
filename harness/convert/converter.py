"""The protocol of converters: a callable with example inputs in, an ONNX model or another artefact out.

A converter is one file in this package that calls :func:`register` at import. It knows nothing of
invocations or batches: the program that it gets may hold one operator call or two hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import onnx
import torch

from harness.convert.change import Change
from harness.convert.rules.rule import RuleBook
from harness.core.plugins import Registry, Unavailable
from harness.core.route import EXPORTED, FILE, Route
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.core.torch_operators import pytree
from harness.run.artefact import ONNX


class UnsupportedOperator(Exception):
    """The converter has no conversion for an operator (as opposed to failing in one).

    Args:
        message: The converter's.
        missing: Output name of the request → the operator without a conversion that it depends on, if
            the converter knows it of every output. A program that holds many calls then tells at once
            which of them would fail alone.
    """

    def __init__(self, message: str, missing: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.missing = dict(missing or {})


@dataclass(frozen=True, kw_only=True)
class ModelCall:
    """A model with example arguments, as its user passes them to an exporter.

    Attributes:
        program: The user's module, or the program that a ``.pt2`` file holds.
        arguments: Positional arguments of a module; empty for a program, which has its own.
        keywords: Keyword arguments of a module.
        dynamic_shapes: The argument of `torch.onnx.export`; None for a static export and for a program.
    """

    program: torch.nn.Module | torch.export.ExportedProgram
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None

    @property
    def onnx_arguments(self) -> tuple[Any, ...]:
        """The positional arguments as `torch.onnx.export` takes them: it takes a last dictionary for keywords."""
        if not self.keywords and self.arguments and isinstance(self.arguments[-1], dict):
            return (*self.arguments, {})
        return self.arguments

    def captured(self) -> torch.export.ExportedProgram:
        """Return the program that `torch.export` makes of the call; a program is returned unchanged."""
        if isinstance(self.program, torch.export.ExportedProgram):
            return self.program
        # Only torch.onnx.export takes names of open sizes.
        shapes = pytree.tree_map_only(str, lambda name: torch.export.Dim.DYNAMIC, self.dynamic_shapes)
        return torch.export.export(
            self.program, self.arguments, dict(self.keywords), dynamic_shapes=shapes, strict=False
        )


def tensor_inputs(program: torch.export.ExportedProgram) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors among a program's inputs, in their order: name and the fake value that it was captured
    with."""
    given = set(program.graph_signature.user_inputs)
    nodes = (node for node in program.graph.nodes if node.op == "placeholder" and node.name in given)
    return [(node.name, value) for node in nodes if isinstance(value := node.meta.get("val"), torch.Tensor)]


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """One export.

    Attributes:
        program: Called with `inputs` positionally; returns a tuple of tensors.
        inputs: Example inputs.
        input_names: One per input, to be the names of the graph inputs.
        output_names: One per output of `program`, to be the names of the graph outputs.
        opset: The opset to emit, or None for the converter's own default.
        dynamic_dims: Per input, the dimensions that must stay dynamic; None for a static export.
        equal_dims: Groups of (input, dimension) of which each has one size, such as a sequence and its mask. If
            they are not said to be one, `torch.export` may find them fixed.
        tentative: A failure will be tried again in parts, so that a converter that has fallbacks need not
            take them.
        call: The user's own call of a model, of which `program` and `inputs` are the flat form.
        graph: The graph of a case that is exported already; None for all others.
    """

    program: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    opset: int | None = None
    dynamic_dims: tuple[frozenset[int], ...] | None = None
    equal_dims: tuple[tuple[tuple[int, int], ...], ...] = ()
    tentative: bool = False
    call: ModelCall | None = None
    graph: onnx.ModelProto | None = None

    @property
    def model_call(self) -> ModelCall:
        """The user's own call of a model; of operator calls the flat form."""
        return self.call or ModelCall(program=self.program, arguments=self.inputs, dynamic_shapes=self.dynamic_shapes)

    def captured_flat(self, limit: Callable[[int], int | None] = lambda size: None) -> torch.export.ExportedProgram:
        """Return the captured program that takes `inputs` positionally; with the largest sizes as
        `dynamic_shapes_up_to`."""
        if self.call is not None and isinstance(self.call.program, torch.export.ExportedProgram):
            return self.call.program
        return torch.export.export(self.program, self.inputs, dynamic_shapes=self.dynamic_shapes_up_to(limit))

    @property
    def dynamic_shapes(self) -> tuple[tuple[dict[int, Any], ...]] | None:
        """`dynamic_dims` as `torch.export` takes them; None for a static export.

        The program takes all inputs as one variadic argument.
        """
        return self.dynamic_shapes_up_to(lambda size: None)

    def dynamic_shapes_up_to(self, limit: Callable[[int], int | None]) -> tuple[tuple[dict[int, Any], ...]] | None:
        """Return the same shapes with the largest size that each may have, by the size of the example; None for any."""
        if self.dynamic_dims is None:
            return None
        dim, one = torch.export.Dim, dict[tuple[int, int], Any]()
        for i, places in enumerate(self.equal_dims):
            index, place = places[0]
            one.update(dict.fromkeys(places, dim(f"size{i}", max=limit(self.inputs[index].shape[place]))))

        def declared(index: int, place: int) -> Any:
            most = limit(self.inputs[index].shape[place])
            return one.get((index, place)) or (dim.DYNAMIC if most is None else dim.DYNAMIC(max=most))

        return (tuple({d: declared(i, d) for d in sorted(dims)} for i, dims in enumerate(self.dynamic_dims)),)


class Converter(Protocol):
    """One way from a PyTorch program to an ONNX model.

    A converter whose entry says that it makes another kind returns a `harness.run.artefact.Artefact` instead, and
    declares `Any`.
    """

    name: str
    #: Version of the package that converts.
    version: str

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """Export.

        Graph inputs and outputs come in the order of the request; an input that the program
        does not use may be left out.

        Raises:
            UnsupportedOperator: no conversion for an operator.
            Exception: anything else is the converter's error.
        """


class FastLaneTrust(Protocol):
    """The record of which operators a converter's fast lane may export; see `harness.convert.fast.trust.Trust`."""

    notes: list[str]

    def covers(self, overload: str) -> bool:
        """Whether exports of an operator go through the fast lane."""

    def end_for(self, overload: str, difference: str) -> None:
        """No longer use the fast lane for an operator, since a public export differs."""

    def is_confirmed(self, overload: str, signature: str) -> bool:
        """Whether a public export of the operator is known to fail with this signature."""

    def confirm(self, overload: str, signature: str) -> None:
        """Note that a public export of the operator fails with this signature."""

    def is_audited(self, structure: str) -> bool:
        """Whether the graph of a structure is to be compared with the public one."""


@runtime_checkable
class HasFastLane(Protocol):
    """A converter that may export in a faster way than its public call, which checks it."""

    @property
    def trust(self) -> FastLaneTrust | None:
        """Return the record of trust in the fast lane; None if the converter has no fast lane."""

    def public(self) -> Converter:
        """Return the same converter by its public call alone."""


@runtime_checkable
class HasNotes(Protocol):
    """A converter that tells the user about its exports."""

    @property
    def notes(self) -> Sequence[str]:
        """Return the messages so far, a line each."""


@runtime_checkable
class KeepsApart(Protocol):
    """A converter of artefacts that cannot be cut down. It knows the calls that would fail a whole batch."""

    def keeps_apart(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether a call with such inputs is converted by itself."""


@runtime_checkable
class HasUnoptimised(Protocol):
    """A converter whose optimiser can be left out, to distinguish a wrong optimiser from a wrong conversion."""

    def unoptimised(self) -> Converter:
        """Return the same converter without its optimiser."""


@runtime_checkable
class HasExporterPasses(HasUnoptimised, Protocol):
    """A converter whose optimiser can be stopped on its way, to find its wrong change."""

    def stopped_after(self, limit: int | None, changes: list[Change]) -> Converter:
        """Return the same converter with an optimiser that makes at most `limit` changes.

        Args:
            limit: None for any number.
            changes: Receives the changes of each export, in order. If a pass or rule raises, it is the last.
        """


@runtime_checkable
class HasProgram(Protocol):
    """A converter that can return the PyTorch graph that it translated.

    Values of the ONNX model are named like the nodes of that graph, as far as they are kept.
    """

    def program(self, request: ExportRequest) -> torch.onnx.ONNXProgram:
        """Convert as `Converter.convert` does, and return the model with the PyTorch graph."""


#: The first that PyTorch's exporters ever emitted.
FIRST_OPSET = 7


def known_opsets() -> range:
    """Return all opsets that the installed onnx package knows."""
    return range(FIRST_OPSET, onnx.defs.onnx_opset_version() + 1)


class ExportStep(StrEnum):
    """A step of an export outside all conversion functions, which may be wrong itself.

    A converter names those that it has, so that blame looks for their faults.

    Attributes:
        TRACING: The program is traced: what depends on values becomes a constant.
        EXPLICIT_DTYPES: A pass casts operands to the dtype that PyTorch's kernel computes in.
        EQUAL_DTYPES: A pass makes the dtypes of a node's operands equal.
        SCALARS_AS_NUMBERS: A pass takes 0-d tensors for numbers where it decides on dtypes.
        SHAPES: Shapes are inferred while the graph is made.
        NUMBERS: Numbers become attributes or constants in one place for all functions.
    """

    TRACING = "tracing"
    EXPLICIT_DTYPES = "explicit-dtypes"
    EQUAL_DTYPES = "equal-dtypes"
    SCALARS_AS_NUMBERS = "scalars-as-numbers"
    SHAPES = "shapes"
    NUMBERS = "numbers"


@dataclass(frozen=True, kw_only=True)
class ConverterEntry:
    """A registered converter before anything of it is imported or started.

    Attributes:
        name: The name after ``--converter``.
        probe: Returns None if the converter can run on this machine, otherwise the reason why it cannot.
        create: Starts it. ``public_api=True`` asks for the plain public call with nothing kept
            between exports; a converter without such a difference ignores it.
        default: Whether it is the converter of a plain ``pytest harness``.
        default_for_programs: Whether ``pytest harness --programs`` uses it, too.
        create_with_rules: Starts it with the user's conversion functions; None if it takes none. The started
            converter calls `RuleBook.start` at the beginning of each export.
        snippet: Code that exports without the harness, for scripts that reproduce a defect; None if there is no
            such code.
        tracker: The GitHub repository that takes its bug reports: ``pytorch/pytorch``.
        issue_form: The fields of that tracker's form, as in `harness.run.backend.BackendEntry`.
        decomposes: Whether it decomposes an operator that it has no conversion for, as PyTorch does, and converts
            the parts.
        witness: Place among the converters that are asked about another's failure, the lowest first; None for
            a converter that is not asked.
        conversions: Returns the converter's own conversion functions for an overload, a line each; None if it
            cannot tell.
        opsets: The opsets that it can emit; empty if it makes no ONNX models.
        later_conversions: Returns the operators that it converts by another function from an opset above its default
            on: overload → that opset.
        notes: Returns warnings about its exports on this installation, a line each. Called in a worker process
            when the converter is started.
        makes: The kind of artefact (`harness.run.artefact`).
        captures: Whether it begins with `torch.export`, whose refusals are PyTorch's.
        max_batch: Maximum number of calls that it converts at once; None for as many as the user says. The number is
            small if a call costs about as much in a batch, since all are converted again if one fails.
        converts: Whether it converts anything: the graph of a file is what it is.
        steps: The steps of its exports that blame knows the faults of.
    """

    name: str
    probe: Callable[[], Unavailable | None]
    create: Callable[[bool], Converter]
    version: Callable[[], str]
    default: bool = False
    default_for_programs: bool = False
    summary: str = ""
    create_with_rules: Callable[[bool, RuleBook], Converter] | None = None
    snippet: Callable[[ExportWanted], ExportSnippet] | None = None
    tracker: str = ""
    issue_form: Mapping[str, str] = field(default_factory=dict)
    decomposes: bool = False
    witness: int | None = None
    conversions: Callable[[str], tuple[str, ...]] | None = None
    opsets: Callable[[], range] = known_opsets
    later_conversions: Callable[[], Mapping[str, int]] = dict
    notes: Callable[[], tuple[str, ...]] = tuple
    makes: str = ONNX
    captures: bool = True
    max_batch: int | None = None
    converts: bool = True
    steps: frozenset[ExportStep] = frozenset({ExportStep.NUMBERS})


@dataclass(frozen=True)
class PartialResult:
    """The result for some calls of a program.

    Attributes:
        calls: Places of the calls in the program.
        model: The model of all of them; it may have outputs of other calls, too, which mean nothing.
        failure: The error of exporting each of them by itself. If both are None, the calls still have to be exported
            as a program of their own.
        differs_alone: Whether the model may differ from the export of a single call: in names for other sizes, and
            in copies of a constant that several calls return.
    """

    calls: tuple[int, ...]
    model: onnx.ModelProto | None = None
    failure: Exception | None = None
    differs_alone: bool = False


@runtime_checkable
class ConvertsParts(Protocol):
    """A converter that continues if some calls of a program fail."""

    def convert_parts(
        self, request: ExportRequest, begin: Callable[[Sequence[int]], None]
    ) -> Iterator[PartialResult] | None:
        """Export a program of `harness.convert.operator_calls.OperatorCalls`.

        Args:
            request: The request for the whole program.
            begin: Called with the calls concerned before any step that may take long or kill the process.

        Returns:
            The result of each call; None if this program must be exported as a whole.
        """


def supports_partial(converter: Converter) -> ConvertsParts | None:
    """Return the converter if it continues after failures; None otherwise, and for a wrapper that converts in a way of
    its own."""
    if not isinstance(converter, ConvertsParts):
        return None
    for kind in type(converter).__mro__:
        if "convert_parts" in vars(kind):
            return converter
        if {"convert", "program"} & vars(kind).keys():
            break
    return None


def _broken(name: str, problem: Unavailable, version: str) -> ConverterEntry:
    def create(public_api: bool) -> Converter:
        raise RuntimeError(problem.reason)

    summary = "a plug-in that failed to load"
    return ConverterEntry(name=name, probe=lambda: problem, create=create, version=lambda: version, summary=summary)


#: Every converter. A new one is one file in `harness/convert/converters/` that calls `register` when it is
#: imported, or an entry point of another package.
CONVERTERS: Registry[ConverterEntry] = Registry(
    "converter", package="harness.convert.converters", group="harness.converters", broken=_broken
)


register = CONVERTERS.register


class _TakesGraph:
    """Takes a graph unchanged."""

    version = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """Return the graph that is exported already."""
        assert request.graph is not None
        return request.graph


def _entry(name: str) -> ConverterEntry:
    return ConverterEntry(
        name=name,
        probe=lambda: None,
        create=lambda public_api: _TakesGraph(name),
        version=lambda: "",
        opsets=(lambda: range(0)) if name == FILE else (lambda: range(1, onnx.defs.onnx_opset_version() + 1)),
        captures=False,
        converts=False,
    )


#: Begin the routes of ONNX files and of drawn graphs, so that a graph goes the way of all cases.
_EXPORTED = {name: _entry(name) for name in EXPORTED}


def find_converter(export: str) -> ConverterEntry:
    """Return the converter of an export, as `Route.export` names it; raises as `Registry.find` does."""
    name = Route.parse(export).converter
    return _EXPORTED[name] if name in _EXPORTED else CONVERTERS.find(name)[0]
