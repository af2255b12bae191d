"""One failing case in the worker process, with the means to look into it.

A witness sends the case along its route again with one thing changed: another backend, no optimisations, another
converter, other values. Exports and loaded models that the contexts of a task share are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self, TypeVar, cast

import numpy as np
import onnx

from harness.blame.testimony import Failure
from harness.compare.comparison import compare, wrong_elements
from harness.compare.diagnosis import Finding
from harness.compare.drawn import draws, fail_alike
from harness.compare.judge import CLOSE, Evidence, Mask
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.compare.problem_kinds import elements_of_kind, name_problem
from harness.compare.repeated import first_wrong
from harness.compare.tolerances import MUCH_NEARER
from harness.compare.verdict import SPEC, Outcome
from harness.convert.converter import Converter, HasUnoptimised, find_converter
from harness.convert.provenance import EmittedGraph, emitted
from harness.convert.transform import tolerance_along
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.numbers import are_same
from harness.core.program import is_composed
from harness.core.tensors import build_tensor
from harness.core.text import describe_error
from harness.core.torch_arrays import to_numpy
from harness.generate.operator_case import judge_of
from harness.pipeline.loaded_models import LoadedModels
from harness.pipeline.nodes.earlier_versions import has_earlier_meanings
from harness.pipeline.nodes.judged_nodes import form_of
from harness.pipeline.nodes.walk import Walk, WrongStep
from harness.pipeline.program import Structure, export_alone
from harness.pipeline.reference import Reference
from harness.pipeline.stages import StageFailure, find_narrowing, run_artefact
from harness.pipeline.submodel import cast_outputs
from harness.pipeline.task import Settings
from harness.pipeline.torch_case import Calls, CaseKind
from harness.pipeline.transforming import transform_stage
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


@dataclass(frozen=True, eq=False)
class WrongElements:
    """The outputs and elements that a failure is about.

    Attributes:
        names: Names of the outputs in the graph.
        expected: PyTorch's outputs.
        got: The failing backend's outputs.
        masks: The elements; None for an output of another form.
        indices: Indices of the outputs among all.
    """

    context: FailureContext
    names: tuple[str, ...]
    expected: tuple[Array, ...]
    got: tuple[Array, ...]
    masks: tuple[Mask | None, ...]
    indices: tuple[int, ...]

    @classmethod
    def of(cls, context: FailureContext) -> Self | None:
        """Return the wrong elements of a result; None if the backend gives another number of outputs."""
        assert context.got is not None
        expected, got = context.reference.expected, context.got
        if len(expected) != len(got):
            return None
        names = [o.name for o in context.model.graph.output]
        unlike = [form_of(e) != form_of(g) for e, g in zip(expected, got, strict=True)]
        # A wrong form ends the comparison: the failure is about it.
        asked = [i for i, w in enumerate(context.wrong) if (unlike[i] if any(unlike) else w.any())]
        if any(unlike) and context.comparison is not None and context.comparison.problems:
            # Outputs that are wrong in another way are another failure.
            asked = [i for i in asked if i in context.comparison.problems[0].outputs]
        return cls(
            context=context,
            names=tuple(names[i] for i in asked),
            expected=tuple(expected[i] for i in asked),
            got=tuple(got[i] for i in asked),
            masks=tuple(None if unlike[i] else context.wrong[i] for i in asked),
            indices=tuple(asked),
        )

    @property
    def is_about_form(self) -> bool:
        """Whether a shape or dtype is in question."""
        return any(mask is None for mask in self.masks)

    @property
    def counts(self) -> list[int]:
        """Return the number of elements of each output; 1 for a form."""
        return [1 if mask is None else int(mask.sum()) for mask in self.masks]

    def unexplained(self, found: Walk) -> tuple[Mask, ...]:
        """Return a mask per output of the model, true at the elements in question that are wrong after a walk."""
        outputs = list(self.context.reference.expected)
        for i, name in zip(self.indices, self.names, strict=True):
            outputs[i] = found.values[name]
        wrong = wrong_elements(self.context.judge, self.context.reference, outputs)
        asked = {i: mask for i, mask in zip(self.indices, self.masks, strict=True) if mask is not None}
        return tuple(w & asked[i] if i in asked else np.zeros_like(w) for i, w in enumerate(wrong))

    def left(self, found: Walk) -> list[int]:
        """Return the number of wrong elements of each output after a walk; 1 for a wrong form."""
        counts: list[int] = []
        for i, name, e, mask in zip(self.indices, self.names, self.expected, self.masks, strict=True):
            final = found.values[name]
            if mask is None or form_of(e) != form_of(final):
                counts.append(int(form_of(e) != form_of(final)))
                continue
            outputs = list(self.context.reference.expected)
            outputs[i] = final
            wrong = wrong_elements(self.context.judge, self.context.reference, outputs)[i]
            counts.append(int((wrong & mask).sum()))
        return counts

    def gives_the_same(self, found: Walk) -> bool:
        """Whether a walk gives the failing backend's answer: elements are mostly far nearer to it than it is
        to PyTorch's."""
        for e, got, name, mask in zip(self.expected, self.got, self.names, self.masks, strict=True):
            final = found.values[name]
            if form_of(final) != form_of(got):
                return False
            if mask is None or form_of(e) != form_of(got):
                continue
            with np.errstate(all="ignore"):
                o, g, p = (a[mask].astype(np.float64) for a in (final, got, e))
                near = are_same(o, g) | (MUCH_NEARER * np.abs(o - g) <= np.abs(p - g))
            if 2 * int(near.sum()) <= near.size:
                return False
        return True

    def among_wrong(self, fault: WrongStep) -> WrongStep:
        """Return a wrong node with only those of its wrong elements that the failure is about, if there are some.

        Others the comparison may have excused, which a definition does not.
        """
        masks = dict(zip(self.names, self.masks, strict=True))
        wrong = []
        for name, mask in zip(fault.definition.step.outputs, fault.wrong, strict=True):
            asked = masks.get(name)
            both = mask & asked if asked is not None and asked.shape == mask.shape else mask
            wrong.append(both if both.any() else mask)
        return replace(fault, wrong=tuple(wrong))


T = TypeVar("T")

#: Stands for the index of a structure if something is not of one structure.
_OF_OPERATOR = -1
#: How often each witness runs a case that draws at random.
_RUNS = 50


@dataclass(frozen=True)
class BackendAnswer:
    """A backend's answer to a model: its outputs, or its error, and whether it admits a gap."""

    outputs: tuple[Array, ...] | None = None
    error: str = ""
    unsupported: bool = False


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
        kind: CaseKind | None = None,
        model: onnx.ModelProto | None = None,
        only: tuple[Mask, ...] | None = None,
    ) -> None:
        self.failure = failure
        self._model = model
        self._only = only
        #: The elements in question that a wrong node does not explain, once its definition has been tried.
        self.unexplained: tuple[Mask, ...] | None = None
        self.kind = kind or Calls()
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
        #: Whether it is a run of an ONNX file, which has no PyTorch program.
        self.is_file = failure.source is not None and failure.source.is_file
        self.is_onnx = find_converter(failure.converter).makes == ONNX
        judge = self.reference.judge if self.is_composed else judge_of(self.invocation)
        count = len(self.reference.expected) if failure.result.wrong_outputs else 0
        # What a text leaves open is no failure, except for a runtime that contradicts itself there.
        settled = judge if failure.result.blame == SPEC else judge.without_unsettled
        allowed = settled.allowing(tolerance_along(failure.route))
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
            made = transform_stage(self.untransformed, self.route)
            if isinstance(made, StageFailure):
                raise made.error
            model = cast(onnx.ModelProto, made)
        return cast_outputs(model, self.failure.result.casts)

    @property
    def untransformed(self) -> AnyModel:
        """The converter's export of this case's structure alone. Raises the converter's exceptions."""
        return self.export(self.converter(self.failure.converter), "export")

    def after_transform(self) -> FailureContext:
        """Return the same failure, of a graph that a transform has made."""
        means = (self.settings, self.converter, self.backend, self._exports, self.kind, self._model)
        context = FailureContext(self.failure, *means)
        context.is_transformed = True
        return context

    def without_transforms(self) -> FailureContext:
        """Return the same failure on the route without transforms, with the converter's own model."""
        failure = replace(self.failure, route=replace(self.route, transforms=()))
        return FailureContext(failure, self.settings, self.converter, self.backend, self._exports, self.kind)

    @property
    def accused(self) -> Backend:
        """The backend that failed."""
        return self.backend(self.failure.backend)

    @cached_property
    def reference(self) -> Reference:
        """PyTorch's answer."""
        return self.kind.reference(self.invocation)

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
        means = (self.settings, self.converter, self.backend, self._exports, self.kind, self._model)
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
            return self.reference.compare(outputs, tolerance_along(self.route))
        return compare(self.judge, self.reference, outputs)

    @cached_property
    def wrong(self) -> tuple[Mask, ...]:
        """A mask per output of `got`, true at the elements that the failure is about.

        These are the wrong elements of the first wrong output that show the kind of the failure. Elements of other
        outputs and excused elements do not count.
        """
        assert self.got is not None
        return self._elements_to_explain(self.got)

    @cached_property
    def plain(self) -> BackendAnswer | None:
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
            self.kind,
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

    def _elements_to_explain(self, outputs: Sequence[Array]) -> tuple[Mask, ...]:
        """Return a mask per output, true where the first wrong output shows the kind of the failure."""
        masks = wrong_elements(self.judge, self.reference, outputs)
        if self._only is not None and [mask.shape for mask in masks] == [only.shape for only in self._only]:
            return tuple(mask & only for mask, only in zip(masks, self._only, strict=True))
        first = next((i for i, mask in enumerate(masks) if mask.any()), -1)
        return tuple(
            self._showing(i, mask, outputs[i]) if i == first else np.zeros_like(mask) for i, mask in enumerate(masks)
        )

    def _showing(self, output: int, wrong: Mask, got: Array) -> Mask:
        """Return the wrong elements that show the kind of the failure."""
        expected = self.reference.expected[output]
        dtype = str(expected.dtype)
        if output in self.judge.rules or dtype not in PRECISION or _form(expected) != _form(got):
            return wrong
        wide = expected.astype(np.float64), got.astype(np.float64)
        with np.errstate(all="ignore"):
            return elements_of_kind(name_problem(self.judge, self.reference, output, wrong, *wide), wrong, *wide)

    @cached_property
    def structure(self) -> Structure:
        """Return the exported structure."""
        group = self.failure.group
        outputs = len(self.reference.expected)
        return self.kind.structure(group.exported, self._cases, outputs=outputs, index=group.index)

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

    def feeds(self, model: AnyModel, reference: Reference | None = None) -> dict[str, Array]:
        """Input name → array, for the inputs that `model` has."""
        return self.structure.feeds(model, (reference or self.reference).feeds)

    def run_model(self, backend: Backend, model: AnyModel, reference: Reference | None = None) -> BackendAnswer:
        """Run `model` in `backend` on the case's inputs, or on those of `reference`.

        On its own inputs a case that draws at random is run until it fails: one run may be right by luck.
        """
        is_witness = backend.name == REFERENCE and self.failure.backend != REFERENCE
        if is_witness and not isinstance(model, Artefact) and has_earlier_meanings(model):
            return BackendAnswer(error="it has no definition of an operator at this opset", unsupported=True)
        ranges = self.structure.shape_ranges(model, self._cases) if self.route.dynamic else None
        wrong = partial(first_wrong, self.judge, self.reference, most=_RUNS) if reference is None else None
        once = self.loading_once(backend)
        found = run_artefact(once, model, self.feeds(model, reference), ranges, wrong)
        if not isinstance(found, StageFailure):
            return BackendAnswer(found)
        if found.outcome is Outcome.BUILT:
            return BackendAnswer(error=str(found.error), unsupported=True)
        return BackendAnswer(error=_short(found.error), unsupported=found.outcome is Outcome.UNSUPPORTED)

    def classify(self, answer: BackendAnswer) -> tuple[Finding, str]:
        """Classify `answer` by PyTorch's and the failing backend's, and describe its problem.

        Only the elements in which the failing backend is wrong count: another backend has defects elsewhere.
        """
        if answer.outputs is None:
            return (Finding.LACKS if answer.unsupported else Finding.REFUSES), answer.error
        comparison = self.compare(answer.outputs)
        if comparison.problem is None:
            return Finding.RIGHT, ""
        if self.failure.outcome is Outcome.MISMATCH and self.is_same(answer.outputs):
            return Finding.SAME, comparison.message
        if self._is_pytorchs(answer.outputs):
            return Finding.RIGHT, comparison.message
        return Finding.OTHER, comparison.message

    def is_right(self, backend: Backend, model: AnyModel) -> bool:
        """Whether a backend gives PyTorch's result for a model."""
        return self.classify(self.run_model(backend, model))[0] is Finding.RIGHT

    def is_same(self, outputs: Sequence[Array], answer: tuple[Array, ...] | None = None) -> bool:
        """Whether `outputs` are the same wrong answer as `answer`, by default the failing backend's.

        Their answers do not matter where that answer is right. Where it is wrong, they must be much nearer
        to it than PyTorch's answer is, so that two answers that are both nearly right are not mixed up.
        """
        answer = self.got if answer is None else answer
        expected = self.reference.expected
        if answer is None or [_form(o) for o in outputs] != [_form(a) for a in answer]:
            return False
        if [_form(a) for a in answer] != [_form(e) for e in expected]:
            # The form is wrong.
            return True
        if draws(self.judge):
            arguments = self.reference.arguments
            ours, theirs = (Evidence(arguments, expected, some) for some in (outputs, answer))
            return fail_alike(self.judge, ours, theirs)
        asked = self.wrong if answer is self.got else self._elements_to_explain(answer)
        return all(
            bool(_is_rather(o[w], a[w], e[w]).all())
            for o, a, e, w in zip(outputs, answer, expected, asked, strict=True)
        )

    def is_equal(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are bit for bit the failing backend's wrong answer, and of the right form.

        Less does not show that PyTorch contradicts itself: it may round otherwise from one call to another.
        """
        forms = [_form(e) for e in self.reference.expected]
        if self.got is None or any([_form(o) for o in some] != forms for some in (outputs, self.got)):
            return False
        return any(w.any() for w in self.wrong) and all(
            bool(_is_equal(o[w], g[w]).all()) for o, g, w in zip(outputs, self.got, self.wrong, strict=True)
        )

    def _is_pytorchs(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are PyTorch's answer where the failing backend is wrong, if not elsewhere.

        Numbers drawn at random have no right value: near values prove nothing.
        """
        if draws(self.judge):
            return False
        expected, answer = self.reference.expected, self.got
        forms = [_form(e) for e in expected]
        if answer is None or [_form(o) for o in outputs] != forms or [_form(a) for a in answer] != forms:
            return False
        bad = wrong_elements(self.judge, self.reference, outputs)
        return any(w.any() for w in self.wrong) and all(
            bool((~b[w] | _is_rather(o[w], e[w], a[w])).all())
            for o, a, e, w, b in zip(outputs, answer, expected, self.wrong, bad, strict=True)
        )

    def is_as_wrong(self, outputs: Sequence[Array]) -> bool:
        """Whether `outputs` are the failing backend's with its optimisations off, and are wrong
        wherever it is wrong with them: the optimisations change a result that is wrong without them."""
        plain = self.plain.outputs if self.plain else None
        if self.got is None or plain is None or not self.is_same(outputs, plain):
            return False
        wrong = wrong_elements(self.judge, self.reference, plain)
        return all(not (w & ~o).any() for w, o in zip(self.wrong, wrong, strict=True))

    def narrows(self, backend: Backend) -> bool:
        """Whether `backend` would compute the case in a narrower dtype."""
        return find_narrowing(backend, self.reference.arrays) is not None

    def is_independent(self, name: str) -> bool:
        """Whether backend `name` shares no engine with the failing one."""
        return _engine(name) != _engine(self.failure.backend)


def _engine(name: str) -> str:
    entry, _ = BACKENDS.find(name)
    return entry.engine or name


def _short(error: Exception) -> str:
    return describe_error(error).partition("\ncaused by ")[0].replace("\n", " ")[:200]


def _form(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def _is_equal(other: Array, one: Array) -> Mask:
    """Return the mask of equal elements: all NaN are equal, +0 and −0 are not."""
    same = np.asarray(other == one)
    if str(one.dtype) not in PRECISION:
        return same
    o, a = other.astype(np.float64), one.astype(np.float64)
    return np.asarray((same & (np.signbit(o) == np.signbit(a))) | (np.isnan(o) & np.isnan(a)))


def _is_rather(other: Array, one: Array, than: Array) -> Mask:
    """Return the mask of elements of `other` that agree with `one` rather than with `than`: equal, or much nearer,
    or nearer and within roundings. Infinities and NaN agree only with themselves."""
    same = _is_equal(other, one)
    dtype = str(one.dtype)
    if dtype not in PRECISION:
        return same
    tolerance = tolerance_of(CLOSE, dtype)
    with np.errstate(all="ignore"):
        # Wider than any dtype: between numbers near the largest the distance is finite, too.
        o, a, e = (array.astype(np.float64).astype(np.longdouble) for array in (other, one, than))
        distance, apart = np.abs(o - a), np.abs(e - a)
        near = distance <= tolerance.allowed(a)
        rather = (near & (2 * distance < apart)) | (MUCH_NEARER * distance <= apart)
        # Zeros of either sign are as far from each other as a zero is from itself.
        rather &= apart != 0
        # From an infinity or NaN every number is as far: half of the digits must be the same.
        rather = np.where(np.isfinite(e), rather, distance <= np.abs(a) * 2.0 ** (-PRECISION[dtype] / 2))
        return np.asarray(same | (rather & np.isfinite(o) & np.isfinite(a)))
