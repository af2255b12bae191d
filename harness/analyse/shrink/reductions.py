"""A Hypothesis strategy over the reductions of an invocation.

Hypothesis shrinks every choice towards the first alternative, so each list of alternatives has the plainest
first and what the invocation has last. `original` makes Hypothesis begin with the last of each, which is
the invocation itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS

from harness.analyse.shrink import paths
from harness.analyse.shrink.domains import Domains, allowed, keeps_values
from harness.analyse.shrink.plainness import alternatives
from harness.analyse.shrink.sizes import shrunk, ties
from harness.analyse.shrink.steps import (
    everywhere_in,
    plainer_arguments,
    plainer_dtypes,
    plainer_elements,
    plainer_everywhere,
)
from harness.analyse.shrink.tensor_edits import (
    PlainNumber,
    compact,
    contiguous,
    is_plain_layout,
    literal,
    numbers,
    with_numbers,
)
from harness.core import Argument, Invocation, TensorSpec
from harness.generate import StableProvider

#: A Hypothesis backend, for `settings(backend=…)`.
ORIGINAL = "harness-original"
#: Elements of a tensor that are chosen one by one.
_ELEMENTS = 16
#: Alternatives of one argument: each is a choice that Hypothesis tries to lower.
_ALTERNATIVES = 24

_OMITTED = object()


class OriginalProvider(StableProvider):
    """Chooses the last alternative always."""

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **_: object) -> int:
        """The end of the range."""
        return max_value if max_value is not None else (min_value or 0)


AVAILABLE_PROVIDERS[ORIGINAL] = f"{__name__}.{OriginalProvider.__name__}"


def reductions(original: Invocation, domains: Domains) -> st.SearchStrategy[Invocation]:
    """Invocations plainer than `original` in any combination of ways, `original` itself among them.

    Args:
        original: Its tensors' values written out.
        domains: The values that its operator allows.
    """

    @st.composite
    def strategy(draw: st.DrawFn) -> Invocation:
        invocation = original
        for name, argument in original.arguments:
            chosen = draw(st.sampled_from(_alternatives(original.overload, name, argument)))
            if chosen is _OMITTED:
                invocation = paths.without_argument(invocation, name)
            else:
                invocation = paths.with_argument(invocation, name, chosen)  # type: ignore[arg-type]
        invocation = _smaller(draw, invocation)
        for dtype in dict.fromkeys(spec.dtype for spec in invocation.tensors()):
            chosen_dtype = draw(st.sampled_from((*plainer_dtypes(dtype), dtype)))
            invocation = everywhere_in(invocation, dtype, chosen_dtype) or invocation
        for path, spec in paths.tensors(invocation).items():
            layouts = () if is_plain_layout(spec) else (contiguous(spec), compact(spec))
            laid = draw(st.sampled_from((*layouts, spec)))
            valued = _plainer_values(draw, laid, domains.get(path[0], ()))
            invocation = paths.with_tensors(invocation, {path: valued})
        return invocation

    return strategy()


def _alternatives(overload: str, name: str, argument: Argument) -> Sequence[object]:
    plainer: list[object] = [_OMITTED] if name in paths.optional(overload) else []
    if type(argument) is int or type(argument) is float:
        # One argument may get less plain where another gets plainer for it.
        plainer += [type(argument)(n) for n in alternatives(name) if n != argument]
    elif not isinstance(argument, TensorSpec):
        plainer += list(plainer_arguments(name, argument))[:_ALTERNATIVES]
    return (*plainer, argument)


def _smaller(draw: st.DrawFn, invocation: Invocation) -> Invocation:
    for tied in ties(invocation):
        path, dim = min(tied, key=str)
        spec = paths.tensors(invocation).get(path)
        if spec is None or dim >= len(spec.shape):
            continue
        size = spec.shape[dim]
        count = draw(st.integers(min(1, size), size))
        first = draw(st.integers(0, size - count))
        if count < size:
            invocation = shrunk(invocation, tied, range(first, first + count)) or invocation
    return invocation


def _plainer_values(
    draw: st.DrawFn, spec: TensorSpec, rules: Sequence[tuple[str | int | float, ...]]
) -> TensorSpec:
    spec = literal(spec)
    before = numbers(spec)
    if keeps_values(rules) or not before:
        return spec
    options = [v for v in plainer_everywhere(spec.dtype, before) if allowed(rules, spec.dtype, v)]
    after: tuple[PlainNumber, ...] = draw(st.sampled_from((*options, before)))
    if after is before and len(before) <= _ELEMENTS:
        after = tuple(
            draw(st.sampled_from((*(v for v in plainer_elements(n) if allowed(rules, spec.dtype, (v,))), n)))
            for n in before
        )
    return with_numbers(spec, after) if allowed(rules, spec.dtype, after) else spec
