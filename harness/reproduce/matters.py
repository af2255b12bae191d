"""Find the properties that a minimal case's failure depends on: each is taken away alone.

A property matters if the case passes without it. If its loss gives another failure, or a call that PyTorch rejects,
it is not mentioned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

import torch

from harness.compare.verdict import Outcome
from harness.core.dtypes import is_float
from harness.core.invocation import Argument, Invocation, TensorSpec, describe
from harness.core.program import is_program
from harness.core.tensors import build_tensor
from harness.generate.sources.recorded import Replayed
from harness.reproduce import edits, reductions
from harness.reproduce.edits import (
    Domains,
    PlainNumber,
    Rewrite,
    allowed,
    contiguous,
    literal,
    numbers,
    replace_numbers,
    tensor_spec,
)
from harness.reproduce.plainness import DTYPES, alternatives
from harness.reproduce.reductions import everywhere_in, plainer_arguments
from harness.reproduce.shrinker import Test

#: From here on integers outgrow float32, and below the other float16 has no normal numbers.
_BIG, _TINY = 2**24, 2.0**-14


def matters(subject: Replayed, test: Test, domains: Domains) -> tuple[str, ...]:
    """Return a sentence per property that the failure of a minimal case depends on, arguments first.

    The budget of `test` limits the number of questions; `domains` are the values that the operator allows.
    """
    if test.original.outcome is Outcome.TIMEOUT or is_program(subject.invocation):
        return ()
    sentences = [*_given(subject, test), *_required(subject, test)]
    losses = [*_values(subject.invocation, domains), *_shapes(subject.invocation)]
    tried = [(sentence, [s for s in map(subject.changed, changes) if s is not None]) for sentence, changes in losses]
    passing = test.passing([s for _, ways in tried for s in ways])
    sentences += [sentence for sentence, ways in tried if ways and all(s.key in passing for s in ways)]
    return tuple(dict.fromkeys((*sentences, *_dtypes(subject, test))))


#: Sentence if the case passes without a property, and several reductions that remove it, each in another way: one alone
#: may hit on the right answer by chance.
_Loss: TypeAlias = tuple[str, Sequence[Rewrite]]


# Arguments


def _given(subject: Replayed, test: Test) -> Iterator[str]:
    """Optional arguments without which the case passes."""
    optional = edits.optional_arguments(subject.invocation.overload)
    given = [(n, a) for n, a in subject.invocation.arguments if n in optional]
    without = [subject.changed(partial(edits.omit_argument, name=n)) for n, _ in given]
    passing = test.passing([s for s in without if s is not None])
    for (name, argument), omitted in zip(given, without, strict=True):
        if omitted is None or omitted.key not in passing:
            continue
        if isinstance(argument, TensorSpec):
            yield f"fails with {name} given, not without it"
            continue
        others: Sequence[Argument] = []
        if type(argument) is int or type(argument) is float:
            # The default is known to pass.
            plain = (n for n in alternatives(name) if n not in (argument, optional[name]))
            others = [type(argument)(n) for n in plain][:5]
        tried = _replace_argument(subject, name, others)
        failing = {s.key for s in test.failing([s for _, s in tried])}
        spared = test.passing([s for _, s in tried])
        alike = [describe(a) for a, s in tried if s.key in failing][:2]
        unlike = [describe(a) for a, s in tried if s.key in spared][:2]
        # Left out, it has its default, which passes.
        default = optional[name]
        spared_by = unlike or ([describe(default)] if isinstance(default, bool | int | float | str) else [])
        passes = f"not with {_listed(spared_by)}" if spared_by else "not without it"
        yield f"fails with {name}={_listed([describe(argument), *alike])}; {passes}"


def _replace_argument(subject: Replayed, name: str, others: Sequence[Argument]) -> list[tuple[Argument, Replayed]]:
    """Return `subject` with each other value of an argument that it can have."""
    changed = [(o, subject.changed(partial(edits.replace_argument, name=name, argument=o))) for o in others]
    return [(other, s) for other, s in changed if s is not None]


def _required(subject: Replayed, test: Test) -> Iterator[str]:
    """Return arguments that must be given, and with other values of which the case passes."""
    optional = edits.optional_arguments(subject.invocation.overload)
    for name, argument in subject.invocation.arguments:
        if name in optional or isinstance(argument, TensorSpec):
            continue
        others: list[Argument] = [not argument] if isinstance(argument, bool) else []
        if type(argument) is int or type(argument) is float:
            others = [type(argument)(n) for n in alternatives(name)[:4] if n != argument]
        elif isinstance(argument, tuple) and not any(isinstance(item, TensorSpec) for item in argument):
            others = list(plainer_arguments(name, argument))[:4]
        tried = _replace_argument(subject, name, others)
        passing = test.passing([s for _, s in tried])
        unlike = list(dict.fromkeys(describe(o) for o, s in tried if s.key in passing))
        if unlike:
            yield f"fails with {name}={describe(argument)}, not with {_listed(unlike[:2])}"


# Values


def _values(invocation: Invocation, domains: Domains) -> Iterator[_Loss]:
    for path, spec in edits.tensors_of(invocation).items():
        rules = domains.get(path[0], ())
        before = numbers(spec)
        for words, has, others in _KINDS:
            held = [has(n) for n in before]
            changes = []
            for other in others:
                after = [
                    type(n)(other(n)) if h else n  # type: ignore[arg-type]
                    for n, h in zip(before, held, strict=True)
                ]
                if any(held) and allowed(rules, spec.dtype, after):
                    changes.append(partial(_written, path=path, after=after))
            if changes:
                yield f"fails only where {_shown(path)} {words}", changes


def _written(invocation: Invocation, path: edits.Path, after: Sequence[PlainNumber]) -> Invocation:
    spec = edits.tensors_of(invocation).get(path)
    # An exported case of other sizes keeps its values: they take no part in its export.
    if spec is None or len(numbers(spec)) != len(after):
        return invocation
    return edits.replace_tensors(invocation, {path: replace_numbers(spec, after)})


def _is_real(n: PlainNumber) -> bool:
    return isinstance(n, int | float) and not isinstance(n, bool)


def _is_float(n: PlainNumber) -> bool:
    return isinstance(n, float) and math.isfinite(n)


#: Class of values, its test, and a replacement.
_KINDS: tuple[tuple[str, Callable[..., bool], tuple[Callable[..., PlainNumber], ...]], ...] = (
    ("holds NaN", lambda n: isinstance(n, float) and math.isnan(n), (lambda n: 1, lambda n: 2)),
    ("holds an infinity", lambda n: isinstance(n, float) and math.isinf(n), (lambda n: math.copysign(1, n),)),
    ("holds −0.0", lambda n: n == 0 and isinstance(n, float) and math.copysign(1, n) < 0, (lambda n: 0,)),
    ("holds 0", lambda n: _is_real(n) and n == 0, (lambda n: 1, lambda n: 2, lambda n: 3)),
    ("holds True", lambda n: n is True, (lambda n: False,)),
    ("holds False", lambda n: n is False, (lambda n: True,)),
    ("holds a negative number", lambda n: _is_real(n) and n < 0, (abs, lambda n: abs(n) + 1)),
    (
        "holds a number of 2^24 or more in magnitude",
        lambda n: _is_real(n) and _BIG <= abs(n) < math.inf,
        (lambda n: math.copysign(2, n), lambda n: math.copysign(5, n)),
    ),
    (
        "holds a number below 2^-14 in magnitude",
        lambda n: _is_float(n) and 0 < abs(n) < _TINY,
        (lambda n: math.copysign(1, n), lambda n: math.copysign(0.25, n)),
    ),
    (
        "holds a fraction",
        lambda n: _is_float(n) and n != int(n) and abs(n) >= _TINY,
        (lambda n: math.copysign(max(1, round(abs(n))), n), lambda n: math.copysign(round(abs(n)) + 2, n)),
    ),
)


# Shapes and layouts


def _shapes(invocation: Invocation) -> Iterator[_Loss]:
    for path, spec in edits.tensors_of(invocation).items():
        name = _shown(path)
        dense = (edits.changing(path, contiguous),)
        if not spec.numel:
            filled = partial(edits.map_tensors, change=reductions.not_empty)
            yield f"fails only where {name} has a dimension of size 0", (filled,)
        if not spec.shape:
            yield f"fails only with a 0-d {name}", (edits.changing(path, reductions.vector),)
        if spec.numel and not spec.is_contiguous:
            word = "expanded" if 0 in spec.strides else "not contiguous"
            yield f"fails only where {name} is {word}", dense
        if spec.offset:
            yield f"fails only where {name} does not begin its storage", dense
    shapes = {spec.shape for spec in invocation.tensors()}
    listed = any(isinstance(argument, tuple) for _, argument in invocation.arguments)
    if len(shapes) > 1 and not listed:
        yield "fails only where tensors are broadcast", (_broadcast,)


def _broadcast(invocation: Invocation) -> Invocation | None:
    """Expand every tensor to the size that they broadcast to; return None if they do not broadcast."""
    specs = edits.tensors_of(invocation)
    try:
        whole = torch.broadcast_shapes(*(spec.shape for spec in specs.values()))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    return edits.replace_tensors(
        invocation, {p: tensor_spec(build_tensor(s).expand(whole), s.dtype) for p, s in specs.items()}
    )


# Dtypes


def _dtypes(subject: Replayed, test: Test) -> Iterator[str]:
    """Yield the dtypes in which the same values fail, if they pass in others."""
    main = subject.invocation.dtype
    others = [d for d in DTYPES if d != main and d != "bool" and (is_float(d) or not is_float(main))]
    written = subject.changed(partial(edits.map_tensors, change=literal))
    changed = [(d, written and written.changed(partial(everywhere_in, before=main, after=d))) for d in others]
    tried = [(d, s) for d, s in changed if s is not None]
    failing = {s.key for s in test.failing([s for _, s in tried])}
    passing = test.passing([s for _, s in tried])
    spared = [d for d, s in tried if s.key in passing]
    if spared:
        guilty = [main, *(d for d, s in tried if s.key in failing)]
        yield f"fails in {_listed(guilty)}, not in {_listed(spared)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _shown(path: edits.Path) -> str:
    name, place = path
    return name if place is None else f"{name}[{place}]"
