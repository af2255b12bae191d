"""Operator cases: the facts in `cases/` about an overload that its schema lacks.

A family file declares its operators through one :class:`Family`:

    ops = Family("pointwise")
    ops.simple("abs", "neg", dtypes=NUMBERS)              # operators whose schema is enough

    @ops.case("mv", dtypes=FLOATS, judge=ACCUMULATES)     # the rest: a function of a `Draw`
    def matrix_times_vector(d: Draw) -> Arguments:
        rows, columns = d.size(), d.size()
        return {"self": d.tensor((rows, columns)), "vec": d.tensor((columns,))}

`cases/README.md` explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.compare.judge import CLOSE, Judge
from harness.core.dtypes import PARTS, WIDE_UNSIGNED
from harness.core.invocation import Invocation
from harness.core.overloads import normalise
from harness.core.plugins import declaring_place
from harness.generate.draw import OMIT, Draw
from harness.generate.from_schema import draw_by_schema
from harness.generate.promotion import Promotion

if TYPE_CHECKING:
    from harness.core.onnx_operators import OnnxSchema

#: Schema argument name → a TensorSpec, a Python value, or OMIT. Names left out are omitted.
Arguments = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorCase:
    """The way to draw and judge invocations of one overload.

    Attributes:
        overload: Dotted name.
        family: The family file that declares it; a grouping for reports.
        dtypes: Dtypes that PyTorch's CPU kernels take; the first is the plainest.
        arguments: Draws the arguments for ``Draw.dtype``.
        judge: Decides which outputs are right (`harness.compare.judge`).
        rare: The members of `dtypes` that get few draws: few models have them and few kernels take them.
        gaps: The members of `dtypes` that no tested converter takes: one draw in many is about them.
        used: Dtypes in which real models call it, the commonest first; empty if no model does.
        refused: Names of conditions (`harness.generate.pairs`) under which no tested exporter and runtime takes it.
        promotions: Pairs of kinds that PyTorch takes and `arguments` does not draw by itself.
        slow: Whether its exports take so long that a run draws fewer structures, with more values each.
        share: Number of cases that a run draws, as a multiple of the usual number.
        more: Multiple of the usual share that it takes until enough cases are compared.
        opset: First opset with the operator, if it is one of ONNX's own: a run that asks for no opset emits this one.
        converted: Whether a tested converter has a conversion for any of its calls.
        declared: File and line of the statement that declares it.
        schema: The schema of an ONNX operator; None for an operator of PyTorch.
    """

    overload: str
    family: str
    dtypes: tuple[str, ...]
    arguments: Callable[[Draw], Arguments]
    judge: Judge = CLOSE
    rare: tuple[str, ...] = WIDE_UNSIGNED
    gaps: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()
    promotions: tuple[Promotion, ...] = ()
    slow: bool = False
    share: float = 1.0
    more: float = 1.0
    opset: int | None = None
    converted: bool = True
    declared: tuple[str, int] = ("", 0)
    schema: OnnxSchema | None = None


#: Every operator case by overload, filled at import of `cases`.
OPERATOR_CASES: dict[str, OperatorCase] = {}


class Family:
    """Declares the operator cases of one file.

    Args:
        name: Appears in reports.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def _add(
        self,
        name: str,
        dtypes: Sequence[str],
        arguments: Callable[[Draw], Arguments],
        judge: Judge,
        opset: int | None = None,
    ) -> None:
        overload = _overload(name)
        if overload in OPERATOR_CASES:
            raise ValueError(f"{overload} is declared twice: {OPERATOR_CASES[overload].family} and {self.name}")
        if not dtypes:
            raise ValueError(f"{overload}: no dtypes")
        OPERATOR_CASES[overload] = OperatorCase(
            overload=overload,
            family=self.name,
            dtypes=tuple(dtypes),
            arguments=arguments,
            judge=judge,
            opset=opset,
            declared=declaring_place(),
        )

    def simple(
        self,
        /,
        *overloads: str,
        dtypes: Sequence[str],
        judge: Judge = CLOSE,
        promote: Sequence[str] = (),
        **fixed: Callable[[Draw], Any],
    ) -> None:
        """Declare operators whose schema describes their arguments completely.

        The first Tensor gets any shape, further Tensors broadcast with it, `dim` arguments are valid
        for its rank, numbers are interesting ones, optional arguments come and go.

        Args:
            overloads: ``abs`` means ``aten.abs.default``.
            dtypes: Dtypes of the tensors.
            judge: Decides which outputs are right.
            promote: Dtypes that one of several Tensors may have instead, if the operator promotes.
            fixed: Argument name → function that draws it, for an argument whose type allows too much
                (``approximate=lambda d: d.choose("none", "tanh")``).
        """
        for overload in overloads:
            name = _overload(overload)
            self._add(
                name,
                dtypes,
                lambda d, name=name: draw_by_schema(d, name, fixed, promote),  # type: ignore[misc]
                judge,
            )

    def case(
        self, *overloads: str, dtypes: Sequence[str], judge: Judge = CLOSE, opset: int | None = None
    ) -> Callable[[Callable[[Draw], Arguments]], Callable[[Draw], Arguments]]:
        """Decorate a function that draws the arguments of one or several overloads."""

        def register(function: Callable[[Draw], Arguments]) -> Callable[[Draw], Arguments]:
            for overload in overloads:
                self._add(overload, dtypes, function, judge, opset)
            return function

        return register


def _overload(name: str) -> str:
    name = normalise(name)
    return name if name.count(".") > 1 else f"{name}.default"


def judge_of(invocation: Invocation) -> Judge:
    """Return the judge of the invocation's operator case; the default if no case covers it."""
    case = OPERATOR_CASES.get(invocation.overload)
    if case is None:
        return CLOSE
    complex_judge = case.judge.complex_judge
    if complex_judge and any(spec.dtype in PARTS for spec in invocation.tensors()):
        return complex_judge
    return case.judge


__all__ = ["OMIT", "OPERATOR_CASES", "Arguments", "Family", "OperatorCase", "judge_of"]
