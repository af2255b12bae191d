"""One failing case in the worker process, with the means to look into it.

A witness sends the case along its route again with one thing changed: another backend, no optimisations, another
converter, other values. Exports and loaded models that the contexts of a task share are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeVar, cast

import numpy as np
import onnx

from harness.blame.differences import WrongAnswer
from harness.blame.testimony import Failure
from harness.compare.comparison import compare, stored_as_asked
from harness.compare.diagnosis import Finding
from harness.compare.judge import Leeway, Mask
from harness.compare.output_comparison import OutputComparison
from harness.compare.repeated import first_wrong
from harness.compare.verdict import SPEC, Outcome, Stage
from harness.convert.converter import Converter, HasUnoptimised, find_converter
from harness.convert.provenance import EmittedGraph, emitted
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.program import is_composed
from harness.core.tensors import build_tensor
from harness.core.torch_arrays import to_numpy
from harness.pipeline.case import Case, CaseOracle, Structure
from harness.pipeline.case_run import CaseRun
from harness.pipeline.leeway import TransformedOutputs
from harness.pipeline.loaded_models import LoadedModels
from harness.pipeline.nodes.earlier_versions import has_earlier_meanings
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.run_case import finish, make_artefact
from harness.pipeline.run_graph import run_graph
from harness.pipeline.stages import find_narrowing
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.submodel import cast_outputs
from harness.pipeline.task import Settings
from harness.run.artefact import ONNX, AnyModel, Artefact
from harness.run.backend import BACKENDS, REFERENCE, Backend, HasPlain

#: Numbers that stand for infinities and NaN, in turn: exact in every dtype, and no two neighbours alike.
_STAND_INS = tuple(1 + 0.25 * n for n in range(13))


def change_inputs(invocation: Invocation, change: Callable[[Array], Array]) -> Invocation:
    """Return `invocation` with the storage of every tensor changed to an array of its shape and dtype, or to itself
    if nothing is to change; complex tensors stay."""

    def changed(spec: TensorSpec) -> TensorSpec:
        flat = TensorSpec((spec.storage_size,), spec.dtype, (1,), 0, spec.values)
        before = to_numpy(build_tensor(flat))
        after = change(before)
        if after is before or before.dtype.kind == "c":
            return spec
        wide = after.astype(np.float64) if str(after.dtype) == "bfloat16" else after
        return replace(spec, values=Literal(tuple(wide.tolist())))

    return invocation.map_tensors(changed)


def finite(values: Array) -> Array:
    """Return `values` with small numbers in place of infinities and NaN, or `values` itself if it has none."""
    if str(values.dtype) not in PRECISION:
        return values
    odd = ~np.isfinite(values.astype(np.float64))
    if not odd.any():
        return values
    after = values.copy()
    after[odd] = np.resize(_STAND_INS, int(odd.sum())).astype(values.dtype)
    return after


def before_optimiser(context: FailureContext) -> tuple[Finding, str]:
    """Return how the export without its optimiser ends, and the backend that decides it.

    A runtime may compute with more bits within a function than the graph has, and be right by that alone. So a result
    that is right in the failing backend counts as wrong if the reference evaluator's is wrong. This does not hold for a
    program whose calls are right by themselves: there the optimiser has changed the result. The reference evaluator
    also decides if the failing backend lacks a kernel that the optimiser would have folded away.

    Raises the converter's exceptions.
    """
    model, accused = context.translation.model, context.failure.backend
    finding, _ = context.classify(context.run_model(context.accused, model))
    if finding is Finding.SAME and context.unoptimised is not None:
        # The runtime's own optimiser may change the graph as the exporter's does.
        plain, _ = context.classify(context.run_model(context.unoptimised, model))
        finding = plain if plain is Finding.RIGHT else finding
    if finding is Finding.LACKS or (context.is_composed and finding not in (Finding.RIGHT, Finding.SAME)):
        by_definition, _ = context.classify(context.run_model(context.backend(REFERENCE), model))
        if by_definition is Finding.RIGHT:
            return by_definition, REFERENCE
    if finding is Finding.RIGHT and accused != REFERENCE and not context.is_composed:
        by_definition, _ = context.classify(context.run_model(context.backend(REFERENCE), model))
        if by_definition in (Finding.SAME, Finding.OTHER):
            return by_definition, REFERENCE
    return finding, accused


T = TypeVar("T")

#: Stands for the index of a structure if something is not of one structure.
_OF_OPERATOR = -1
#: How often each witness runs a case that draws at random.
_RUNS = 50


class FailureContext:
    """A failure and the means to look into it: started converters and backends by name, and the exports that
    all contexts of one task share."""

    def __init__(
        self,
        failure: Failure,
        settings: Settings,
        converter: Callable[[str], Converter],
        backend: Callable[[str], Backend],
        exports: dict[tuple[int, str], object],
        structure: Structure | None = None,
        model: onnx.ModelProto | None = None,
        oracle: CaseOracle | None = None,
        only: tuple[Mask, ...] | None = None,
    ) -> None:
        self.failure = failure
        self._model = model
        self._oracle = oracle
        self._only = only
        #: The elements in question that a wrong node does not explain, once its definition has been tried.
        self.unexplained: tuple[Mask, ...] | None = None
        self._structure = structure or CallStructure.of(failure.group)
        self.route = failure.route
        self.settings = settings
        self.converter = converter
        self.backend = backend
        self._exports = exports
        self.invocation = dict(failure.group.cases)[failure.case]
        #: Whether it consists of several calls: a program, or a model.
        self.is_composed = is_composed(self.invocation.overload)
        #: Whether a transform has made the graph, so that no converter can be asked about it.
        self.is_transformed = False
        #: Whether PyTorch has a program of it; a graph has none.
        self.has_program = self._structure.has_program
        #: The user's model that it is a run of; None for anything else.
        self.python_model = self._structure.model
        self.is_onnx = find_converter(failure.converter).makes == ONNX
        judge = self.reference.judge
        count = len(self.reference.expected) if failure.result.wrong_outputs else 0
        # The specification leaves some results open: they are right, unless a runtime contradicts itself.
        settled = judge if failure.result.blame == SPEC else judge.without_unsettled
        allowed = settled.allowing(self._leeway)
        self.judge = allowed.restricted_to(failure.result.wrong_outputs, count)

    @cached_property
    def model(self) -> onnx.ModelProto:
        """Return the loaded model; an empty model if the converter makes none.

        If the process that exported it is gone, the case is exported once more, by itself. Raises the converter's
        exceptions.
        """
        if not self.is_onnx:
            return onnx.ModelProto()
        model = self._model
        if model is None:
            case = Case(self.structure, self.reference, artefact=self.untransformed)
            run = make_artefact(case, StartedRoute(self.route))
            if run.failure is not None:
                raise run.failure.error
            model = cast(onnx.ModelProto, run.artefact)
        return cast_outputs(model, self.failure.result.casts)

    @cached_property
    def emulated(self) -> TransformedOutputs | None:
        """Return the emulation of the failing graph; None if the transforms of its route change no dtype."""
        case = Case(self.structure, self.reference)
        return TransformedOutputs.along(self.route, case, lambda: (self.model, self.feeds(self.model)))

    @property
    def _leeway(self) -> Leeway | None:
        return None if self.emulated is None else self.emulated.leeway

    @property
    def untransformed(self) -> AnyModel:
        """The converter's export of this case's structure alone. Raises the converter's exceptions."""
        return self.export(self.converter(self.failure.converter), "export")

    def after_transform(self) -> FailureContext:
        """Return the same failure, of a graph that a transform has made."""
        means = (self.settings, self.converter, self.backend, self._exports, self._structure, self._model, self._oracle)
        context = FailureContext(self.failure, *means)
        context.is_transformed = True
        return context

    def without_transforms(self) -> FailureContext:
        """Return the same failure on the route without transforms, with the converter's own model."""
        failure = replace(self.failure, route=replace(self.route, transforms=()))
        means = (self.settings, self.converter, self.backend, self._exports, self._structure)
        return FailureContext(failure, *means, oracle=self._oracle)

    @property
    def accused(self) -> Backend:
        """The backend that failed."""
        return self.backend(self.failure.backend)

    @cached_property
    def reference(self) -> CaseOracle:
        """PyTorch's answer."""
        return self.oracle(self.invocation) if self._oracle is None else self._oracle

    def oracle(self, invocation: Invocation) -> CaseOracle:
        """Return PyTorch's answer to a case of this structure; raises `CallRejected`."""
        return self._structure.oracle(invocation)

    @cached_property
    def got(self) -> tuple[Array, ...] | None:
        """Return the failing backend's answer to the case alone; None if it fails."""
        return self.run_model(self.accused, self.loaded).outputs

    @property
    def rest(self) -> FailureContext | None:
        """The same failure as far as it is `unexplained`; None if it is explained."""
        masks = self.unexplained
        if masks is None or not any(mask.any() for mask in masks):
            return None
        means = (self.settings, self.converter, self.backend, self._exports, self._structure, self._model, self._oracle)
        return FailureContext(self.failure, *means, only=masks)

    @property
    def explains_most(self) -> bool:
        """Whether most of the elements in question are explained."""
        left = sum(int(mask.sum()) for mask in self.unexplained or ())
        return 2 * left <= sum(int(mask.sum()) for mask in self.wrong)

    @property
    def loaded(self) -> AnyModel:
        """Return the failing backend's input: the model, or the artefact, converted once more for the case alone.

        Raises the converter's exceptions.
        """
        if self.is_onnx:
            return self.model
        return self.export(self.converter(self.failure.converter), "artefact")

    def is_taken_by(self, name: str) -> bool:
        """Whether the backend called `name` loads the failing converter's artefacts."""
        return find_converter(self.failure.converter).makes in BACKENDS.find(name)[0].takes

    @cached_property
    def comparison(self) -> OutputComparison | None:
        """Return the problems of `got`; None without outputs to compare."""
        return None if self.got is None else self.compare(self.got)

    def compare(self, outputs: Sequence[Array]) -> OutputComparison:
        """Compare outputs with PyTorch's, except open results and outputs that the failure is not about."""
        if self.failure.source is not None:
            return self.reference.compare(outputs, self._leeway)
        return compare(self.judge, self.reference, outputs)

    @cached_property
    def answer(self) -> WrongAnswer:
        """The failing backend's answer to the case alone."""
        return WrongAnswer(self.reference, self.judge, self.got, self._only)

    @property
    def wrong(self) -> tuple[Mask, ...]:
        """A mask per output of `got`, true at the elements that the failure is about."""
        return self.answer.wrong

    @cached_property
    def plain(self) -> CaseRun | None:
        """Return the failing backend's answer with its graph optimisations off; None if it has no such option."""
        plain = self.unoptimised
        return None if plain is None else self.run_model(plain, self.loaded)

    @property
    def unoptimised(self) -> Backend | None:
        """Return the failing backend with its graph optimisations off; None if it has no such option."""
        accused = self.accused
        if not isinstance(accused, HasPlain):
            return None
        return self.cached_per_operator(f"{accused.name} without optimisations", accused.plain)

    def loading_once(self, backend: Backend) -> Backend:
        """Return `backend` with a cache of the models that it loaded lately."""
        return self.cached_per_operator("loaded models", LoadedModels).caching(backend)

    @cached_property
    def finite_context(self) -> FailureContext | None:
        """Return the same failure without infinities and NaN among the inputs.

        None if they have none, or if the failure does not show at the same elements without them. A runtime
        that computes 0 · inf where others copy a number has a defect of its own, which is independent of the
        failure.
        """
        other = self.under(finite)
        return None if other is self else other

    def under(self, change: Callable[[Array], Array]) -> FailureContext | None:
        """Return the same failure with inputs changed as `change_inputs` does, or the context itself if nothing
        changes; None if the failure does not show at the same elements with the changed inputs."""
        if self.got is None:
            return None
        invocation = change_inputs(self.invocation, change)
        if invocation == self.invocation:
            return self
        failure = self.failure
        cases = [(k, invocation if k == failure.case else other) for k, other in failure.group.cases]
        group = replace(failure.group, cases=tuple(cases))
        other = FailureContext(
            replace(failure, group=group),
            self.settings,
            self.converter,
            self.backend,
            self._exports,
            self._structure,
            self._model,
        )
        try:
            if other.comparison is None or other.comparison.problem is None:
                return None
            shows = zip(self.wrong, other.wrong, strict=True)
            return other if all(w.shape == o.shape and not (w & ~o).any() for w, o in shows) else None
        except Exception:
            # PyTorch or the backend does not take them: nothing can be learnt from them.
            return None

    @cached_property
    def structure(self) -> Structure:
        """Return the exported structure."""
        return self._structure.returning(len(self.reference.expected))

    @property
    def _cases(self) -> list[Invocation]:
        return [invocation for _, invocation in self.failure.group.cases]

    @property
    def translation(self) -> EmittedGraph:
        """The failing converter's export of this case's structure, before its optimiser if it has one.

        Raises the converter's exceptions.
        """
        converter = self.converter(self.failure.converter)
        if isinstance(converter, HasUnoptimised):
            converter = converter.unoptimised()
        return self.cached_per_structure("translation", partial(emitted, converter, self.structure.request(self.route)))

    def export(self, converter: Converter, kind: str) -> AnyModel:
        """Return the export of this case's structure alone; see `cached_per_structure`."""
        return self.cached_per_structure(kind, partial(export_alone, converter, self.structure, self.route))

    def cached_per_structure(self, kind: str, make: Callable[[], T]) -> T:
        """Return the result of `make` for this case's structure, computed once for all contexts of the structure.

        `kind` tells results of one structure apart. An exception of `make` is raised each time.
        """
        key = self.failure.group.index, kind
        if key not in self._exports:
            try:
                self._exports[key] = make()
            except Exception as error:
                self._exports[key] = error
        found = self._exports[key]
        if isinstance(found, Exception):
            # Raised once more, it would keep the frames of every earlier raise alive, and their arrays.
            raise found.with_traceback(None)
        return cast(T, found)

    def cached_per_operator(self, kind: str, make: Callable[[], T]) -> T:
        """Return the result of `make`, computed once for all contexts of the operator. Exceptions are not cached."""
        key = _OF_OPERATOR, f"{self.invocation.overload} {kind}"
        if key not in self._exports:
            self._exports[key] = make()
        return cast(T, self._exports[key])

    def feeds(self, model: AnyModel, oracle: CaseOracle | None = None) -> dict[str, Array]:
        """Input name → array, for the inputs that `model` has."""
        return self.structure.feeds(model, (oracle or self.reference).feeds)

    def run_model(self, backend: Backend, model: AnyModel, oracle: CaseOracle | None = None) -> CaseRun:
        """Run `model` in `backend` on the case's inputs, or on those of another oracle.

        On its own inputs a case that draws at random is run until it fails: one run may be right by luck.
        """
        is_witness = backend.name == REFERENCE and self.failure.backend != REFERENCE
        if is_witness and not isinstance(model, Artefact) and has_earlier_meanings(model):
            message = "it has no definition of an operator at this opset"
            return CaseRun(stage=Stage.LOAD, outcome=Outcome.UNSUPPORTED, message=message)
        ranges = self.structure.shape_ranges(model, self._cases) if self.route.dynamic else None
        wrong = partial(first_wrong, self.judge, self.reference, most=_RUNS) if oracle is None else None
        run = run_graph(self.loading_once(backend), model, self.feeds(model, oracle), ranges, wrong)
        return (
            run
            if run.outputs is None
            else replace(run, outputs=tuple(stored_as_asked(self.judge, self.reference.expected, run.outputs)))
        )

    def check(self, model: AnyModel) -> CaseRun:
        """Return whether ONNX's checker takes a model of this case."""
        return finish(Case(self.structure, self.reference), StartedRoute(self.route), model)

    def classify(self, run: CaseRun) -> tuple[Finding, str]:
        """Classify a run of this case by PyTorch's outputs and the failing backend's, and describe its problem.

        Only the elements in which the failing backend is wrong count: another backend has defects elsewhere.
        """
        if run.outputs is None:
            is_gap = run.outcome in (Outcome.UNSUPPORTED, Outcome.BUILT)
            return (Finding.LACKS if is_gap else Finding.REFUSES), brief_message(run)
        comparison = self.compare(run.outputs)
        if comparison.problem is None:
            return Finding.RIGHT, ""
        if self.failure.outcome is Outcome.MISMATCH and self.answer.is_same(run.outputs):
            return Finding.SAME, comparison.message
        if self.answer.is_corrected_by(run.outputs):
            return Finding.RIGHT, comparison.message
        return Finding.OTHER, comparison.message

    def is_right(self, backend: Backend, model: AnyModel) -> bool:
        """Whether a backend gives PyTorch's result for a model."""
        return self.classify(self.run_model(backend, model))[0] is Finding.RIGHT

    def narrows(self, backend: Backend) -> bool:
        """Whether `backend` would compute the case in a narrower dtype."""
        return find_narrowing(backend, self.reference.arrays) is not None

    def is_independent(self, name: str) -> bool:
        """Whether backend `name` shares no engine with the failing one."""
        return _engine(name) != _engine(self.failure.backend)


def _engine(name: str) -> str:
    entry, _ = BACKENDS.find(name)
    return entry.engine or name


def brief_message(run: CaseRun) -> str:
    """Return the message of a run without its cause, in one line of at most 200 characters."""
    return run.message.partition("\ncaused by ")[0].replace("\n", " ")[:200]
