"""`conformance explain`: what there is for an operator, checked against the specification and PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from commands import answered, entered
from onnx.reference import ReferenceEvaluator
from onnx_texts import onnx_model

from harness.core.overloads import UnknownOperator
from harness.explain import onnx_operator
from harness.explain.operator import Parameter, find_operator

pytestmark = pytest.mark.slowest(15)


def explain(*words: str | Path) -> Result:
    return entered("explain", *words)


def test_help_has_an_example_and_the_exit_statuses() -> None:
    done = explain("--help")
    assert "conformance explain aten::celu" in done.stdout
    assert "Exit status" in done.stdout


def test_a_converter_that_is_unknown_is_refused_in_one_line() -> None:
    done = explain("celu", "--converter", "dinamo")
    assert done.exit_code == 2
    assert "did you mean dynamo" in done.stderr


def test_an_operator_without_a_functional_overload_is_named_as_one() -> None:
    done = explain("relu_", "--backend", "onnx-reference")
    assert done.exit_code == 0, done.output
    assert "no overload of it is functional" in done.stdout


def explained(*words: str | Path, status: int) -> Any:
    return answered("explain", *words, "--examples", "6", "--backend", "ort-cpu", status=status)


@pytest.fixture(scope="module")
def celu() -> Any:
    return explained("aten::celu", status=0)


@pytest.fixture(scope="module")
def max_unpool2d() -> Any:
    return explained("max_unpool2d", status=1)


@pytest.fixture(scope="module")
def elu() -> Any:
    return explained("aten.elu", status=0)


@pytest.fixture(scope="module")
def upsample() -> Any:
    return explained("aten::upsample_bilinear2d", status=0)


def pairs(found: Any, overload: int = 0) -> dict[str, dict[str, Any]]:
    """Return the pairs by ATen argument, or by ONNX name if no argument matches."""
    lines = found["overloads"][overload]["pairs"]
    return {
        pair["aten"].split("=")[0].rpartition(" ")[2] if pair["aten"] else f"-{pair['onnx']}": pair for pair in lines
    }


def how(found: Any, overload: int = 0) -> dict[str, str]:
    return {c["converter"]: c["how"] for c in found["overloads"][overload]["conversions"]}


@pytest.mark.parametrize("word", ["celu", "aten.celu", "aten::celu", "torch.ops.aten.celu"])
def test_an_operator_is_found_under_every_spelling(word: str) -> None:
    found = find_operator(word)
    assert found.name == "aten::celu"
    assert [o.name for o in found.overloads] == ["aten.celu.default", "aten.celu.out"]
    assert [o.name for o in found.functional] == ["aten.celu.default"]
    assert "pointwise" in found.overloads[0].tags


def test_one_overload_is_found_alone_and_the_others_are_named() -> None:
    found = find_operator("aten::upsample_bilinear2d.vec")
    (vec,) = found.overloads
    assert vec.composite
    assert vec.functional
    assert "core" in vec.tags
    assert "aten.upsample_bilinear2d.default" in found.others


def test_types_and_defaults_are_those_that_the_schema_prints() -> None:
    (elu, _) = find_operator("elu").overloads
    assert [(p.type, p.name, p.default) for p in elu.signature.parameters] == [
        ("Tensor", "self", None),
        ("Scalar", "alpha", "1"),
        ("Scalar", "scale", "1"),
        ("Scalar", "input_scale", "1"),
    ]
    (vec,) = find_operator("upsample_bilinear2d.vec").overloads
    assert [p.type for p in vec.signature.parameters] == ["Tensor", "SymInt[]?", "bool", "float[]?"]
    assert Parameter(name="x", type="SymInt[2]?").kind == "SymInt[]"
    (sort,) = find_operator("sort.stable").overloads
    assert [p.keyword for p in sort.signature.parameters] == [False, True, True, True]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("celuu", "near: aten.celu.default"),
        ("aten::celu.Tensor", "there are aten.celu.default"),
        ("append", "TorchScript"),
    ],
)
def test_an_unknown_operator_is_refused_with_near_ones(word: str, said: str) -> None:
    with pytest.raises(UnknownOperator, match=said):
        find_operator(word)


def test_the_command_refuses_an_unknown_operator_in_one_line() -> None:
    done = explain("max_unpool2dd")
    assert done.exit_code == 2
    assert "near: aten.max_unpool2d.default" in done.stderr


def test_celu_is_explained_by_its_versions_and_dtypes(celu: Any) -> None:
    assert (celu["onnx"]["name"], celu["onnx"]["domain"], celu["onnx"]["first_opset"]) == (
        "Celu",
        "ai.onnx",
        12,
    )
    versions = {v["opset"]: dict(v["types"]) for v in celu["onnx"]["versions"]}
    # Specification: float alone at first.
    assert versions[12] == {"T": ["float"]}
    assert celu["onnx"]["composed"] is True
    assert how(celu) == {**how(celu), "dynamo": "own", "torchscript": "own"}
    alpha = pairs(celu)["alpha"]
    assert (alpha["onnx"], alpha["kind"], alpha["type"]) == ("alpha", "attribute", "float = 1")
    (emitted,) = (e for e in celu["overloads"][0]["emitted"] if e["converter"] == "dynamo")
    assert emitted["nodes"][0]["operator"] == "Celu"
    assert emitted["nodes"][0]["line"].startswith("aten_celu (onnxscript/function_libs/torch_lib/ops/nn.py:")
    assert pairs(celu)["self"]["onnx"] == "X"
    made = celu["overloads"][0]["decomposition"]
    assert made["source"] == "table"
    assert made["reaches"]
    assert "aten.expm1.default" in made["operators"]
    outcomes = {o["converter"]: o["counts"] for o in celu["overloads"][0]["outcomes"]}
    assert sum(outcomes["dynamo"].values()) == sum(outcomes["torchscript"].values()) == 6


@pytest.mark.slow
def test_an_argument_that_onnx_lacks_has_no_counterpart(elu: Any) -> None:
    assert (elu["onnx"]["name"], elu["onnx"]["first_opset"]) == ("Elu", 1)
    assert [v["opset"] for v in elu["onnx"]["versions"]] == [1, 6, 22]
    found = pairs(elu)
    assert found["alpha"]["onnx"] == "alpha"
    assert found["scale"]["onnx"] == found["input_scale"]["onnx"] == ""
    assert how(elu)["dynamo"] == how(elu)["torchscript"] == "own"
    assert elu["overloads"][0]["decomposition"]["reaches"]


def test_the_advice_on_elu_is_what_pytorch_computes() -> None:
    x = torch.linspace(-3, 3, 41)
    alpha, scale, input_scale = 1.5, 0.7, 2.0
    advised = torch.where(x < 0, scale * torch.nn.functional.elu(input_scale * x, alpha), scale * x)
    torch.testing.assert_close(torch.ops.aten.elu(x, alpha, scale, input_scale), advised)


@pytest.mark.thorough
def test_an_operator_is_explained_with_all_its_overloads(upsample: Any) -> None:
    assert [a["overload"]["signature"]["overload"] for a in upsample["overloads"]] == [
        "aten.upsample_bilinear2d.default",
        "aten.upsample_bilinear2d.vec",
    ]
    assert (upsample["onnx"]["name"], upsample["onnx"]["first_opset"]) == ("Resize", 10)
    added = {v["opset"]: " ".join(v["changes"]) for v in upsample["onnx"]["versions"]}
    assert "attribute axes added" in added[18]
    assert "input sizes added" in added[11]
    first, second = pairs(upsample, 0), pairs(upsample, 1)
    assert first["self"]["onnx"] == second["input"]["onnx"] == "X"
    assert first["output_size"]["onnx"] == second["output_size"]["onnx"] == "sizes"
    assert first["align_corners"]["onnx"] == "coordinate_transformation_mode"
    assert first["scales_h"]["onnx"] == second["scale_factors"]["onnx"] == "scales"
    assert first["-mode"]["why"] == "linear"
    # Nothing of Resize is left out.
    onnx_names = {pair["onnx"] for pair in first.values()}
    assert onnx_names == {slot["name"] for slot in upsample["onnx"]["slots"] if slot["kind"] != "output"}
    assert how(upsample, 0)["dynamo"] == how(upsample, 1)["dynamo"] == "own"
    assert upsample["overloads"][1]["overload"]["composite"] is True


def evaluated(node: str, opset: int, **feeds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the result of a node of images and sizes by the specification's own implementation."""
    inputs = "float[a,b,c,d] x, int64[4] s" + ", int64[a,b,c,d] i" * ("i" in feeds)
    model = onnx_model(inputs, "float[e,f,g,h] y", node, opset=opset)
    (result,) = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(result)


def resize(x: torch.Tensor, size: list[int], mode: str) -> np.ndarray[Any, Any]:
    """Resize as the specification's implementation does."""
    how = f'mode = "linear", coordinate_transformation_mode = "{mode}"'
    sizes = np.array([*x.shape[:2], *size], dtype=np.int64)
    return evaluated(f'y = Resize <{how}> (x, "", "", s)', 19, x=x.numpy(), s=sizes)


@pytest.mark.parametrize("size", [[1, 1], [3, 5], [1, 9], [8, 2]])
@pytest.mark.parametrize(("align_corners", "mode"), [(False, "half_pixel"), (True, "align_corners")])
def test_the_advice_on_align_corners_is_what_pytorch_computes(size: list[int], align_corners: bool, mode: str) -> None:
    x = torch.rand(1, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    expected = torch.ops.aten.upsample_bilinear2d.default(x, size, align_corners)
    np.testing.assert_allclose(resize(x, size, mode), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_the_other_half_pixel_differs_for_an_output_of_size_one() -> None:
    x = torch.arange(4.0).view(1, 1, 1, 4)
    assert torch.ops.aten.upsample_bilinear2d.default(x, [1, 1], False).item() == 1.5
    assert resize(x, [1, 1], "pytorch_half_pixel").item() == 0.0


@pytest.mark.slow
def test_an_operator_without_a_function_of_torchlib_is_decomposed(max_unpool2d: Any) -> None:
    assert (max_unpool2d["onnx"]["name"], max_unpool2d["onnx"]["first_opset"]) == ("MaxUnpool", 9)
    # torchlib has no function for it, but for all that PyTorch takes it apart into.
    assert how(max_unpool2d)["dynamo"] == "decomposition"
    assert how(max_unpool2d)["torchscript"] == "none"
    assert max_unpool2d["missing"]["torchscript"] == ["aten.max_unpool2d.default"]
    assert "dynamo" not in max_unpool2d["missing"]
    assert max_unpool2d["overloads"][0]["decomposition"]["reaches"]
    assert "MaxUnpool" not in max_unpool2d["emits"]["dynamo"]
    found = pairs(max_unpool2d)
    assert {name: found[name]["onnx"] for name in ("self", "indices", "output_size")} == {
        "self": "X",
        "indices": "I",
        "output_size": "output_shape",
    }
    assert {"-kernel_shape", "-strides", "-pads"} <= set(found)
    outcomes = {o["converter"]: o["counts"] for o in max_unpool2d["overloads"][0]["outcomes"]}
    assert set(outcomes["torchscript"]) == {"unsupported"}
    assert outcomes["dynamo"]["pass"] == 6


def unpool(x: torch.Tensor, indices: torch.Tensor, size: list[int]) -> np.ndarray[Any, Any]:
    """MaxUnpool as the table advises, by the specification's own implementation."""
    planes = x.shape[0] * x.shape[1]
    offsets = torch.arange(planes).view(*x.shape[:2], 1, 1) * size[0] * size[1]
    kernel = [max(out - into + 1, 1) for out, into in zip(size, x.shape[2:], strict=True)]
    feeds = {"x": x.numpy(), "i": (indices + offsets).numpy(), "s": np.array([*x.shape[:2], *size])}
    return evaluated(f"y = MaxUnpool <kernel_shape = {kernel}> (x, i, s)", 18, **feeds)


def test_the_advice_on_max_unpool2d_is_what_pytorch_computes() -> None:
    image = torch.rand(2, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    pooled, indices = torch.nn.functional.max_pool2d(image, 2, return_indices=True)
    expected = torch.ops.aten.max_unpool2d(pooled, indices, [6, 8])
    np.testing.assert_array_equal(unpool(pooled, indices, [6, 8]), expected.numpy())


def test_an_operator_without_any_conversion_is_explained() -> None:
    """Hermite polynomials: no operator of ONNX, no conversion, no decomposition."""
    found = explained("special_hermite_polynomial_h", status=1)
    assert found["onnx"] is None
    about = found["overloads"][0]
    assert {c["how"] for c in about["conversions"]} == {"none"}
    assert about["decomposition"]["source"] == "none"
    assert {"dynamo", "torchscript"} <= set(found["missing"])


def test_every_name_in_the_table_exists() -> None:
    operators = onnx_operator._table()["operator"]
    for entry in operators:
        for name in entry["aten"]:
            found = onnx_operator.candidate(f"aten::{name}")
            if found is None:
                continue
            slots = {slot.name for slot in onnx_operator.find(found.onnx).node_slots}
            assert {m.onnx for m in found.arguments.values()} - {""} <= slots, name
            assert set(found.others) <= slots, name
            arguments = {p.name for o in find_operator(name).overloads for p in o.signature.parameters}
            assert set(found.arguments) <= arguments, name


def test_names_alone_find_most_operators() -> None:
    for packet, name in {
        "aten::_log_softmax": "LogSoftmax",
        "aten::cumsum": "CumSum",
        "aten::leaky_relu": "LeakyRelu",
        "aten::max_pool2d": "MaxPool",
        "aten::sum": "ReduceSum",
    }.items():
        found = onnx_operator.candidate(packet)
        assert found is not None
        assert found.onnx == name
    assert onnx_operator.candidate("aten::special_hermite_polynomial_h") is None
