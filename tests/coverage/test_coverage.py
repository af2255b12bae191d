"""`pytest harness --coverage` lists the target operators and their operator cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from harness_runs import ROOT, output, record_of, run_harness, vector

from harness.core.invocation import Invocation
from harness.coverage import target as sources
from harness.coverage.not_covered import Kind, Reason, ReasonsError, read
from harness.coverage.report import Coverage, coverage_report, measure
from harness.coverage.seen_pairs import tried_report
from harness.coverage.target import (
    SourceMissing,
    functional_overloads,
    named_by,
    outdated,
    target,
)
from harness.generate.case_library import load_cases

sys.path.append(str(ROOT / "ci" / "tables"))

import called_overloads as capture


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return measure(target(), load_cases(), read())


# The target set


@pytest.mark.parametrize("name", ["aten.add.Tensor", "aten.view.default", "aten.sort.stable", "aten.celu.default"])
def test_what_only_returns_is_functional(name: str) -> None:
    assert name in functional_overloads()


@pytest.mark.parametrize(
    "name",
    [
        "aten.add_.Tensor",
        "aten.add.out",
        "aten._native_batch_norm_legit.default",
        "aten.convolution_backward.default",
        "aten._make_dual.default",
        "aten._dirichlet_grad.default",
        "aten.append.t",
        "aten.add.int",
    ],
)
def test_what_writes_derives_or_is_no_operator_is_not_functional(name: str) -> None:
    assert name not in functional_overloads()


def test_every_source_names_functional_overloads_and_all_count() -> None:
    assert set(named_by()) == {"core", "torchlib", "torchscript", "exported", "opinfo"}
    for names in named_by().values():
        assert names
        assert names <= functional_overloads()
        assert names <= target()


def test_sources_name_what_they_are_known_for() -> None:
    assert "aten.convolution.default" in sources.core()
    assert "aten.celu.default" in sources.torchlib()
    # A symbolic function is registered for an operator: it stands for all its overloads.
    assert {"aten.add.Tensor", "aten.add.Scalar"} <= sources.torchscript()


def test_an_operator_is_in_with_all_its_functional_overloads() -> None:
    assert "aten.float_power.Scalar" not in {name for names in named_by().values() for name in names}
    assert {"aten.float_power.Tensor_Tensor", "aten.float_power.Scalar"} <= target()


@pytest.mark.parametrize("name", list(sources.FILES))
def test_recorded_sources_are_sorted_and_of_this_pytorch(name: str) -> None:
    lines = sources.FILES[name].read_text().splitlines()[1:]
    assert lines == sorted(set(lines))
    if sources.made_with(name) == sources.release():
        assert set(lines) == sources.recorded(name)


def test_another_pytorch_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "99.1.0+cpu")
    warnings = outdated()
    assert len(warnings) == 2
    assert all("this is torch 99.1.0" in line and "ci/tables/called_overloads.py" in line for line in warnings)
    assert "WARNING: opinfo.txt" in coverage_report(load_cases())[0]


# Capturing


@dataclass
class _Sample:
    input: torch.Tensor
    args: tuple[Any, ...] = ()


class _Info:
    """A stand-in for an OpInfo: a function with samples."""

    name = "nn.functional.made_up"

    def supports_dtype(self, dtype: torch.dtype, device: str) -> bool:
        return dtype in (torch.float32, torch.int64)

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
        sample: Any = _Sample(torch.ones(2, 3, dtype=dtype, device=device))
        sample.kwargs = {}
        yield sample

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.int64:
            raise RuntimeError("no kernel")
        x = torch.nn.functional.linear(x, torch.ones(4, 3)).add_(1)
        return torch.celu(x)


def test_capture_sees_composites_and_what_they_call_and_no_writes() -> None:
    seen = capture.called_by_op_info([_Info()])
    assert {"aten.linear.default", "aten.t.default", "aten.celu.default"} <= seen
    assert not any("add_" in name for name in seen)


@pytest.mark.parametrize("ask", [capture.called_by_op_info, capture.exported_from_nn])
def test_without_op_info_the_message_says_what_to_install(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("common_methods_invocations", "common_modules"):
        monkeypatch.setitem(sys.modules, f"torch.testing._internal.{name}", None)
    with pytest.raises(SourceMissing, match="pip install expecttest"):
        ask()


# Coverage and reasons


def test_nearly_all_is_covered_and_the_rest_is_explained(coverage: Coverage) -> None:
    assert coverage.share >= 0.97
    assert not coverage.unexplained, "add an operator case, or a reason to cases/not_covered.toml"
    assert not coverage.stale, "take these out of cases/not_covered.toml"


def test_a_reason_of_an_absent_device_is_true() -> None:
    absent = [name for name, reason in read().items() if reason.kind is Kind.DEVICE]
    assert absent
    for name in absent:
        kernels = name.replace(".", "::", 1).removesuffix(".default")
        for key in ("CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd"):
            assert not torch._C._dispatch_has_kernel_for_dispatch_key(kernels, key), name


def test_a_lost_case_is_unexplained_and_a_needless_reason_stale() -> None:
    known = dict(load_cases())
    del known["aten.celu.default"]
    written = {
        "aten.relu.default": Reason("activation", Kind.DEVICE, "not true"),
        "aten.gone.default": Reason("activation", Kind.DEVICE, "no longer"),
    }
    coverage = measure({"aten.celu.default", "aten.relu.default"}, known, written)
    assert coverage.unexplained == ["aten.celu.default"]
    assert coverage.stale == {
        "aten.relu.default": "has an operator case",
        "aten.gone.default": "is not in the target set",
    }
    assert (coverage.total, coverage.covered) == (2, {"activation": 1})


def test_the_report_fails_where_something_is_unexplained() -> None:
    known = dict(load_cases())
    del known["aten.celu.default"]
    text, status = coverage_report(known)
    assert status == 1
    assert "aten.celu.default: NO REASON" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[not_covered]]\nfamily = 1\n", "entry 1: lacks because, overloads, reason"),
        (
            '[[not_covered]]\nfamily = "a"\nreason = "tedious"\nbecause = "b"\noverloads = []\n',
            "'tedious' is not a reason",
        ),
        (
            '[[not_covered]]\nfamily = "a"\nreason = "no tensor result"\nbecause = "b"\n'
            'overloads = ["aten.celu.default"]\n',
            "aten.celu.default returns tensors",
        ),
        (
            '[[not_covered]]\nfamily = "a"\nreason = "storage"\nbecause = "b"\n'
            'overloads = ["aten.to_sparse.default", "aten.to_sparse.default"]\n',
            "named twice",
        ),
        ("not toml", "not_covered.toml: "),
    ],
)
def test_a_malformed_reason_is_reported(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "not_covered.toml"
    path.write_text(text)
    with pytest.raises(ReasonsError, match=message):
        read(path)


def test_the_option_prints_the_report_and_runs_nothing(tmp_path: Path) -> None:
    done = run_harness("--coverage", "--results-dir", tmp_path / "none")
    assert done.returncode == 0, output(done)
    assert "have an operator case" in done.stdout
    assert "aten.to_sparse.default: storage: returns a sparse tensor" in done.stdout
    assert "test session starts" not in done.stdout
    assert not (tmp_path / "none").exists()


def test_the_coverage_of_an_operator_lists_what_a_run_has_tried(tmp_path: Path) -> None:
    run = record_of(tmp_path / "run", [vector_call("float32", 0.5), vector_call("float64", -2.0)])
    done = run_harness("--coverage", "--op", "celu", "--results-dir", run)
    assert done.returncode == 0, output(done)
    first, _, *lines = done.stdout.splitlines()
    assert first.startswith("aten.celu.default: 50% of pairs of conditions compared, ")
    said = {line[:20].strip(): line.split() for line in lines}
    assert [line for line in lines if line.strip().startswith("dtype float32") and "alpha negative" in line]
    assert len(said) == 4
    text, status = tried_report(["erf"], run)
    assert (status, text) == (4, f"{run} has no case of erf")
    text, status = tried_report(["celu"], tmp_path / "none")
    assert status == 4
    assert "none" in text


def vector_call(dtype: str, alpha: float) -> Invocation:
    return Invocation("aten.celu.default", (("self", vector([1.0, 2.0], dtype)), ("alpha", alpha)))
