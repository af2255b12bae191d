"""Draw shapes, tensors, dims, numbers and choices for an operator case.

A case reads as a description of valid arguments. Everything is drawn from small finite choices, simplest
first, which keeps draws the same on every machine and lets Hypothesis shrink them. Each choice tells the
stream of choices where in the operator case it is made, so that a collection of cases makes every choice in
turn (`harness.generate.provider`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from harness.core.dtypes import FLOATS, INTS, PARTS, WIDE_UNSIGNED, is_float, is_integer
from harness.core.invocation import Enumerated, Recipe, TensorSpec, contiguous_strides
from harness.core.styles import STYLE_WEIGHTS
from harness.generate import provider, scalars, shapes
from harness.generate.shapes import MAX_ELEMENTS

if TYPE_CHECKING:
    from harness.core.onnx_operators import OnnxSchema

T = TypeVar("T")

#: The name of a value domain and its parameters.
Domain: TypeAlias = tuple[str | int | float, ...]
Number: TypeAlias = bool | int | float | complex
# `Draw` has methods named `int` and `float`, which hide the types within it.
Int: TypeAlias = int
Float: TypeAlias = float


class _Omit:
    def __repr__(self) -> str:
        return "OMIT"


#: An argument left to its default by not being given, as opposed to given as its default.
OMIT: Any = _Omit()

ANY = ("any",)
FINITE = ("finite",)
NONZERO = ("nonzero",)
DISTINCT = ("distinct",)


def index_into(size: int, *, negative: bool = False) -> tuple[str, int]:
    """Domain of indices into a dimension of `size`; with `negative`, from −size."""
    return ("signed_index" if negative else "index", size)


def between(low: float, high: float) -> tuple[str, float, float]:
    """Domain of numbers in [low, high]."""
    return ("range", low, high)


def unique_below(size: int, run: int) -> tuple[str, int, int]:
    """Domain of indices in [0, size), distinct within each `run` consecutive storage elements."""
    return ("unique", size, run)


def ascending(run: int) -> tuple[str, int]:
    """Domain of numbers sorted within each `run` consecutive storage elements."""
    return ("ascending", run)


class Draw:
    """Draws the parts of one invocation.

    Args:
        below: Returns a number from 0 to below a bound.

    Attributes:
        dtype: The dtype this invocation is about; tensors take it by default.
        schema: The schema of an ONNX operator, whose tensors are all row-major; None for an operator of PyTorch.
        about: A label for draws that share a line of code with other draws: choices with different labels are
            spread separately.
    """

    def __init__(self, below: Callable[[Int], Int], dtype: str, schema: OnnxSchema | None = None) -> None:
        self._below = below
        self.dtype = dtype
        self.schema = schema
        self.about = ""
        self._visits: Counter[object] = Counter()

    def _index(self, bound: Int, options: Sequence[object] = ()) -> Int:
        """Return a number below `bound`, spread over the collection by the line of code that asks."""
        if bound == 1:
            return 0
        frame = sys._getframe(2)
        near = (id(frame.f_code), frame.f_lasti)
        while frame.f_code.co_filename in _OWN_FILES and frame.f_back is not None:
            frame = frame.f_back
        site = (near, id(frame.f_code), frame.f_lasti, self.about)
        self._visits[site] += 1
        # By their text, since True and 1.0 equal 1.
        provider.at((site, self._visits[site]), [repr(option) for option in options])
        return self._below(bound)

    # Choices

    def choose(self, *options: T) -> T:
        """Choose one of `options`, the first being the plainest; repeat one to make it likelier."""
        return options[self._index(len(options), options)]

    def integer(self, low: Int, high: Int) -> Int:
        """Choose an integer in [low, high], shrinking towards `low`."""
        return low + self._index(high - low + 1)

    def boolean(self) -> bool:
        """True or False."""
        return self._index(2) == 1

    def flag(self) -> Any:
        """Choose 1, 0 or OMIT for an attribute that switches something."""
        return self.choose(1, 0, OMIT)

    def order(self, count: Int) -> list[Int]:
        """Draw the numbers below `count` in any order."""
        left = list(range(count))
        return [left.pop(self._index(len(left))) for _ in range(count)]

    def maybe(self, make: Callable[[], T], *, none: bool = False) -> T | Any:
        """Return `make()` or OMIT (with `none` also an explicit None)."""
        kind = self.choose("omit", "given", "given", *(("none",) if none else ()))
        return make() if kind == "given" else None if kind == "none" else OMIT

    # Shapes and dims

    def size(self, low: Int = 0, high: Int = 33) -> Int:
        """Choose a dimension's size in [low, high], tails of vector widths included."""
        return self.choose(*shapes.sizes(low, high))

    def map_size(self) -> Int:
        """Choose a size of a real feature map, for a dimension that is divided, multiplied or counted in windows; the
        other sizes of its tensor should be tiny."""
        return self.choose(*shapes.MAP_SIZES)

    def shape(self, min_rank: Int = 0, max_rank: Int = 5, *, min_size: Int = 0, max_size: Int = 65) -> tuple[Int, ...]:
        """Choose a shape of a small tensor."""
        return shapes.shape(self, min_rank, max_rank, min_size, max_size)

    def broadcastable(self, shape: Sequence[Int]) -> tuple[Int, ...]:
        """Choose a shape that broadcasts with `shape` to `shape`."""
        return shapes.broadcastable_to(self, shape)

    def dim(self, rank: Int) -> Int:
        """Choose a valid `dim` for `rank` dimensions, negative in half of the draws; 0 or −1 for a 0-d tensor."""
        rank = max(rank, 1)
        return self.integer(0, rank - 1) - (rank if self.boolean() else 0)

    def dims(self, rank: Int, *, min_count: Int = 0, max_count: Int | None = None) -> list[Int]:
        """Distinct valid dims in any order, each positive or negative; may be empty."""
        rank = max(rank, 1)
        count = self.integer(min(min_count, rank), min(rank, rank if max_count is None else max_count))
        order = self.order(rank)[:count]
        return [d - (rank if self.boolean() else 0) for d in order]

    # Values

    def number(self, *, edges: bool = False) -> Number:
        """Return a Scalar of any Python type (promotion), for bool and integer dtypes too. Only complex dtypes get
        complex numbers, since those promote any other dtype.

        A wide unsigned integer dtype gets a float: few of its kernels accept an integer.
        """
        if self.dtype in WIDE_UNSIGNED:
            return self.float(edges=edges)
        about, self.about = self.about, f"{self.about} {self.dtype}"
        number = scalars.draw_number(self, edges=edges)
        self.about = about
        return number

    def float(self, *, edges: bool = False) -> Float:
        """Choose a Python float."""
        return self.choose(*scalars.floats(edges=edges))

    def int(self, *, edges: bool = False) -> Int:
        """Choose a Python int."""
        return self.choose(*scalars.ints(edges=edges))

    def fitting(self, dtype: str | None = None) -> Number:
        """Choose a Scalar of any Python type that converts to `dtype`, the invocation's by default, without
        overflow."""
        return self.choose(*scalars.fitting(dtype or self.dtype))

    def like_dtype(self, *, edges: bool = False) -> Number:
        """Choose a Scalar of the kind of the invocation's dtype: no promotion."""
        if is_float(self.dtype):
            return self.float(edges=edges)
        if self.dtype in PARTS:
            return self.choose(*scalars.telling(self.dtype))
        return self.boolean() if self.dtype == "bool" else self.int()

    def tensor(
        self,
        shape: Sequence[Int],
        dtype: str | None = None,
        domain: tuple[str | Int | Float, ...] = ANY,
        *,
        contiguous: bool = False,
    ) -> TensorSpec:
        """Return a tensor of `shape`.

        Args:
            shape: Sizes.
            dtype: The dtype; None for the invocation's.
            domain: The allowed values: one of `harness.core.values.DOMAINS` with its parameters.
            contiguous: Row-major always; otherwise permuted, stepped, expanded and offset layouts occur.
                In domains that constrain runs of elements (`unique_below`, `ascending`) runs stay together.
        """
        shape = tuple(shape)
        strides, offset = (contiguous_strides(shape), 0)
        contiguous = contiguous or self.schema is not None
        if not contiguous and domain[0] in _RUNS:
            matrix = domain[0] == "dominant"
            run = Int(domain[_RUNS[str(domain[0])]])
            strides, offset = shapes.layout_of_runs(self, shape, run**2 if matrix else run, square=matrix)
        elif not contiguous:
            strides, offset = shapes.layout(self, shape)
        # A few elements hold a special value rarely, and of integers several styles are plain.
        rarely = prod(shape) <= _FEW or is_integer(dtype or self.dtype)
        style = self.choose(*STYLE_WEIGHTS, *(_SPECIAL if rarely else ()))
        # Two small draws make a seed: Hypothesis spends its effort on structure, not on the seed.
        seed = self.integer(0, 1023) * 1024 + self.integer(0, 1023)
        return TensorSpec(shape, dtype or self.dtype, strides, offset, Recipe(domain, style, seed))

    def any_tensor(self, min_rank: Int = 0, max_rank: Int = 5, *, min_size: Int = 0) -> TensorSpec:
        """Draw a tensor of the invocation's dtype with any shape and any values."""
        return self.tensor(self.shape(min_rank, max_rank, min_size=min_size))

    def operands(
        self,
        *names: str,
        promote: Sequence[str] = (),
        domains: Mapping[str, tuple[str | Int | Float, ...]] | None = None,
        max_rank: Int = 5,
    ) -> dict[str, TensorSpec]:
        """Draw tensors that broadcast together: one of them to the other, or each to the other.

        Args:
            names: Argument names, in order.
            promote: Dtypes that one of them may have in place of the invocation's, if any.
            domains: Argument name → which values are allowed; any by default.
            max_rank: Highest rank of the common shape.
        """
        shape = self.shape(max_rank=max_rank)
        odd = self.choose(*names) if promote and self.integer(0, 2) == 2 else None
        if self.dtype in WIDE_UNSIGNED:
            odd = None
        return {
            name: self.tensor(
                lacking,
                self.choose(*promote) if name == odd else self.dtype,
                (domains or {}).get(name, ANY),
            )
            for name, lacking in zip(names, shapes.broadcasting(self, shape, len(names)), strict=True)
        }

    # Dtypes

    def other_dtype(self, *choices: str) -> str:
        """Choose a dtype for a second tensor: mostly the invocation's own, else one of `choices` (promotion)."""
        if self.dtype in WIDE_UNSIGNED:
            return self.dtype
        return self.choose(self.dtype, self.dtype, self.dtype, *(choices or (*FLOATS[:3], *INTS[:2], "bool")))

    def dtype_argument(self, *names: str) -> Enumerated:
        """Choose a `dtype` argument, one of `names`."""
        return Enumerated("dtype", self.choose(*names))


#: Elements of a bias, a weight for each class, a scale; and styles that are drawn in addition where special
#: values would be rare.
_FEW = 8
_SPECIAL = ("one", "one", "special", "special", "special", "special")
#: Domains that speak of runs of elements → where their length is among the domain's parameters.
_RUNS = {"unique": 2, "ascending": 1, "descending": 1, "countdown": 1, "dominant": 1, "pivots": 1}
#: Files whose functions draw on behalf of an operator case.
_OWN_FILES = frozenset(function.__code__.co_filename for function in (Draw.choose, shapes.shape, scalars.draw_number))


__all__ = [
    "ANY",
    "DISTINCT",
    "FINITE",
    "MAX_ELEMENTS",
    "NONZERO",
    "OMIT",
    "Draw",
    "ascending",
    "between",
    "index_into",
    "unique_below",
]
