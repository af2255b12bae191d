"""Witnesses that ask PyTorch again, to tell whether its own answer is wrong.

They repeat the call, on row-major copies of the inputs and on one element at a time; ask PyTorch's rules for shapes and
dtypes and its decomposition of the operator; and measure in float64 how far PyTorch and the backend are from the truth.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from harness.blame.failure_context import FailureContext
from harness.blame.translated_program import operators_of, translated_program
from harness.blame.witness import witness
from harness.compare.comparison import compare, wrong_elements
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.drawn import draws
from harness.compare.judge import CLOSE, Mask
from harness.compare.nearness import tolerance_of
from harness.compare.tolerances import MUCH_NEARER
from harness.compare.verdict import Outcome
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.numbers import are_same
from harness.core.tensors import bind, build_tensors, output_tensors, overload
from harness.core.text import first_line
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload, TorchDispatchMode, errors_without_rules, fake_tensor_mode
from harness.pipeline.definition import REFUSALS, Circular, definition_of
from harness.pipeline.reference import CallOracle, run_contiguous
from harness.pipeline.torch_call import call_invocation, quiet_call

_TIMES = 3


@witness("PyTorch again", place=80, of_any_artefact=True, of_pytorch=True)
def repeat_call(context: FailureContext) -> Iterator[Testimony]:
    """Repeat the call: a kernel that reads uninitialised memory answers differently each time.

    Only the elements in question count; if the case passes alone, any of them may have failed.
    """
    if context.got is None or draws(context.judge):
        return
    asked = context.wrong
    passes = not any(mask.any() for mask in asked)
    for _ in range(_TIMES):
        again = context.oracle(context.invocation).expected
        unlike = wrong_elements(context.judge, context.reference, again)
        if any((u if passes or u.shape != a.shape else u & a).any() for u, a in zip(unlike, asked, strict=True)):
            yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "repeated-call")
            return


@witness("PyTorch on row-major copies", place=90, of_any_artefact=True, of_pytorch=True)
def ask_row_major(context: FailureContext) -> Iterator[Testimony]:
    """Make the call on row-major copies: some kernels of PyTorch read strided or expanded inputs wrongly."""
    if context.got is None or context.judge.reads_layout or not context.reference.has_strided_input:
        return
    if draws(context.judge):
        # Two draws are equal by chance.
        return
    if context.answer.is_equal(run_contiguous(context.reference).expected):
        yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "row-major", {"backend": context.failure.backend})


#: Wrong elements that are computed again; of a case with more nothing is said.
_MOST = 64


@witness("PyTorch on one element at a time", place=60, of_one_call=True, of_any_artefact=True)
def ask_one_element(context: FailureContext) -> Iterator[Testimony]:
    """Make the call on one element at a time: a pointwise result depends on its own operands only, but vector and
    scalar kernels may differ."""
    tags = overload(context.invocation.overload).tags
    if context.got is None or len(context.got) != 1 or torch.Tag.pointwise not in tags:
        return
    (expected,), (wrong,) = context.reference.expected, context.wrong
    places = np.argwhere(wrong)
    if not 0 < len(places) <= _MOST or expected.size < 2:
        return
    tensors = build_tensors(context.invocation)
    shape = tuple(expected.shape)
    if np.broadcast_shapes(*(tuple(t.shape) for t in tensors)) != shape:
        return
    singly = expected.copy()
    for place in map(tuple, places):
        # A 0-d tensor takes no part in type promotion, so it keeps its dtype.
        operands = [t if t.dim() == 0 else t.expand(shape)[place].reshape(1).clone() for t in tensors]
        (result,) = call_invocation(context.invocation, operands)
        singly[place] = to_numpy(result).reshape(())
    if context.answer.is_equal([singly]):
        facts = {"backend": context.failure.backend}
        yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "one-element", facts)


@witness("PyTorch's overload for tensors", place=70, of_one_call=True, of_any_artefact=True)
def ask_sibling_overload(context: FailureContext) -> Iterator[Testimony]:
    """Call an overload that takes a number as a tensor: another kernel, and the same mathematics."""
    got = context.got
    if got is None or len(got) != 1 or context.failure.outcome is not Outcome.MISMATCH or draws(context.judge):
        return
    for sibling in _tensor_overloads(context.invocation):
        try:
            outputs = [to_numpy(t) for t in call_invocation(*sibling)]
        except REFUSALS:
            continue
        if [(a.shape, a.dtype) for a in outputs] != [(e.shape, e.dtype) for e in context.reference.expected]:
            continue
        if context.answer.is_same(outputs):
            facts = {"overload": sibling[0].overload, "backend": context.failure.backend}
            yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "sibling-overload", facts)
            return


def _tensor_overloads(invocation: Invocation) -> Iterator[tuple[Invocation, list[torch.Tensor]]]:
    """Yield calls of overloads of the operator that take one of the call's numbers as a tensor, with their tensors."""
    target, tensors = overload(invocation.overload), build_tensors(invocation)
    given = dict(invocation.arguments)
    for name in target.overloadpacket.overloads():
        argument = _taken_as_tensor(target, getattr(target.overloadpacket, name))
        value = given.get(argument)
        if not argument or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        like = tensors[0]
        own = like.is_floating_point() or isinstance(value, int)
        tensor = torch.full(like.shape, value, dtype=like.dtype if own else torch.get_default_dtype())
        if not all(element == value for element in tensor.flatten()[:1].tolist()):
            # Rounded, it is another number, and another call.
            continue
        dtype = str(tensor.dtype).removeprefix("torch.")
        spec = TensorSpec(tuple(tensor.shape), dtype, tuple(tensor.stride()), 0, Literal(()))
        arguments = tuple((n, spec if n == argument else v) for n, v in invocation.arguments)
        place = [n for n, v in arguments if isinstance(v, TensorSpec)].index(argument)
        call = Invocation(f"{invocation.overload.rpartition('.')[0]}.{name}", arguments)
        yield call, [*tensors[:place], tensor, *tensors[place:]]


def _taken_as_tensor(target: OpOverload, other: OpOverload) -> str:
    """Return the only argument in which two overloads differ, if the second takes it as a tensor; "" for none."""
    own, others = target._schema.arguments, other._schema.arguments
    if [a.name for a in own] != [a.name for a in others] or other._schema.is_mutable:
        return ""
    unlike = [b for a, b in zip(own, others, strict=True) if str(a.type) != str(b.type)]
    return str(unlike[0].name) if len(unlike) == 1 and str(unlike[0].type) == "Tensor" else ""


@witness("PyTorch's meta kernel", place=40, of_any_artefact=True, of_pytorch=True)
def ask_meta_kernel(context: FailureContext) -> Iterator[Testimony]:
    """Ask the meta kernel for the shapes and dtypes that an exporter believes; it shares no code with the kernel.

    It is asked as exporters ask, with fake tensors of the call's own device: a rule may depend on the device alone,
    as that of `native_layer_norm` does for the statistics' dtype.
    """
    comparison = context.comparison
    if context.got is None or comparison is None or comparison.problem not in ("shape", "dtype"):
        return
    fakes = fake_tensor_mode()
    call, tensors = bind(context.invocation), [fakes.from_tensor(t) for t in build_tensors(context.invocation)]
    with torch.no_grad(), fakes:
        try:
            results = output_tensors(call(tensors))
        except errors_without_rules():
            # As where the output's size depends on values.
            return
        except RuntimeError as error:
            yield Testimony(Role.META, Finding.REFUSES, "meta-kernel", {"error": first_line(error)})
            return
    ruled = [(tuple(r.shape), str(r.dtype).removeprefix("torch.")) for r in results]
    if ruled == [(e.shape, str(e.dtype)) for e in context.reference.expected]:
        yield Testimony(Role.META, Finding.CONFIRMS, "meta-kernel")
    elif ruled == [(g.shape, str(g.dtype)) for g in context.got]:
        yield Testimony(Role.META, Finding.CONTRADICTS, "meta-kernel", {"backend": context.failure.backend})


@witness("PyTorch's decomposition", place=10, of_one_call=True, of_any_artefact=True)
def ask_decomposition(context: FailureContext) -> Iterator[Testimony]:
    """Run the decomposition, which PyTorch's compilers compute instead of the kernel; the two share no code."""
    definition = definition_of(context.invocation)
    if context.got is None or definition is None:
        return
    call, in_its_place = definition
    tensors = build_tensors(context.invocation)
    try:
        with quiet_call(), in_its_place:
            results = output_tensors(call(tensors))
    except Circular:
        return
    except REFUSALS as error:
        yield Testimony(Role.DECOMPOSITION, Finding.REFUSES, "decomposition", {"error": first_line(error)})
        return
    outputs = [to_numpy(t) for t in results]
    if compare(context.judge, context.reference, outputs).problem is None:
        yield Testimony(Role.DECOMPOSITION, Finding.CONFIRMS, "decomposition")
        return
    would_pass = _would_pass(context, outputs, in_its_place)
    if would_pass or context.answer.is_same(outputs):
        facts = {"backend": context.failure.backend, "converter": context.failure.converter}
        # The second costs an export.
        if would_pass or _is_all_there_is(context, outputs) or _takes_part(context):
            yield Testimony(Role.DECOMPOSITION, Finding.CONTRADICTS, "decomposition", facts)
        else:
            yield Testimony(Role.DECOMPOSITION, Finding.OTHER, "decomposition", facts)


def _would_pass(context: FailureContext, outputs: list[Array], in_its_place: TorchDispatchMode) -> bool:
    """Whether the backend's result would do, were the definition the kernel.

    It need not be much nearer to the definition at every element: where sums cancel (`gelu` of -5.5), the
    definition is as far from the truth as the backend is. The judge's allowance for that applies to the
    definition, too.
    """
    reference = context.reference
    if context.got is None or not isinstance(reference, CallOracle) or _is_of_form(context):
        return False
    defined = CallOracle(reference.invocation, reference.feeds, tuple(outputs))
    try:
        with quiet_call(), in_its_place:
            return compare(context.judge, defined, context.got).problem is None
    except Circular:
        return False


def _is_of_form(context: FailureContext) -> bool:
    """Whether a shape or a dtype is wrong: a kernel's rules for them are better than its definition's."""
    return context.comparison is None or context.comparison.problem in ("shape", "dtype")


def _is_all_there_is(context: FailureContext, outputs: list[Array]) -> bool:
    """Whether the definition departs from the kernel wherever the backend does: a graph that says nothing
    else than PyTorch's own definition is not worse than that."""
    if context.got is None or _is_of_form(context):
        return False
    got, own = (wrong_elements(context.judge, context.reference, some) for some in (context.got, outputs))
    return all(g.shape == o.shape and not (g & ~o).any() for g, o in zip(got, own, strict=True))


def _takes_part(context: FailureContext) -> bool:
    """Whether the exporter may have decomposed the operator before it translated anything.

    An exporter with a conversion of its own for the operator does not use the definition: any agreement of its graph
    with the definition is the conversion's. The set of its conversions does not depend on the call.
    """

    def found() -> bool:
        program = translated_program(context)
        return program is None or context.invocation.overload not in operators_of(program)

    try:
        return context.cached_per_operator("is decomposed", found)
    except Exception:
        # Which operators it would have translated is not known then.
        return True


@witness("float64", place=20, of_any_artefact=True, of_pytorch=True)
def ask_float64(context: FailureContext) -> Iterator[Testimony]:
    """Make the same call in float64, and compare the elements at which the backend is wrong."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None:
        return
    truths = context.reference.truth or ()
    for i, (expected, got, truth, wrong) in enumerate(
        zip(context.reference.expected, context.got, truths, context.wrong, strict=False)
    ):
        if i in context.judge.rules:
            # Several answers are right: a distance from one of them proves nothing.
            continue
        dtype = str(expected.dtype)
        comparable = expected.dtype == got.dtype and expected.shape == got.shape
        # In float64 itself the truth is PyTorch's result again.
        if not comparable or not wrong.any() or dtype == "float64" or dtype not in PRECISION:
            continue
        if truth is None or truth.shape != expected.shape:
            continue
        yield _testimony(dtype, expected[wrong], got[wrong], truth[wrong], context.failure.backend)
        return


def _testimony(dtype: str, expected: Array, got: Array, truth: Array, backend: str) -> Testimony:
    ours, theirs = _near(dtype, expected, truth), _near(dtype, got, truth)
    with np.errstate(all="ignore"):
        our_error, their_error = (np.abs(v.astype(np.float64) - truth) for v in (expected, got))
        # An inexact result must not be confused with the other's kind of error.
        ours |= MUCH_NEARER * our_error < their_error
        has_half = their_error <= np.abs(truth) * 2.0 ** (-PRECISION[dtype] / 2)
        theirs |= has_half & ~(our_error <= MUCH_NEARER * their_error)
    facts = {
        "backend": backend,
        "pytorch_ulps": _ulps(dtype, expected, truth),
        "backend_ulps": _ulps(dtype, got, truth),
    }
    finding = Finding.CONTRADICTS if theirs.all() else Finding.INEXACT
    return Testimony(Role.FLOAT64, Finding.CONFIRMS if ours.all() else finding, "float64", facts)


def _near(dtype: str, values: Array, truth: Array) -> Mask:
    tolerance = tolerance_of(CLOSE, dtype)
    with np.errstate(all="ignore"):
        v, rounded = values.astype(np.float64), truth.astype(values.dtype).astype(np.float64)
    return np.asarray((v == rounded) | tolerance.accepts(truth, v))


def _ulps(dtype: str, values: Array, truth: Array) -> float | None:
    """Return the largest distance, in units in the last place of the truth; None for an infinity or NaN."""
    with np.errstate(all="ignore"):
        v = values.astype(np.float64)
        unlike = ~are_same(v, truth)
        if (unlike & ~(np.isfinite(v) & np.isfinite(truth))).any():
            return None
        _, exponent = np.frexp(np.abs(truth))
        unit = np.ldexp(1.0, exponent - PRECISION[dtype])
        return float(np.max(np.where(unlike, np.abs(v - truth) / unit, 0.0)))
