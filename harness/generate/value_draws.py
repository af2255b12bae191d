"""The values that a structure is drawn again with: by classes that speak of the whole call.

Which classes, numbers and patterns come is not left to chance: each is chosen that has met the fewest of the
structure's dtypes and attribute values, so that a collection of few structures has most pairs of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import TypeAlias

from harness.core.dtypes import is_integer
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec, describe
from harness.core.onnx_operators import find_schema, is_onnx_operator
from harness.core.tensors import argument_names, overload
from harness.generate.provider import ChoiceStream, Covering

#: Domains of tensors that hold data, with special values as far as the domain allows them.
_DATA = ("any", "finite", "at_least", "nonzero", "range", "ascending", "descending")
_INDEX = ("index", "signed_index", "index_or")

#: Option → how often, in proportion.
Weights: TypeAlias = Mapping[str, int]

#: Classes of the first further draw of a structure, of the second, of the third; then anew.
_CLASSES: tuple[Weights, ...] = (
    Counter({"facing": 5, "chance": 2, "structured": 1}),
    Counter({"alone": 4, "ordinary": 1}),
    Counter({"structured": 5, "same": 1, "multiples": 1}),
)
#: Where the call has Scalars, which elements may equal.
_BESIDE_SCALARS: tuple[Weights, ...] = (
    _CLASSES[0],
    Counter({"alone": 2, "near": 1}),
    Counter({"near": 3, "structured": 2, "multiples": 1}),
)
#: Instead of the first where no other tensor holds data.
_ON_ITS_OWN = Counter({"facing": 3, "equal": 3, "chance": 1})
#: Integers have no value that floods all others, and are lost where they are large: class → how often.
_OF_INTEGERS = Counter({"alone": 2, "structured": 2, "ordinary": 1})

_CHANCE = Counter({"mixed": 3, "one": 1, "special": 1})
_ORDINARY = Counter({"plain": 3, "tied": 1, "equal 0": 2, "decimals": 1, "halves": 1})
_SAME = Counter(("tied", "mixed", "plain", "special"))
_PATTERNS = (
    *("equal 0", "equal 0", *("equal special",) * 10, "row", "tied"),
    *("ordered 1", "ordered -1", "alternating 0", "hot 1", "plain"),
)
_FLOATS = Counter((*_PATTERNS, "wide", "wide", "saturating", "saturating", *("large",) * 3, "halves", "decimals"))
_ORDINARY_INTS = Counter({"plain": 2, "tied": 1, "equal 0": 1, "wide": 4})
#: Sums and products of large integers are where a detour through floating point shows.
_INTS = Counter((*_PATTERNS, *("wide",) * 8, *("large",) * 5, "mixed", "mixed"))
_MASKS = Counter({"plain": 2, "equal 1": 1, "equal 2": 1, "hot 1": 1, "hot 0": 1, "alternating 0": 1, "row": 2})
_PLACES = Counter(
    (
        *("plain", "mixed", "plain", "mixed", "equal 0", "equal 1", "equal 2", "equal 3", "ordered 1"),
        *("ordered -1", "alternating 0", "alternating 1", "facing 0", "facing 1"),
    )
)
_ORDERS = Counter(("plain", "ordered 1", "ordered -1"))
_OTHER = Counter(("plain", "halves"))
_OFFSETS = Counter({"plain": 2, "equal 0": 1})
#: Of tensors that face no other one where others do: one special value, or none.
_REST = Counter({"plain": 8} | {f"alone {which} 2 0": 1 for which in range(8)})
_SIGNS = Counter({"plain": 2, "equal 0": 1, "equal 1": 1})


class ValueDraws:
    """Draws the further values of a collection's structures, one structure after the other.

    Structures that have fewer further draws than there are classes take turns with them.

    Args:
        name: Name of the collection; the same name, structures and counts give the same draws on every machine.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._draws: list[_FurtherDraw] = []
        self._drawn = 0

    def of(self, first: Invocation, count: int) -> tuple[Invocation, ...]:
        """Return `first` and other values for its tensors: `count` draws, less those that repeat another one."""
        distinct = {first.case_id: first}
        points = _points(first) if count > 1 else ()
        start = 0 if count > len(_CLASSES) else self._drawn
        for draw in range(start, start + count - 1):
            if draw >= len(_CLASSES) >= count:
                draw %= len(_CLASSES)
            while draw >= len(self._draws):
                self._draws += self._round(len(self._draws))
            more = self._draws[draw].of(first, points)
            distinct.setdefault(more.case_id, more)
        self._drawn += max(count - 1, 0)
        return tuple(distinct.values())

    def _round(self, number: int) -> list[_FurtherDraw]:
        """Draw once from each of the classes. The draws of a round differ from each other, and not from later rounds:
        few values are the beginning of more."""
        covering = Covering(ChoiceStream(f"{self._name}/{number}").uniform)
        return [_FurtherDraw(f"{self._name}/{number + turn}", turn, covering) for turn in range(len(_CLASSES))]


class _FurtherDraw:
    """The same further draw of every structure."""

    def __init__(self, name: str, turn: int, covering: Covering) -> None:
        self._stream = ChoiceStream(name)
        self._turn = turn
        self._covering = covering

    def of(self, first: Invocation, points: Sequence[Hashable]) -> Invocation:
        """Return other values for a structure of those `points`."""
        specs = list(first.tensors())
        data = [i for i, spec in enumerate(specs) if _holds_data(spec)]
        if not data:
            data = [i for i, spec in enumerate(specs) if spec.dtype == "bool"]
        scalars = _scalars(first)
        classes = (_BESIDE_SCALARS if scalars else _CLASSES)[self._turn]
        if self._turn == 1 and not scalars and data and all(is_integer(specs[i].dtype) for i in data):
            classes = _OF_INTEGERS
        if self._turn == 0 and len(data) == 1:
            classes = _ON_ITS_OWN
        kind = self._choose(("class", self._turn), classes, points)
        if self._turn == 0 and len(data) > 1 and max(specs[i].numel for i in data) >= _ENOUGH:
            kind = "facing"
        styles = {i: self._beside(i, spec, points) for i, spec in enumerate(specs) if i not in data}
        styles |= self._data_styles(kind, {i: specs[i] for i in data}, scalars, points)
        seed = self._stream.random.getrandbits(32)
        # Multiples have their divisors in the same places.
        step = 0 if kind in ("same", "multiples") else 1
        supply = iter([(styles[i], seed + i * step) for i in range(len(specs))])

        def values(spec: TensorSpec) -> Recipe | Literal:
            style, seed = next(supply)
            return Recipe(spec.values.domain, style, seed) if isinstance(spec.values, Recipe) else spec.values

        return first.with_values(values)

    def _data_styles(
        self, kind: str, specs: Mapping[int, TensorSpec], scalars: str, points: Sequence[Hashable]
    ) -> dict[int, str]:
        match kind:
            case _ if not specs:
                return {}
            case _ if all(spec.numel == 1 for spec in specs.values()) and (len(specs) == 1 or kind != "alone"):
                # No patterns, but the numbers themselves.
                return {i: self._equal(i, points) for i in specs}
            case "facing":
                return self._facing(specs, scalars, points)
            case "equal":
                return {i: self._equal(i, points) for i in specs}
            case "alone":
                return self._alone(specs, points)
            case "near":
                weights = Counter({f"near {scalars}": 2, "plain": 1})
                styles = {i: self._choose(("near", i), weights, points) for i in specs}
                return styles | {next(iter(specs)): f"near {scalars}"}
            case "multiples" if scalars or len(specs) > 1:
                first = next(iter(specs))
                return {i: f"multiples {int(i == first)} {scalars}".rstrip() for i in specs}
            case "same" if len(specs) > 1:
                return dict.fromkeys(specs, self._choose("same", _SAME, points))
            case "structured" | "same" | "multiples":
                return {i: self._structured(i, spec, points) for i, spec in specs.items()}
        if kind == "chance":
            return {i: self._choose(("chance", i), _CHANCE, points) for i in specs}
        return self._ordinary(specs, points)

    def _ordinary(self, specs: Mapping[int, TensorSpec], points: Sequence[Hashable]) -> dict[int, str]:
        weights = {i: _ORDINARY_INTS if is_integer(spec.dtype) else _ORDINARY for i, spec in specs.items()}
        return {i: self._choose(("ordinary", i), weights[i], points) for i in specs}

    def _facing(self, specs: Mapping[int, TensorSpec], scalars: str, points: Sequence[Hashable]) -> dict[int, str]:
        places = list(specs)
        if len(places) == 1:
            return {places[0]: self._free_style(places[0], specs[places[0]], scalars, points)}
        # All of many tensors would leave nothing but NaN.
        count = 2 if len(places) > _OPERANDS else self._below("count", len(places) - 1) + 2
        those = places
        if count < len(places):
            pairs = list(permutations(range(len(places)), count))
            those = [places[i] for i in pairs[self._number(("those", len(places)), len(pairs), points)]]
        few = int(max(spec.numel for spec in specs.values()) < _MANY)
        start = self._below("start", _KINDS)
        styles = {i: self._choose(("rest", i), _REST, points) for i in specs if i not in those}
        for slope, place in enumerate(those):
            shift = start + (int(self._choose(("shift", slope), _SHIFTS, points)) if slope else 0)
            styles[place] = f"facing {slope} {shift} {few}"
        return styles

    def _free_style(self, i: int, spec: TensorSpec, scalars: str, points: Sequence[Hashable]) -> str:
        """Choose special values for a tensor that faces no other one: as many as it holds."""
        if spec.dtype == "bool":
            return self._mask(("mask", i), spec, points)
        if spec.numel >= _MANY or (is_integer(spec.dtype) and self._below("every", 2)):
            return f"every {self._below('shift', _MANY)} {scalars}".rstrip()
        return f"facing 1 {self._number('shift', _KINDS, points)} 0 {scalars}".rstrip()

    def _alone(self, specs: Mapping[int, TensorSpec], points: Sequence[Hashable]) -> dict[int, str]:
        place = list(specs)[self._number("which", len(specs), points)]
        styles = self._ordinary(specs, points)
        if specs[place].dtype == "bool":
            return styles | {place: self._mask(("mask", place), specs[place], points)}
        which, ties = self._number("alone", 8, points), self._number("ties", 2, points)
        return styles | {place: f"alone {which} {self._below('where', 3)} {ties}"}

    def _structured(self, i: int, spec: TensorSpec, points: Sequence[Hashable]) -> str:
        if spec.dtype == "bool":
            return self._mask(("mask", i), spec, points)
        style = self._choose(("structured", i), _INTS if is_integer(spec.dtype) else _FLOATS, points)
        if style == "equal special":
            return self._equal(i, points)
        if style == "row":
            return f"row {self._number(('row', i), 8, points)} {_row_length(spec)}"
        if style == "large":
            return f"large {self._number(('large', i), 3, points)}"
        return style

    def _mask(self, place: Hashable, spec: TensorSpec, points: Sequence[Hashable]) -> str:
        style = self._choose(place, _MASKS, points)
        return f"row {self._number(('row', place), 2, points)} {_row_length(spec)}" if style == "row" else style

    def _equal(self, i: int, points: Sequence[Hashable]) -> str:
        return f"equal {1 + self._number(('equal', i), _KINDS, points)}"

    def _beside(self, i: int, spec: TensorSpec, points: Sequence[Hashable]) -> str:
        """Choose a style for indices, masks and other tensors that hold no data."""
        domain = _domain(spec)
        if domain in _INDEX:
            return self._choose(("places", i), _PLACES, points)
        if domain == "unique":
            return self._choose(("order", i), _ORDERS, points)
        if domain in ("signs", "offsets"):
            return self._choose((domain, i), _SIGNS if domain == "signs" else _OFFSETS, points)
        if spec.dtype == "bool":
            return self._mask(("beside", i), spec, points)
        return self._choose(("beside", i), _OTHER, points)

    def _choose(self, place: Hashable, weights: Weights, points: Sequence[Hashable]) -> str:
        return self._covering.choose(place, weights, points)

    def _number(self, place: Hashable, bound: int, points: Sequence[Hashable]) -> int:
        return int(self._choose(place, _numbers(bound), points))

    def _below(self, place: Hashable, bound: int) -> int:
        """Choose a number below `bound`; at one place each has its turn."""
        self._stream.place = (place, bound)
        return self._stream.below(bound)


#: Elements that hold every special value of a dtype.
_MANY = 64
#: Special values that face each other.
_KINDS = 13
#: By how many places one operand's are behind the other's. Small tensors hold few pairs: those of a number
#: with itself come first (is NaN equal to NaN? what is infinity less infinity?).
_SHIFTS = Counter({"0": 3} | {str(shift): 1 for shift in range(1, _KINDS)})
#: Elements that hold so many pairs of them that other classes wait: few structures are as large.
_ENOUGH = 12
#: More tensors than that are hardly operands of one element.
_OPERANDS = 3


@cache
def _numbers(bound: int) -> Weights:
    return {str(number): 1 for number in range(bound)}


def _row_length(spec: TensorSpec) -> int:
    return spec.shape[-1] if spec.shape else 1


def _domain(spec: TensorSpec) -> str:
    return str(spec.values.domain[0]) if isinstance(spec.values, Recipe) else ""


def _holds_data(spec: TensorSpec) -> bool:
    return spec.dtype != "bool" and _domain(spec) in _DATA


@cache
def _scalar_names(name: str) -> frozenset[str]:
    """Return arguments that are numbers to calculate with: counts and dims are integers."""
    if is_onnx_operator(name):
        return frozenset(a.name for a in find_schema(name).attributes if a.kind == "float")
    kinds = ("number", "Optional[number]", "float", "Optional[float]")
    return frozenset(a.name for a in overload(name)._schema.arguments if str(a.type) in kinds)


def _scalars(call: Invocation) -> str:
    """Return the numbers among the arguments of a call, as parameters of a style."""
    names = _scalar_names(call.overload)
    given = (value for name, value in call.arguments if name in names and isinstance(value, int | float))
    return " ".join(dict.fromkeys(map(repr, given)))


def _points(call: Invocation) -> tuple[Hashable, ...]:
    """Return the facts of a structure that its values may fail together with."""
    found: list[Hashable] = [""]
    for name, value in call.arguments:
        if isinstance(value, TensorSpec):
            found += [(name, value.dtype), (name, "rank", min(len(value.shape), 3))]
            found += [(name, "size", _size_class(value.numel)), (name, "dense", value.is_contiguous)]
        else:
            found.append((name, describe(value)))
    missing = set(argument_names(call.overload)) - {name for name, _ in call.arguments}
    return (*found, *sorted(missing))


def _size_class(numel: int) -> str:
    return "one" if numel < 2 else "few" if numel < _ENOUGH else "some" if numel < _MANY else "many"
