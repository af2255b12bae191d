"""What a minimal case's failure depends on: each of its properties is taken away alone.

A property matters where the case passes without it. One whose loss gives another failure, or a call that
PyTorch rejects, is not spoken of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.analyse.shrink import paths, sizes
from harness.analyse.shrink.domains import Domains, allowed
from harness.analyse.shrink.evaluate import LETHAL, Test
from harness.analyse.shrink.plainness import DTYPES, alternatives
from harness.analyse.shrink.steps import Rewrite, everywhere_in, plainer_arguments
from harness.analyse.shrink.subject import ShrinkSubject
from harness.analyse.shrink.tensor_edits import (
    PlainNumber,
    contiguous,
    literal,
    numbers,
    of_tensor,
    with_numbers,
)
from harness.compare import Outcome
from harness.core import Argument, Invocation, TensorSpec, build_tensor, describe, is_float

#: From here on integers outgrow float32, and below the other float16 has no normal numbers.
_BIG, _TINY = 2**24, 2.0**-14


@dataclass(frozen=True)
class _Loss:
    """One property taken away.

    Attributes:
        sentence: What is said where the case passes then, whatever took its place.
        changes: Take it away, each in another way: one alone may hit on the right answer by chance.
    """

    sentence: str
    changes: tuple[Rewrite, ...]


def matters(subject: ShrinkSubject, test: Test, domains: Domains) -> tuple[str, ...]:
    """A sentence per property that the failure depends on, arguments first.

    Args:
        subject: A minimal case.
        test: Whether another case fails in the same way; its budget limits what is asked.
        domains: The values that the operator allows.
    """
    if test.target.outcome is Outcome.TIMEOUT:
        return ()
    said = [*_given(subject, test), *_required(subject, test)]
    losses = [*_values(subject.invocation, domains), *_shapes(subject.invocation)]
    changed = [(loss, [subject.changed(change) for change in loss.changes]) for loss in losses]
    tried = [(loss, [s for s in ways if s is not None]) for loss, ways in changed]
    passing = _passing([s for _, ways in tried for s in ways], test)
    said += [loss.sentence for loss, ways in tried if ways and all(s.key in passing for s in ways)]
    return tuple(dict.fromkeys((*said, *_dtypes(subject, test))))


def _passing(subjects: Sequence[ShrinkSubject], test: Test) -> set[tuple[str, str]]:
    together = test.target.outcome not in LETHAL
    found = test.evaluator.verdicts(subjects, together=together)
    return {
        s.key for s, v in zip(subjects, found, strict=True) if v is not None and v.outcome is Outcome.PASS
    }


# Arguments


def _given(subject: ShrinkSubject, test: Test) -> Iterator[str]:
    """Optional arguments without which the case passes."""
    invocation = subject.invocation
    optional = paths.optional(invocation.overload)
    given = [(n, a) for n, a in invocation.arguments if n in optional]
    without = [subject.changed(lambda i, n=n: paths.without_argument(i, n)) for n, _ in given]  # type: ignore[misc]
    passing = _passing([s for s in without if s is not None], test)
    for (name, argument), omitted in zip(given, without, strict=True):
        if omitted is None or omitted.key not in passing:
            continue
        if isinstance(argument, TensorSpec):
            yield f"fails only with {name} given"
            continue
        others = _others(subject, name, argument)
        failing = {s.key for s in test.failing([s for _, s in others])}
        spared = _passing([s for _, s in others], test)
        alike = [describe(a) for a, s in others if s.key in failing][:2]
        unlike = [describe(a) for a, s in others if s.key in spared][:2]
        more = [f"also {_listed(alike)}"] if alike else []
        more += [f"not {_listed(unlike)}"] if alike and unlike else []
        yield f"fails only with {name}={describe(argument)}" + (f" ({', '.join(more)})" if more else "")


def _others(subject: ShrinkSubject, name: str, argument: Argument) -> list[tuple[Argument, ShrinkSubject]]:
    """Other numbers for an optional argument, its default not among them."""
    if type(argument) is not int and type(argument) is not float:
        return []
    default = paths.schema_argument(subject.invocation.overload, name).default_value
    tried = [type(argument)(n) for n in alternatives(name) if n not in (argument, default)]
    changed = [
        (n, subject.changed(lambda i, n=n: paths.with_argument(i, name, n)))  # type: ignore[misc]
        for n in tried[:5]
    ]
    return [(n, s) for n, s in changed if s is not None]


def _required(subject: ShrinkSubject, test: Test) -> Iterator[str]:
    """Arguments that must be given and with other values of which the case passes."""
    invocation = subject.invocation
    optional = paths.optional(invocation.overload)
    for name, argument in invocation.arguments:
        if name in optional or isinstance(argument, TensorSpec):
            continue
        others: list[Argument] = [not argument] if isinstance(argument, bool) else []
        if type(argument) is int or type(argument) is float:
            others = [type(argument)(n) for n in alternatives(name)[:4] if n != argument]
        elif isinstance(argument, tuple) and not any(isinstance(item, TensorSpec) for item in argument):
            others = list(plainer_arguments(name, argument))[:4]
        changed = [
            (other, subject.changed(lambda i, name=name, other=other: paths.with_argument(i, name, other)))  # type: ignore[misc]
            for other in others
        ]
        passing = _passing([s for _, s in changed if s is not None], test)
        unlike = list(dict.fromkeys(describe(o) for o, s in changed if s is not None and s.key in passing))
        if unlike:
            yield f"fails with {name}={describe(argument)}, not with {_listed(unlike[:2])}"


# Values


def _values(invocation: Invocation, domains: Domains) -> Iterator[_Loss]:
    for path, spec in paths.tensors(invocation).items():
        rules = domains.get(path[0], ())
        before = numbers(spec)
        for words, has, others in _KINDS:
            held = [has(n) for n in before]
            changes = []
            for other in others:
                after = [_like(n, other(n)) if h else n for n, h in zip(before, held, strict=True)]
                if any(held) and allowed(rules, spec.dtype, after):
                    changes.append(_writing(path, after))
            if changes:
                yield _Loss(f"fails only where {_shown(path)} {words}", tuple(changes))


def _writing(path: paths.Path, after: Sequence[PlainNumber]) -> Rewrite:
    return lambda invocation: _written(invocation, path, after)


def _written(invocation: Invocation, path: paths.Path, after: Sequence[PlainNumber]) -> Invocation | None:
    spec = paths.tensors(invocation).get(path)
    # An exported case of other sizes keeps its values: they take no part in its export.
    if spec is None or len(numbers(spec)) != len(after):
        return invocation
    return paths.with_tensors(invocation, {path: with_numbers(spec, after)})


def _like(number: PlainNumber, other: PlainNumber) -> PlainNumber:
    return type(number)(other)  # type: ignore[arg-type]


def _is_real(n: PlainNumber) -> bool:
    return isinstance(n, int | float) and not isinstance(n, bool)


def _is_float(n: PlainNumber) -> bool:
    return isinstance(n, float) and math.isfinite(n)


#: What a value is, how to tell, and what stands in for it.
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
    for path, spec in paths.tensors(invocation).items():
        name = _shown(path)
        if not spec.numel:
            yield _Loss(
                f"fails only where {name} has a dimension of size 0",
                (lambda i: paths.map_tensors(i, sizes.not_empty),),
            )
        if not spec.shape:
            yield _Loss(f"fails only with a 0-d {name}", (_changing(path, sizes.vector),))
        if spec.numel and not spec.is_contiguous:
            word = "expanded" if 0 in spec.strides else "not contiguous"
            yield _Loss(f"fails only where {name} is {word}", (_changing(path, contiguous),))
        if spec.offset:
            yield _Loss(f"fails only where {name} does not begin its storage", (_changing(path, contiguous),))
    shapes = {spec.shape for spec in invocation.tensors()}
    listed = any(isinstance(argument, tuple) for _, argument in invocation.arguments)
    if len(shapes) > 1 and not listed:
        yield _Loss("fails only where tensors are broadcast", (_broadcast,))


def _changing(path: paths.Path, change: Callable[[TensorSpec], TensorSpec]) -> Rewrite:
    def changed(invocation: Invocation) -> Invocation | None:
        spec = paths.tensors(invocation).get(path)
        return None if spec is None else paths.with_tensors(invocation, {path: change(spec)})

    return changed


def _broadcast(invocation: Invocation) -> Invocation | None:
    """Every tensor at the size that they broadcast to; None where they do not."""
    specs = paths.tensors(invocation)
    try:
        whole = torch.broadcast_shapes(*(spec.shape for spec in specs.values()))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    return paths.with_tensors(
        invocation, {p: of_tensor(build_tensor(s).expand(whole), s.dtype) for p, s in specs.items()}
    )


# Dtypes


def _dtypes(subject: ShrinkSubject, test: Test) -> Iterator[str]:
    """In which dtypes the same values fail, where they pass in others."""
    main = subject.invocation.dtype
    others = [d for d in DTYPES if d != main and d != "bool" and (is_float(d) or not is_float(main))]
    written = subject.changed(lambda i: paths.map_tensors(i, literal))
    changed = [(d, written and written.changed(lambda i, d=d: everywhere_in(i, main, d))) for d in others]  # type: ignore[misc]
    tried = [(d, s) for d, s in changed if s is not None]
    failing = {s.key for s in test.failing([s for _, s in tried])}
    passing = _passing([s for _, s in tried], test)
    spared = [d for d, s in tried if s.key in passing]
    if spared:
        guilty = [main, *(d for d, s in tried if s.key in failing)]
        yield f"fails in {_listed(guilty)}, not in {_listed(spared)}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _shown(path: paths.Path) -> str:
    name, place = path
    return name if place is None else f"{name}[{place}]"
