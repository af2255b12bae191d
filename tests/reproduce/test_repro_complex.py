"""Scripts for calls with complex tensors: models take and give pairs of real numbers, PyTorch does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness_runs import vector
from recorded_rows import row_of
from sampling import sampled
from script_runs import ended, run_script

from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.reproduce.failure import ReproducibleFailure
from harness.reproduce.script import write_script

pytestmark = pytest.mark.slowest(10)

X = vector([1 + 2j, -0.3 + 0.1j, 0.7 - 1e30j], "complex64")
Y = vector([0.25 - 1j, 3.0, 2j], "complex64")
MATRIX = TensorSpec((2, 2), "complex128", (2, 1), 0, Literal((1 + 1j, 2.0, 3j, -4.0 + 0.5j)))


def sum_of(alpha: complex) -> Invocation:
    return Invocation("aten.add.Tensor", (("self", X), ("other", Y), ("alpha", alpha)))


def failure(
    call: Invocation,
    stage: Stage = Stage.COMPARE,
    outcome: Outcome = Outcome.MISMATCH,
    *,
    backend: str = "ort-cpu",
    signature: str = "values",
) -> ReproducibleFailure:
    return ReproducibleFailure(
        verdict=row_of(
            call,
            converter="dynamo",
            backend=backend,
            stage=stage,
            outcome=outcome,
            signature=signature,
            message="values: output 0[0,0]: expected 1.0, got 2.0",
        ),
        invocation=call,
        exported=call,
    )


@pytest.mark.parametrize("backend", sampled(["ort-cpu", "onnx-reference", "openvino"], every=3))
def test_a_wrong_sum_is_there_until_its_scale_is_real(backend: str, tmp_path: Path) -> None:
    # torchlib takes the real part of a complex alpha.
    script = write_script(failure(sum_of(0.5 - 2j), backend=backend))
    assert "complex(-0.3, 0.1)" in script
    done = run_script(tmp_path, script)
    assert done.returncode == 1, ended(done)
    assert "The defect is there." in done.stdout
    # The scale is in the module, in the call in float64, and in the terms.
    gone = run_script(tmp_path, script.replace("complex(0.5, -2.0)", "0.5"))
    assert gone.returncode == 0, ended(gone)


@pytest.mark.slow
def test_a_model_that_does_not_take_pairs_fails_as_recorded(tmp_path: Path) -> None:
    def transform(*dims: int) -> Invocation:
        given: dict[str, Any] = {"self": MATRIX, "s": None, "dim": dims, "norm": None}
        return Invocation("aten.fft_ifft2.default", tuple(given.items()))

    # Without dimensions nothing is transformed, and the input stays as wide as PyTorch's.
    script = write_script(failure(transform(), Stage.RUN, Outcome.ERROR))
    done = run_script(tmp_path, script)
    assert done.returncode == 1, ended(done)
    assert "Invalid rank for input" in done.stdout
    whole = run_script(tmp_path, write_script(failure(transform(0, 1), Stage.RUN, Outcome.ERROR)))
    assert whole.returncode == 0, ended(whole)


@pytest.mark.slow
def test_a_child_is_fed_pairs(tmp_path: Path) -> None:
    script = write_script(failure(sum_of(1.0), Stage.RUN, Outcome.CRASH))
    done = run_script(tmp_path, script)
    assert done.returncode == 0, ended(done)


@pytest.mark.parametrize(
    "call",
    [
        Invocation("aten.mul.Tensor", (("self", X), ("other", Y))),
        Invocation("aten.mul.Tensor", (("self", X), ("other", vector([1.0, -2.0, 1e30])))),
        Invocation("aten.abs.default", (("self", Y),)),
        Invocation("aten.fft_fft.default", (("self", vector([1.0, 2.0, 5.0])),)),
    ],
    ids=str,
)
@pytest.mark.parametrize("signature", sampled(["values", "dtype"], every=2))
def test_a_right_result_is_right(call: Invocation, signature: str, tmp_path: Path) -> None:
    done = run_script(tmp_path, write_script(failure(call, signature=signature)))
    assert done.returncode == 0, ended(done)
    assert done.stdout.rstrip().endswith("The defect is gone.")


def test_the_terms_of_a_complex_sum_are_moduli(tmp_path: Path) -> None:
    # The real part cancels, the imaginary part does not.
    rows = TensorSpec((2, 3), "complex64", (3, 1), 0, Literal((1e4 + 1j, 0.3 + 0.7j, -1e4 - 0.2j) * 2))
    arguments = (("self", rows), ("dim", (1,)), ("keepdim", False))
    script = write_script(failure(Invocation("aten.sum.dim_IntList", arguments)))
    assert "terms[0]" in script
    done = run_script(tmp_path, script)
    assert done.returncode == 0, ended(done)
    wrong = run_script(tmp_path, script.replace("[torch.as_tensor(o)", "[1.1 * torch.as_tensor(o)"))
    assert wrong.returncode == 1, ended(wrong)
    assert "wrong at" in wrong.stdout
