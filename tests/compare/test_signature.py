"""Signatures of messages that the installed exporters and runtimes really gave."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper

from harness.compare.problem_kinds import PROBLEMS
from harness.compare.signatures import LIMIT, normalise

DYNAMO = """ConversionError: Failed to convert the exported program to an ONNX model. \x1b[96mThis is \
step 3/3\x1b[0m of \
exporting the model to ONNX. Next steps:
- If there is a missing ONNX function, implement it and register it to the registry.
- If there is an internal error during ONNX conversion, debug the error and submit a PR to PyTorch.

## Exception summary

<class 'NotImplementedError'>: aten_histc with min == max ({value}) is not supported in this export path.
⬆️
<class 'torch.onnx._internal.exporter._errors.GraphConstructionError'>: Error when calling function \
'TracedOnnxFunction(<function aten_histc at {address}>)' with args '[SymbolicTensor(name='{name}', \
type=Tensor({dtype}), shape=Shape([2, 3])), 4]' and kwargs '{{}}'
⬆️
<class 'torch.onnx._internal.exporter._errors.ConversionError'>: Error when translating node %histc : \
[num_users=1] = call_function[target=torch.ops.aten.histc.default](args = (%{name}, 4), kwargs = {{}}). \
See the stack trace for more information.

(Refer to the full stack trace above for more information.)"""

NESTED = """ConversionError: Failed to convert the exported program to an ONNX model. Next steps: …
caused by ConversionError: Error when translating node %mul_3 : [num_users=1] = \
call_function[target=torch.ops.aten.mul.Tensor](args = (%c3_i0, %c3_i1), kwargs = {}). See the stack \
trace for \
more information.
caused by GraphConstructionError: Error when calling function 'TracedOnnxFunction(<function aten_mul at \
0x7face05cc900>)' with args '[…]' and kwargs '{}'
caused by IndexError: list index out of range"""

TORCHSCRIPT = """SymbolicValueError: Unsupported: ONNX export of operator adaptive_avg_pool2d, output \
size that are not \
factor of input size. Please feel free to request support or submit a pull request on PyTorch GitHub: \
https://github.com/pytorch/pytorch/issues  [Caused by the value '1 defined in (%1 : Long(2, strides=[1], \
device=cpu) = onnx::Constant[value= 3  5 [ CPULongType{2} ]]()
)' (type 'Tensor') in the TorchScript graph. The containing node has kind 'onnx::Constant'.]

    Inputs:
        Empty"""

OPENVINO = """RuntimeError: Exception from src/inference/src/cpp/core.cpp:105:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- Celu-20 with a message:
While validating ONNX node '<Node(Celu): node_celu_12>': Check 'element::Type::merge(result_et)' failed at \
src/core/src/op/util/elementwise_args.cpp:18:
While validating node 'opset1::Maximum Maximum_10747 (opset1::Parameter x[0]:f64[2,3]) -> (dynamic[...])' \
with \
friendly_name 'Maximum_10747':
Arguments do not have the same element type (arg0 element type: f64, arg1 element type: f32).

Summary:
-- Conversion is failed for: Celu-20
"""

TENSORRT = """InvalidModel: INVALID_NODE: Add: Invalid Node - node_add_12
ITensor::getDimensions: Error Code 4: API Usage Error (node_add_12: ElementWiseOperation SUM must have \
same input \
types. But they are of types Float and Int64. In validateTypes at /_src/optimizer/elementWiseNode.cpp:40)"""

RESHAPE = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. "
    "Name:'n3_val_5' Status Message: "
    "/onnxruntime_src/onnxruntime/core/providers/cpu/tensor/reshape_helper.h:91 "
    "onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, "
    "onnxruntime::TensorShapeVector&, bool) input_shape_size == requested_shape_size was false. The input "
    "tensor cannot be reshaped to the requested shape. Input shape:{2,3}, requested shape:{7}\n"
)


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        (
            DYNAMO.format(value="0.0", address="0x7face05cc900", name="a_0", dtype="FLOAT"),
            "NotImplementedError: aten_histc with min == max (<n>) is not supported in this export path.",
        ),
        (NESTED, "in aten_mul: IndexError: list index out of range"),
        (
            TORCHSCRIPT,
            "SymbolicValueError: Unsupported: ONNX export of operator adaptive_avg_pool2d, output size "
            "that are not factor of input size.",
        ),
        (
            "torch.onnx.errors.UnsupportedOperatorError: Exporting the operator 'aten::special_bessel_j0' "
            "to ONNX opset version 20 is not supported",
            "UnsupportedOperatorError: Exporting the operator 'aten::special_bessel_j0' to ONNX opset "
            "version <n> is not supported",
        ),
        (
            "DispatchError: No ONNX function found for <OpOverload(op='prims.erf_inv', "
            "overload='default')>. Failure message: No decompositions registered for the real-valued input",
            "DispatchError: No ONNX function found for prims.erf_inv.default. Failure message: No "
            "decompositions registered for the real-valued input",
        ),
        (
            RESHAPE,
            "FAIL: running Reshape: input_shape_size == requested_shape_size was false. The input tensor "
            "cannot be reshaped to the requested shape. Input shape:<list>, requested shape:<list>",
        ),
        (
            "UnsupportedModel: [ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an "
            "implementation for Celu(12) node with name 'node_celu_7'\ncaused by NotImplemented: "
            "[ONNXRuntimeError] : 9 : …",
            "NOT_IMPLEMENTED: Could not find an implementation for Celu(<n>)",
        ),
        (
            "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. Type Error: Type "
            "'tensor(int8)' of input parameter (onnx::Add_0) of operator (Add) in node (/Add) is invalid.",
            "INVALID_GRAPH: This is an invalid model. Type Error: Type '<dtype>' of operator (Add) is invalid.",
        ),
        (
            OPENVINO,
            "Celu: Arguments do not have the same element type (arg0 element type: <dtype>, arg1 element "
            "type: <dtype>).",
        ),
        (
            TENSORRT,
            "Add: ITensor::getDimensions: Error Code <n>: API Usage Error (ElementWiseOperation SUM must "
            "have same input types. But they are of types <dtype> and <dtype>.",
        ),
        (
            "No Op registered for Foo with domain_version of 20\n\n==> Context: Bad node spec for node. "
            "Name: n OpType: Foo",
            "No Op registered for Foo with domain_version of <n>",
        ),
        (
            "\"bitwise_not_cpu\" not implemented for 'Half'",
            "\"bitwise_not_cpu\" not implemented for '<dtype>'",
        ),
        ("values: output 0[1,2]: expected 1.0, got 2.0", "values"),
        ("process killed by SIGSEGV\nFatal Python error", "process killed by SIGSEGV"),
        ("", ""),
    ],
)
def test_a_signature_says_what_the_defect_is(message: str, signature: str) -> None:
    assert normalise(message) == signature


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            DYNAMO.format(value="0.0", address="0x7face05cc900", name="c0_i0", dtype="FLOAT"),
            DYNAMO.format(value="1e-05", address="0x7fac00000000", name="c117_i0", dtype="DOUBLE"),
        ),
        ("expand: [2, 3] to (4,) at /tmp/tmpab12cd34/m.py:12", "expand: [] to (1, 5) at /home/x/y/m.py:7"),
        ("sizes 2, 3 and nan for node_add_12", "sizes 5, 1 and -inf for node_add"),
        ("expected torch.float16 but got torch.bfloat16", "expected torch.int8 but got torch.float8_e4m3fn"),
        ("bad value in /Cast_output_0", "bad value in /Sub/Cast_1_output_0"),
        ("<Foo object at 0x7f00> failed in c17_o0", "<Foo object at 0x7fff12> failed in c3_i12"),
        ("no 'InsertedCast_c15_i0 : to'", "no 'InsertedCast_c3_o12 : to'"),
        ("could not open /tmp/tmpx1y2z3a4/model.onnx", "could not open ./build/other.onnx"),
    ],
)
def test_a_signature_forgets_what_belongs_to_one_case(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Could not find an implementation for Celu(12)", "Could not find an implementation for Conv(12)"),
        ("ONNX does not support mean reduction", "ONNX does not support prod reduction"),
        ("'aten::special_bessel_j0' is not supported", "'aten::special_bessel_j1' is not supported"),
        ("No ONNX function found for aten.max_pool2d", "No ONNX function found for aten.max_pool3d"),
        ("process killed by SIGSEGV", "process killed by SIGFPE"),
        (NESTED, NESTED.replace("aten_mul", "aten_div")),
    ],
)
def test_a_signature_keeps_defects_apart(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


FRAGMENTS = st.sampled_from(
    [
        "[ONNXRuntimeError] : 9 : X : ", "<n>", "<list>", "[", "]", "(", ")", "{", "}", ",", "1", "2.5", "-3",
        "nan", "0x1f", "/tmp/a/b.py:3", "/Cast_output_0", "node_add_1", "c1_i0", "torch.float32",
        "'Half'", " ",
        "tensor(int8)", "\n", " in node (", "Name:'", "caused by ", "values: ", "Check 'x' failed at ",
        "%a", "s0",
        "?", " Please see ", "Exception from ", "a.B: ", "## Exception summary", "⬆️", "Status Message:",
        "torch.Size([", "Traceback (most recent call last)\n", "ValueError: ", "<class 'a.b'>", "word",
    ]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.text() | st.lists(FRAGMENTS | st.text(max_size=4), max_size=60).map("".join))
def test_one_short_line_that_is_its_own_signature(message: str) -> None:
    signature = normalise(message)
    assert normalise(signature) == signature
    assert len(signature) <= LIMIT
    assert len(signature.splitlines()) <= 1


@given(st.lists(st.integers(0, 10**6), max_size=6), st.lists(st.integers(0, 10**6), max_size=6))
def test_shapes_make_no_difference(one: list[int], other: list[int]) -> None:
    message = "cannot broadcast {} to the other"
    assert normalise(message.format(one)) == normalise(message.format(other))


def test_long_messages_take_no_time() -> None:
    for piece in ("(", "a/", "[1,", "(1, ", "x1x", 'In Node, ("a", b, c, '):
        assert len(normalise(piece * 20_000)) <= LIMIT


def _celu(elem_type: int, name: str) -> onnx.ModelProto:
    value = [helper.make_tensor_value_info(n, elem_type, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Celu", ["x"], ["y"], name=name)], "g", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_missing_kernel_of_onnxruntime_has_one_signature_in_several_dtypes() -> None:
    signatures = set()
    for index, elem_type in enumerate((TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)):
        with pytest.raises(Exception, match="Celu") as caught:
            onnxruntime.InferenceSession(_celu(elem_type, f"node_celu_{index}").SerializeToString())
        signatures.add(normalise(f"{type(caught.value).__name__}: {caught.value}"))
    assert len(signatures) == 1


def test_a_missing_rule_of_torch_onnx_has_one_signature_in_several_programs() -> None:
    class Program(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch.ops.aten.mode.default(x)[0] for x in inputs)

    signatures = set()
    for dtype, count in ((torch.float32, 1), (torch.int64, 2)):
        inputs = tuple(torch.from_numpy(np.ones((2, 3 + n))).to(dtype) for n in range(count))
        with pytest.raises(Exception, match="Failed to convert") as caught:
            torch.onnx.export(Program(), inputs, dynamo=True, verbose=False)
        signatures.add(normalise(str(caught.value)))
    [signature] = signatures
    assert "aten.mode.default" in signature


def test_the_name_of_a_conversion_function_is_kept() -> None:
    said = "in aten_scaled_dot_product_attention_23: AssertionError: only 4D query, key, and value are supported"
    assert normalise(said) == said


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_a_comparison_says_collapses(problem: str) -> None:
    detail = "output 0[3,17]: expected 65504.0, got inf"
    assert normalise(f"{problem}: {detail}") == problem


@pytest.mark.parametrize("symbol", ["u0", "u8", "u16", "u64"])
def test_a_symbol_of_torch_export_is_not_a_dtype(symbol: str) -> None:
    said = f"Could not extract specialized integer from data-dependent expression {symbol} (unhinted: {symbol})."
    assert normalise(said).endswith("expression <n> (<n>).")
