"""Programs of several calls, drawn around the patterns that optimisers of exporters and runtimes look for.

A pattern is one function under the decorator `pattern`, in ``cases/programs/`` or in any file of a user's:

    @pattern("relu-clip", source="onnxruntime/core/optimizer/relu_clip_fusion.cc")
    def relu_clip(p: ProgramDraw) -> list[Result]:
        y = p.call("aten.relu.default", self=p.input((2, 3)))
        return [p.call("aten.clamp.default", self=y, min=p.choose(0.0, -1.0), max=6.0)]

It draws the whole pattern with some part different, and returns the program's results.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from random import Random
from typing import Any, TypeVar

from harness.core.control_flow import is_flow_operator
from harness.core.invocation import (
    PROGRAM,
    Argument,
    Enumerated,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
    contiguous_strides,
)
from harness.core.plugins import definition_place
from harness.core.tensors import argument_names, draws_at_random, overload
from harness.generate.case_library import load_cases
from harness.generate.draw import ANY, OMIT, Domain, Draw
from harness.generate.draws import draw_invocation

T = TypeVar("T")

#: The dtypes that programs are drawn in; the first is the likeliest.
DTYPES = ("float32", "float32", "float32", "float16", "float64")
#: How values are chosen, the likeliest first.
_STYLES = ("plain", "plain", "plain", "mixed", "wide")
#: Seeds of values are below this.
SEEDS = 2**31 - 1
#: How often a choice is as usual in a program that is nearly usual.
_USUAL = 5 / 6


class ProgramDraw:
    """Draws a program, call by call.

    Args:
        random: The generator that makes every choice.
        dtype: Dtype of tensors that name none.
    """

    def __init__(self, random: Random, dtype: str) -> None:
        self._random = random
        self.dtype = dtype
        self.calls: list[Invocation] = []
        self._holds_all = random.random() < 2 / 3
        #: In half of the programs nearly everything is usual, so that an optimiser takes them for its pattern.
        self._is_nearly_usual = random.random() < 1 / 2
        #: Shape and dtype → the input that all calls for one share; None if each gets its own.
        self.shared: dict[tuple[tuple[int, ...], str], TensorSpec] | None = None
        #: A result and its shape, of dtype `dtype`, that the next input is made of.
        self.source: tuple[Result, tuple[int, ...]] | None = None

    def choose(self, *options: T) -> T:
        """Choose one of the options; repeat one to make it likelier."""
        return self._random.choice(options)

    def usually(self, usual: T, *others: T) -> T:
        """Return the form that optimisers look for, or another; half of the programs rarely take another."""
        if self._is_nearly_usual and self._random.random() < _USUAL:
            return usual
        return self._random.choice((usual, *others))

    def below(self, bound: int) -> int:
        """Choose a number below `bound`, from 0."""
        return self._random.randrange(bound)

    def integer(self, low: int, high: int) -> int:
        """Choose an integer in [low, high]."""
        return self._random.randint(low, high)

    def sometimes(self) -> bool:
        """True once in three times."""
        return self._random.random() < 1 / 3

    def input(self, shape: Sequence[int], dtype: str | None = None, domain: Domain = ANY) -> TensorSpec | Result:
        """Add an input of the program, row-major; calls that are given it twice take the same.

        Where the pattern is drawn a second time, it may be one that the first has drawn. Where the pattern follows
        another, it may be made of that one's result.
        """
        shape, dtype = tuple(shape), dtype or self.dtype
        if self.source is not None and dtype == self.dtype and domain == ANY and 0 not in shape:
            return self._resized_source(shape)
        style = self._random.choice(_STYLES) if domain == ANY else "plain"
        recipe = Recipe(tuple(domain), style, self._random.randrange(SEEDS))
        found = TensorSpec(shape, dtype, contiguous_strides(shape), 0, recipe)
        return found if self.shared is None else self.shared.setdefault((shape, dtype), found)

    def _resized_source(self, shape: tuple[int, ...]) -> Result:
        """Return the elements of `source` in another shape, repeated or cut."""
        assert self.source is not None
        (value, given), self.source = self.source, None
        if given == shape:
            return value
        missing, value = prod(shape) - prod(given), self.call("aten.reshape.default", self=value, shape=[-1])
        if missing > 0:
            value = self.call("aten.repeat.default", self=value, repeats=[-(-prod(shape) // prod(given))])
        if missing and prod(shape) % prod(given):
            value = self.call("aten.slice.Tensor", self=value, dim=0, start=0, end=prod(shape))
        return self.call("aten.reshape.default", self=value, shape=[*shape])

    def weight(self, shape: Sequence[int], dtype: str | None = None, domain: Domain = ("finite",)) -> Weight:
        """Add a weight that the program holds, of everyday numbers."""
        shape = tuple(shape)
        recipe = Recipe(tuple(domain), "plain", self._random.randrange(SEEDS))
        return Weight(TensorSpec(shape, dtype or self.dtype, contiguous_strides(shape), 0, recipe))

    def given(self, values: Sequence[float], shape: Sequence[int], dtype: str | None = None) -> Weight:
        """Add a weight of these numbers."""
        shape = tuple(shape)
        return Weight(TensorSpec(shape, dtype or self.dtype, contiguous_strides(shape), 0, Literal(tuple(values))))

    def number(self, value: float, shape: Sequence[int] = (), dtype: str | None = None) -> Weight:
        """Add a weight all of whose elements are one number."""
        return self.given([value] * prod(shape), shape, dtype)

    def operand(self, shape: Sequence[int], domain: Domain = ("finite",)) -> TensorSpec | Result | Weight:
        """Add a weight, or sometimes an input in its place; in most programs all of them are weights."""
        given = not self._holds_all and self.choose(True, False)
        return self.input(shape, domain=domain) if given else self.weight(shape, domain=domain)

    def any_call(self) -> Invocation:
        """Draw a call of some operator, mostly of one that models call; `call` adds it, or a change of it."""
        used, others = _plain_operators()
        case = load_cases()[self._random.choice(used if self.below(4) else others)]
        dtype = self.dtype if self.dtype in case.dtypes else self._random.choice(case.dtypes)
        return draw_invocation(Draw(self.below, dtype), case)

    def call(self, name: str, /, **arguments: Any) -> Result:
        """Add a call of an overload, and return its result, or its first result.

        Raises:
            LookupError: PyTorch has no such overload.
        """
        schema = argument_names(name)
        given = {n: _argument(v) for n, v in arguments.items() if v is not OMIT}
        unknown = given.keys() - set(schema)
        if unknown:
            raise LookupError(f"{name} has no argument {sorted(unknown)[0]!r}")
        self.calls.append(Invocation(name, tuple((n, given[n]) for n in schema if n in given)))
        return Result(len(self.calls) - 1)


@cache
def _plain_operators() -> tuple[Sequence[str], Sequence[str]]:
    """Return the operators whose results can be judged within a program: those that models call, and the others.

    A program is judged by what roundings may change, without the rules of single operators.
    """
    names: tuple[list[str], list[str]] = ([], [])
    for name, case in sorted(load_cases().items()):
        judge = case.judge
        has_rules = judge.rules or judge.undefined or judge.unsettled or judge.exact_reals or judge.unused_outputs
        if case.converted and not has_rules and not is_flow_operator(name):
            schema = overload(name)._schema
            is_random = draws_at_random(Invocation(name, ()))
            if not schema.is_mutable and not is_random and str(schema.returns[0].type) == "Tensor":
                names[not case.used].append(name)
    return names


def _argument(value: Any) -> Argument:
    return tuple(map(_argument, value)) if isinstance(value, list | tuple) else value


def dtype_of(name: str) -> Enumerated:
    """Return a dtype as an argument."""
    return Enumerated("dtype", name)


@dataclass(frozen=True)
class Pattern:
    """A registered pattern.

    Attributes:
        name: The name after ``--pattern``.
        draw: Draws the calls and returns the program's results.
        source: The rule or transformer that looks for it.
        dynamic: Whether it tests something only if sizes are dynamic.
        share: Number of cases that a run draws, as a multiple of the usual number.
    """

    name: str
    draw: Callable[[ProgramDraw], Sequence[Result]]
    source: str
    dynamic: bool = False
    share: float = 1.0

    @property
    def overload(self) -> str:
        """Return the name for the record's column of operators."""
        return PROGRAM + self.name


#: Filled at import by `pattern`.
PATTERNS: dict[str, Pattern] = {}
#: The package of patterns that is released with the harness, found by its name.
HOME = "cases.programs"

_Draw = TypeVar("_Draw", bound=Callable[[ProgramDraw], Sequence[Result]])


def pattern(name: str, *, source: str, dynamic: bool = False, share: float = 1.0) -> Callable[[_Draw], _Draw]:
    """Register the decorated function as the pattern `name`; see `Pattern`.

    Raises:
        ValueError: Another pattern has this name.
    """

    def register(draw: _Draw) -> _Draw:
        known = PATTERNS.get(name)
        if known is not None and definition_place(known.draw) != definition_place(draw):
            raise ValueError(f"pattern {name!r} is registered twice")
        PATTERNS[name] = Pattern(name, draw, source, dynamic, share)
        return draw

    return register


@cache
def load_patterns() -> Mapping[str, Pattern]:
    """Import every family of patterns; overload → pattern, sorted by name."""
    package = importlib.import_module(HOME)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{HOME}.{module.name}")
    return {found.overload: found for _, found in sorted(PATTERNS.items())}
