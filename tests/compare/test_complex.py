"""Results of complex arithmetic are judged with PyTorch as the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from harness.compare.comparison import compare
from harness.compare.output_comparison import OutputComparison
from harness.core.dtypes import COMPLEX
from harness.core.invocation import Argument, Invocation, Literal, TensorSpec
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.generate.operator_case import judge_of
from harness.pipeline.reference import run_reference
from harness.pipeline.torch_call import CallRejected

INF, NAN = float("inf"), float("nan")
#: Near the axis, so that the real part of its square is small next to the modulus.
DIAGONAL = 1.0 + 1.0000001j


def vector(*values: complex, dtype: str = "complex64") -> TensorSpec:
    return TensorSpec((len(values),), dtype, (1,), 0, Literal(values))


def judged(overload: str, got: list[list[float]], **arguments: Argument) -> OutputComparison:
    """Return the comparison of one result, given in pairs of real and imaginary part."""
    load_cases()
    case = Invocation(overload, tuple(arguments.items()))
    reference = run_reference(case)
    array = np.asarray(got, reference.expected[0].dtype).reshape(reference.expected[0].shape)
    return compare(judge_of(case), reference, [array])


@pytest.mark.parametrize("overload", ["aten.mul.Tensor", "aten.mm.default"])
def test_the_parts_of_a_product_may_be_off_by_roundings_of_the_modulus(overload: str) -> None:
    left, right = vector(DIAGONAL), vector(DIAGONAL)
    names = ("self", "other") if overload == "aten.mul.Tensor" else ("self", "mat2")
    if overload == "aten.mm.default":
        left = right = TensorSpec((1, 1), "complex64", (1, 1), 0, Literal((DIAGONAL,)))
    arguments = dict(zip(names, (left, right), strict=True))
    # The real part, of which nearly all cancels, is -2.4e-7.
    for real in (0.0, -2.4e-7, 4e-7):
        assert not judged(overload, [[real, 2.0]], **arguments).problem
    # Some rounding errors of the modulus, 2, are 2.6e-6.
    for real, imaginary in ((1e-4, 2.0), (0.0, 2.0001), (0.0, -2.0), (2.0, 0.0)):
        assert judged(overload, [[real, imaginary]], **arguments).problem == "values"


@pytest.mark.parametrize(
    ("overload", "given", "right"),
    [
        ("aten.div.Tensor", {"self": vector(1 + 0j), "other": vector(DIAGONAL)}, [0.5, -0.5]),
        ("aten.reciprocal.default", {"self": vector(DIAGONAL)}, [0.5, -0.5]),
        ("aten.sum.default", {"self": vector(100 + 100j, -100 + 1j, 1e-3 + 0j)}, [1e-3, 101.0]),
        ("aten.rsub.Scalar", {"self": vector(1 + 1j), "other": 1j, "alpha": 0.5 + 0.5j}, [0.0, 0.0]),
    ],
)
def test_a_result_is_held_to_its_modulus(overload: str, given: dict[str, Argument], right: list[float]) -> None:
    assert not judged(overload, [right], **given).problem
    for part in (0, 1):
        wrong = list(right)
        wrong[part] += 0.01 * max(1.0, abs(wrong[part]))
        assert judged(overload, [wrong], **given).problem == "values"


def test_a_part_that_an_infinity_makes_nan_is_left_open() -> None:
    factors = {"self": vector(2 + 1j, 2 + 0j), "other": vector(complex(INF, NAN), 3 + 0j)}
    found = judged("aten.mul.Tensor", [[INF, INF], [6.0, 0.0]], **factors)
    assert found.problem
    assert found.unsettled
    # A wrong finite element next to it is a defect.
    found = judged("aten.mul.Tensor", [[INF, INF], [6.0, 1.0]], **factors)
    assert found.problem == "values"
    assert not found.unsettled
    # So is the sign of an infinity where nothing is NaN, and a NaN where the result is finite.
    real = {"self": vector(2 + 2j), "other": vector(complex(INF, 1.0))}
    assert not judged("aten.mul.Tensor", [[INF, INF]], **real).problem
    assert not judged("aten.mul.Tensor", [[-INF, INF]], **real).unsettled
    tiny = {"self": vector(1 + 1j), "other": vector(complex(INF, 1.0))}
    assert judged("aten.div.Tensor", [[NAN, NAN]], **tiny).problem == "NaN positions"


def test_tensors_in_any_layout_are_judged() -> None:
    """Complex numbers whose dims are stored in another order, with all that a result may be compared with."""
    numbers = (1 + 1e-42j, complex(INF, 2.0), 3 - 1j, 4 + 4j)
    spec = TensorSpec((2, 2), "complex64", (1, 2), 0, Literal(numbers))
    got = [[5.0, 5.0], [5.0, 5.0]]
    for overload in ("aten.mean.dim", "aten.angle.default"):
        arguments: dict[str, Argument] = {"self": spec, **({"dim": (0,)} if "mean" in overload else {})}
        found = judged(overload, got, **arguments)
        assert found.problem
        assert not found.unsettled
    empty = Invocation(
        "aten.mean.dim", (("self", TensorSpec((0, 2), "complex128", (2, 1), 0, Literal(()))), ("dim", (0,)))
    )
    assert run_reference(empty).sensitivity is not None


def test_overflow_on_the_way_to_a_finite_quotient_is_a_defect() -> None:
    huge = vector(1e30 + 1e30j)
    assert judged("aten.div.Tensor", [[NAN, NAN]], self=huge, other=huge).problem == "NaN positions"
    assert not judged("aten.div.Tensor", [[1.0, 0.0]], self=huge, other=huge).problem


def test_neither_zero_of_a_part_is_wrong_where_numbers_are_computed() -> None:
    one = vector(1 + 0j)
    assert not judged("aten.mul.Tensor", [[1.0, -0.0]], self=one, other=one).problem
    assert judged("aten.flip.default", [[1.0, -0.0]], self=one, dims=(0,)).problem


@pytest.mark.parametrize(
    "overload",
    [
        "aten.cross.default",
        "aten.lerp.Scalar",
        "aten.lerp.Tensor",
        "aten.linalg_cross.default",
        "aten.linalg_matrix_rank.default",
        "aten.std_mean.correction",
        "aten.var_mean.dim",
    ],
)
def test_marks_of_complex_numbers_are_those_of_both_parts(overload: str) -> None:
    case = load_cases()[overload]
    compared = 0
    for found in draw_cases(case, seed=0, structures=12, values=1, dtypes=COMPLEX):
        try:
            reference = run_reference(found.invocations[0])
        except CallRejected:
            continue
        assert not compare(case.judge, reference, reference.expected).problem
        compared += 1
    assert compared
