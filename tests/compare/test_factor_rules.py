"""Results that are not unique: right by reconstruction or by distribution, whatever their signs and order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cases.rules.gamma_draws import beta_cdf, gamma_cdf
from harness.compare.comparison import compare
from harness.core.dtypes import Array
from harness.core.invocation import Enumerated, Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.pipeline.case import CaseOracle
from harness.pipeline.reference import run_reference
from harness.pipeline.torch_call import CallRejected

SHAPE = (2, 5, 3)


def reference(name: str, *tensors: TensorSpec, **rest: Any) -> CaseOracle:
    case = load_cases()[name]
    names = iter(tensors)
    arguments = {}
    for argument in torch.ops.aten.__getattr__(name.split(".")[1]).default._schema.arguments:
        if str(argument.type) == "Tensor":
            arguments[argument.name] = next(names)
        elif argument.name in rest:
            arguments[argument.name] = rest[argument.name]
    return run_reference(Invocation(case.overload, tuple(arguments.items())))


def tensor(shape: tuple[int, ...], dtype: str = "float32", domain: Any = ("range", -1.0, 1.0)) -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Recipe(domain, "plain", 11))


def problem(name: str, made: CaseOracle, got: list[Array]) -> str | None:
    return compare(load_cases()[name].judge, made, got).problem


def copies(made: CaseOracle) -> list[Array]:
    return [array.copy() for array in made.expected]


def flipped(arrays: list[Array], *places: tuple[int, int]) -> list[Array]:
    """Return arrays with the sign of the last row (axis −2) or column (axis −1) of some outputs flipped."""
    for output, axis in places:
        np.moveaxis(arrays[output], axis, 0)[-1] *= -1
    return arrays


@pytest.mark.parametrize(
    ("name", "shape", "signs"),
    [
        ("aten.linalg_qr.default", SHAPE, ((0, -1), (1, -2))),
        ("aten.linalg_svd.default", (2, 4, 4), ((0, -1), (2, -2))),
        ("aten.svd.default", SHAPE, ((0, -1), (2, -1))),
        ("aten.linalg_eigh.default", (2, 4, 4), ((1, -1),)),
    ],
)
def test_signs_of_factors_are_free_but_only_together(
    name: str, shape: tuple[int, ...], signs: tuple[tuple[int, int], ...]
) -> None:
    made = reference(name, tensor(shape))
    assert problem(name, made, copies(made)) is None
    assert problem(name, made, flipped(copies(made), *signs)) is None
    if len(signs) > 1:
        assert problem(name, made, flipped(copies(made), signs[0])) == "values"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("aten.linalg_qr.default", SHAPE),
        ("aten.geqrf.default", SHAPE),
        ("aten.linalg_svd.default", SHAPE),
        ("aten.linalg_eigh.default", (4, 4)),
        ("aten.linalg_eig.default", (4, 4)),
        ("aten.linalg_eigvals.default", (4, 4)),
        ("aten.linalg_lu_factor_ex.default", (4, 4)),
    ],
)
def test_a_slightly_wrong_factor_is_wrong(name: str, shape: tuple[int, ...]) -> None:
    domain = ("dominant", shape[-1], 0) if shape[-1] == shape[-2] else ("range", -1.0, 1.0)
    made = reference(name, tensor(shape, domain=domain))
    for output, array in enumerate(made.expected):
        if array.dtype.kind == "f":
            got = copies(made)
            got[output].reshape(-1)[0] += 3e-3
            assert problem(name, made, got) == "values", output


def test_half_a_qr_is_judged_by_its_gram_matrix() -> None:
    made = reference("aten.linalg_qr.default", tensor(SHAPE), mode="r")
    got = copies(made)
    got[1] *= -1
    assert problem("aten.linalg_qr.default", made, got) is None
    got[1][0, 0, 0] *= 1.001
    assert problem("aten.linalg_qr.default", made, got) == "values"


def test_eigenvalues_come_in_any_order_but_each_once() -> None:
    name = "aten.linalg_eigvals.default"
    made = reference(name, tensor((5, 5)))
    (values,) = copies(made)
    assert problem(name, made, [values[::-1].copy()]) is None
    values[0] = values[-1]
    assert problem(name, made, [values]) == "values"


def test_eigenvectors_have_any_phase_but_length_one() -> None:
    name = "aten.linalg_eig.default"
    made = reference(name, tensor((4, 4), "float64"))
    values, vectors = copies(made)
    complex_vectors = (vectors[..., 0] + 1j * vectors[..., 1]) * np.exp(0.7j)
    turned = np.stack([complex_vectors.real, complex_vectors.imag], -1)
    assert problem(name, made, [values, turned]) is None
    assert problem(name, made, [values, 2 * turned]) == "values"


def test_least_squares_may_err_as_the_condition_says() -> None:
    name = "aten.linalg_lstsq.default"
    made = reference(name, tensor((6, 3), domain=("dominant", 3, 0)), tensor((6, 2)))
    got = copies(made)
    got[0] *= np.float32(1 + 1e-6)
    assert problem(name, made, got) is None
    got[0] *= np.float32(1.01)
    assert problem(name, made, got) == "values"


def test_the_rank_is_open_where_a_singular_value_is_at_the_threshold() -> None:
    name = "aten.linalg_matrix_rank.default"
    eye = TensorSpec((2, 2), "float32", (2, 1), 0, Literal((1.0, 0.0, 0.0, 0.5)))
    for tolerance, expected in ((0.5, None), (0.6, "values")):
        made = reference(name, eye, tol=tolerance)
        assert problem(name, made, [np.array(2)]) == expected


# Distributions


def test_distribution_functions_agree_with_scipy_like_values() -> None:
    # P(1, x) = 1 − exp(−x); P(1/2, x) = erf(√x); I(x; 1, b) = 1 − (1 − x)ᵇ; I(x; 2, 3) = 6x² − 8x³ + 3x⁴.
    x = np.array([0.01, 0.5, 3.0, 20.0])
    np.testing.assert_allclose(gamma_cdf(np.array(1.0), x), 1 - np.exp(-x), rtol=1e-12)
    erf = torch.erf(torch.from_numpy(x).sqrt()).numpy()
    np.testing.assert_allclose(gamma_cdf(np.array(0.5), x), erf, rtol=1e-12)
    x = np.array([0.001, 0.2, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(beta_cdf(np.array(1.0), np.array(4.0), x), 1 - (1 - x) ** 4, rtol=1e-11)
    cubic = 6 * x**2 - 8 * x**3 + 3 * x**4
    np.testing.assert_allclose(beta_cdf(np.array(2.0), np.array(3.0), x), cubic, rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("aten._standard_gamma.default", lambda x: 2 * x),
        ("aten._standard_gamma.default", lambda x: np.abs(x - 0.5)),
        ("aten._sample_dirichlet.default", lambda x: np.full_like(x, 1 / x.shape[-1])),
        ("aten._sample_dirichlet.default", lambda x: x * np.float32(1.01)),
        ("aten._sample_dirichlet.default", lambda x: x[..., ::-1].copy()),
    ],
)
def test_variates_of_another_distribution_are_wrong(name: str, wrong: Callable[[Array], Array]) -> None:
    # The first concentration is the least.
    shape = (800, 3)
    concentrations = Literal((0.5, 2.0, 4.0) * 800)
    made = reference(name, TensorSpec(shape, "float32", (3, 1), 0, concentrations))
    assert problem(name, made, copies(made)) is None
    assert problem(name, made, [wrong(made.expected[0])]) == "values"


# Complex numbers and numbers


def test_complex_numbers_are_pairs_outside_and_themselves_to_rules() -> None:
    values = Literal((1 + 2j, -3j))
    spec = TensorSpec((2,), "complex64", (1,), 0, values)
    made = reference("aten._conj.default", spec)
    np.testing.assert_array_equal(made.feeds[0], np.array([[1, 2], [0, -3]], dtype=np.float32))
    np.testing.assert_array_equal(made.expected[0], np.array([[1, -2], [0, 3]], dtype=np.float32))
    np.testing.assert_array_equal(made.arguments["self"], np.array([1 + 2j, -3j], dtype=np.complex64))


def test_the_bound_of_a_transform_is_never_below_its_result() -> None:
    checked = 0
    for name in ("aten.fft_fft.default", "aten.fft_irfftn.default", "aten.stft.center", "aten.istft.default"):
        case = load_cases()[name]
        assert case.judge.terms is not None
        for drawn in draw_cases(case, seed=5, structures=12, values=1):
            try:
                made = run_reference(drawn.invocations[0])
            except CallRejected:
                continue
            truth = made.truth
            assert truth is not None
            if truth[0] is None:
                continue
            arguments = {
                n: a.astype(np.complex128 if a.dtype.kind == "c" else np.float64) if isinstance(a, np.ndarray) else a
                for n, a in made.arguments.items()
            }
            terms = np.asarray(case.judge.terms(arguments))
            assert terms.shape == truth[0].shape
            assert (np.abs(truth[0]) <= terms * (1 + 1e-9)).all()
            checked += 1
    assert checked > 30


def test_a_number_is_a_result_of_no_dimensions() -> None:
    made = reference("aten.numel.default", tensor((2, 3)))
    assert made.expected[0].shape == ()
    assert made.expected[0] == 6
    assert made.expected[0].dtype == np.int64


def test_rounding_to_a_grid_is_open_at_ties_only() -> None:
    name = "aten.fake_quantize_per_tensor_affine.default"
    spec = TensorSpec((3,), "float32", (1,), 0, Literal((0.5, 0.8, float("nan"))))
    made = reference(name, spec, scale=1.0, zero_point=0, quant_min=-128, quant_max=127)
    tie, plain, undefined = made.expected[0]
    assert problem(name, made, [np.array([1 - tie, plain, 7.0], dtype=np.float32)]) is None
    assert problem(name, made, [np.array([tie, plain + 1, undefined], dtype=np.float32)]) == "values"


def test_a_complex_dtype_argument_widens_with_its_tensor() -> None:
    spec = TensorSpec((2,), "complex64", (1,), 0, Literal((1 + 2j, 1j)))
    invocation = Invocation("aten._to_copy.default", (("self", spec), ("dtype", Enumerated("dtype", "complex64"))))
    truth = run_reference(invocation).truth
    assert truth is not None
    assert truth[0] is not None
    assert truth[0].dtype == np.float64
