"""The diagnosis of a failing call, in this process: the owner, the rule that decides, and what witnesses state.

Each call failed in a run once, and its owner was found by hand. Where a graph is written out, it takes the place
of the export.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from failure_contexts import diagnosis_of, graph_of_nodes, states, trial_of
from recorded_rows import call, tensor, unary

from harness.blame.failure_context import FailureContext
from harness.blame.witnesses.pytorch import ask_row_major
from harness.compare.verdict import Outcome
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Recipe, TensorSpec
from harness.pipeline.definition import defined_outputs


@dataclass(frozen=True)
class Case:
    """A failing call.

    Attributes:
        owner: The component that is to blame.
        rule: The rule of the decision table.
        stated: Statements that witnesses must make, with some of their facts.
        unstated: Statements that no witness may make.
        options: The converter, the backend and the outcome, if they are not the usual ones.
        nodes: The graph, in ONNX's text format; "" for the export.
        numbers: Initializers of the graph.
    """

    call: Invocation
    owner: str
    rule: str
    stated: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unstated: Collection[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    nodes: str = ""
    numbers: Mapping[str, Array] = field(default_factory=dict)

    def failure(self) -> FailureContext:
        """Return the failure as witnesses see it."""
        model = graph_of_nodes(self.call, self.nodes, self.numbers) if self.nodes else None
        return trial_of(self.call, model=model, **self.options)


def stated(statement: str, **facts: Any) -> dict[str, Mapping[str, Any]]:
    """Return a statement with its facts."""
    return {statement: facts}


REFUSED = {"outcome": Outcome.ERROR}
EVALUATOR, OPENVINO = {"backend": "onnx-reference"}, {"backend": "openvino"}
TORCHSCRIPT = {"converter": "torchscript"}

IMAGE = tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
SMOOTHED = call(
    "aten.cross_entropy_loss.default",
    self=tensor([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]]),
    target=[2, 0],
    weight=None,
    label_smoothing=0.25,
)
OVERRIDDEN = call("aten.avg_pool2d.default", self=IMAGE, kernel_size=(2, 2), divisor_override=3)
EQUAL_NAN = call("aten.isclose.default", self=[nan, 1.0], other=[nan, 1.0], rtol=0.1, atol=0.1, equal_nan=True)
SCALED_SUM = call("aten.add.Tensor", self=[1.0, 1.0], other=[2.0, 2.0], alpha=2)
LOG10 = unary("aten.log10.default", [0.5, 3.0, 7.0], "float64")
ROUNDED = tensor([15.0, 1250.0, 0.05, 40.0], "float16")
PAIRS = tensor([[1j, 2.0], [3j, 4.0], [5j, 6.0]], "complex64")
LARGE = tensor([3.4e38 + 3.4e38j, 3.4e38 + 3.4e38j], "complex64")
GRID = call(
    "aten.affine_grid_generator.default",
    theta=tensor([[[1.0, 0.5, 0.0], [0.25, 2.0, 1.0]]]),
    size=(1, 1, 1, 2),
    align_corners=True,
)


def added(beta: float) -> Invocation:
    """The kernel leaves out an infinite product of weight zero; the graph has its scale as a float32."""
    given = {"self": tensor([3.0, 3.0], "float64"), "mat": tensor([[inf], [1.0]], "float64")}
    return call("aten.addmv.default", **given, vec=tensor([1.0], "float64"), beta=beta, alpha=0.0)


def transposed(**more: Any) -> Invocation:
    return call("aten.conv_transpose1d.default", input=tensor([[[0, 1, 2, 3]]], "float32"), **more)


def spread(*values: float) -> TensorSpec:
    """Return numbers that lie apart in memory."""
    return tensor([v for value in values for v in (value, 0.0)], shape=(len(values),), strides=(2,))


DECOMPOSITIONS = {
    # Both make a copy of the source of it; the exporter has a conversion of its own.
    "the exporter leaves a decomposition alone": Case(
        call("aten.slice_scatter.default", self=[1, 2], src=tensor([3, 4], "int32"), dim=0, end=None),
        "converter",
        "optimiser-breaks-graph",
        stated("decomposition/other"),
        options=EVALUATOR,
    ),
    "a graph repeats a definition": Case(
        added(2.0), "pytorch", "kernel-against-decomposition", stated("decomposition/contradicts"), options=EVALUATOR
    ),
    "a graph adds to a definition": Case(
        added(0.1), "converter", "graph-asks-otherwise", stated("decomposition/other"), options=EVALUATOR
    ),
    # It reads beyond an image that is one pixel wide.
    "a decomposition does not run in PyTorch": Case(
        call(
            "aten.upsample_bilinear2d.default",
            self=tensor([[[[7.0]]]]),
            output_size=(1, 3),
            align_corners=False,
            scales_h=1.5,
            scales_w=1.0,
        ),
        "pytorch",
        "decomposition-fails",
        stated("program/refuses"),
        options=REFUSED,
    ),
    # x1 + (x2 - x1)·w of two equal infinities is NaN in the decomposition, and the infinity in the kernel.
    "float64 confirms the kernel": Case(
        call(
            "aten.upsample_linear1d.vec",
            input=tensor([[[1.0, inf, inf]]]),
            output_size=(5,),
            align_corners=True,
            scale_factors=None,
        ),
        "pytorch",
        "decomposition-gives-it",
        stated("decomposition/contradicts"),
    ),
}
ARGUMENTS = {
    "label_smoothing is ignored": Case(
        SMOOTHED, "converter", "ignored-argument", stated("ignored-argument/same", argument="label_smoothing")
    ),
    "divisor_override is ignored": Case(
        OVERRIDDEN, "converter", "ignored-argument", stated("ignored-argument/same", argument="divisor_override")
    ),
    # Wrong at one element, where the call without `equal_nan` is false, too.
    "truth values are alike by chance": Case(
        EQUAL_NAN,
        "converter",
        "graph-asks-otherwise",
        unstated=["ignored-argument/same"],
        nodes="c0_o0 = Equal(c0_i0, c0_i1)",
    ),
    # 3 comes without `alpha` too, which the other element has.
    "one number is alike by chance": Case(
        SCALED_SUM,
        "converter",
        "graph-asks-otherwise",
        unstated=["ignored-argument/same"],
        nodes="scaled = Mul(c0_i1, scales) c0_o0 = Add(c0_i0, scaled)",
        numbers={"scales": np.array([1.0, 2.0], np.float32)},
    ),
    # The only element of a window is 1.
    "the exporter computes the result": Case(
        call("aten.blackman_window.default", window_length=1, dtype=None),
        "converter",
        "constant-result",
        stated("constant-output/same", output="c0_o0"),
    ),
    "a result is an initializer": Case(
        unary("aten.neg.default", [1.0, 2.0]),
        "converter",
        "constant-result",
        stated("constant-output/same"),
        nodes="c0_o0 = Identity(number)",
        numbers={"number": np.array([3.0, 4.0], np.float32)},
    ),
    "a result is a copy of an input": Case(
        unary("aten.neg.default", [1.0, 2.0]),
        "converter",
        "graph-asks-otherwise",
        unstated=["constant-output/same"],
        nodes="c0_o0 = Identity(c0_i0)",
    ),
}
NUMBERS = {
    # In float64 nothing confirms PyTorch, and both converters emit the same.
    **{
        f"a logarithm is rounded by {name}": Case(
            LOG10,
            "converter",
            "fewer-bits",
            stated("rounded-constant/same", number=2.3025851249694824, exact=2.302585092993923),
            options={"converter": name},
        )
        for name in ("dynamo", "torchscript")
    },
    # PyTorch divides by ten, the graph multiplies by float16's nearest to a tenth. ONNX Runtime computes the three
    # nodes together in float32, where that number shows.
    **{
        f"a reciprocal of {10**-decimals} is rounded by {name}": Case(
            call("aten.round.decimals", self=ROUNDED, decimals=decimals),
            "converter",
            "fewer-bits",
            stated("rounded-reciprocal/same", divisor=10**-decimals),
            options={"converter": name},
        )
        for name in ("dynamo", "torchscript")
        for decimals in (-1, -2)
    },
    "a reciprocal is exact": Case(
        call("aten.div.Scalar", self=[15.0, 3.0], other=8.0),
        "converter",
        "graph-asks-otherwise",
        unstated=["rounded-reciprocal/same"],
        nodes="product = Mul(c0_i0, eighth) c0_o0 = Neg(product)",
        numbers={"eighth": np.asarray(0.125, np.float32)},
    ),
    # Times 10^5, which float16 does not hold; ONNX Runtime runs a function that is not inlined in float32.
    "a runtime computes a function with more bits": Case(
        call("aten.round.decimals", self=tensor([0.5], "float16"), decimals=5),
        "converter",
        "graph-asks-otherwise",
        stated("unoptimised-export/same", backend="onnx-reference"),
        unstated=["exporter-passes/right"],
    ),
    **{
        f"another error than that of {name}": Case(
            LOG10,
            "converter",
            "graph-asks-otherwise",
            unstated=["rounded-constant/same"],
            nodes="l = Log(c0_i0) q = Div(l, number) c0_o0 = Add(q, slip)",
            numbers={"number": np.asarray(number), "slip": np.asarray(1e-6)},
        )
        for name, number in (("a round number", 2.5), ("a rounded one", float(np.float32(np.log(10.0)))))
    },
    # 0.001 as a float32 is another number: what dynamo made of it is not what PyTorch was asked.
    "a number that a tensor would round": Case(
        call(
            "aten.where.ScalarOther",
            condition=[True, False, False],
            self=tensor([2.0, -1.0, 0.5], "float64"),
            other=0.001,
        ),
        "converter",
        "fewer-bits",
    ),
    # -inf to the power of a half is NaN with a number, and inf with a tensor.
    "a number as a tensor": Case(
        call("aten.pow.Tensor_Scalar", self=[-inf, 4.0], exponent=0.5),
        "pytorch",
        "pytorch-contradicts-itself",
        stated("sibling-overload/contradicts", overload="aten.pow.Tensor_Tensor"),
    ),
    # PyTorch's real part leaves the range; dynamo multiplies it by the real part of the factor alone.
    "the backend has not the truth where PyTorch leaves the range": Case(
        call("aten.rsub.Tensor", self=LARGE, other=LARGE, alpha=0.1 + 2049j), "converter", "graph-asks-otherwise"
    ),
    # Log(1 + x) and Log(Sigmoid(x)): the graph loses the result on the way.
    **{
        f"{operator} by {name}": Case(
            unary(f"aten.{operator}.default", values, "float64"),
            "converter",
            "graph-asks-otherwise",
            options={"converter": name},
        )
        for operator, values in (("special_log1p", [2.7e-44, 0.5]), ("log_sigmoid", [-1.5e308, 1.0]))
        for name in ("dynamo", "torchscript")
    },
}
SPECIFICATION = {
    "a bound that is left out": Case(
        call("aten.clamp_min.default", self=[1.0, -2.0, 0.5], min=inf),
        "converter",
        "graph-asks-otherwise-by-spec",
        stated("open-question/settled", operator="Clip", subject="an infinity within bounds that are left out"),
        options=TORCHSCRIPT,
    ),
    # At the corner of the image, which is infinite: PyTorch leaves its neighbours out.
    "a weight of zero for an infinity": Case(
        call(
            "aten.grid_sampler_2d.default",
            input=tensor([[[[1.0, 2.0], [3.0, inf]]]]),
            grid=tensor([[[[1.0, 1.0]]]]),
            interpolation_mode=0,
            padding_mode=1,
            align_corners=True,
        ),
        "spec",
        "left-open",
        stated("open-question/open", subject="infinities and NaN whose weight is zero"),
    ),
    "the upper boundary of a random number": Case(
        unary("aten.rand_like.default", [0.0] * 500, "float16"),
        "spec",
        "left-open",
        stated("open-question/open", quote="Upper boundary of the output values."),
    ),
    "the only pixel along an axis": Case(
        GRID,
        "spec",
        "left-open",
        stated("open-question/open", subject="the place of the only pixel along an axis"),
        options=TORCHSCRIPT,
    ),
    # Another layout of the same numbers.
    "the shape of a grid": Case(GRID, "backend", "wrong-node", options={**TORCHSCRIPT, **OPENVINO}),
    # The graph splits the last dimension in three, where PyTorch takes the first that has a size of three.
    "a wrong shape and a node that fails": Case(
        call(
            "aten.cross.default",
            **dict.fromkeys(("self", "other"), tensor([[1, 2], [3, 4], [5, 6]], "int32")),
            dim=None,
        ),
        "converter",
        "graph-asks-otherwise",
        {
            **stated("defined-shape/shape-or-dtype", defined=[3, 1], expected=[3, 2]),
            **stated("refused-node/valid", operator="Split"),
        },
        options={**OPENVINO, **REFUSED},
    ),
    # `exp(x) - 1`; ONNX Runtime has no Sub of bfloat16.
    "a narrow dtype that an evaluator lacks": Case(
        unary("aten.expm1.default", [2.0**-12, 1.0], "bfloat16"),
        "converter",
        "graph-asks-otherwise",
        stated("nodes-as-defined/same", nodes=2),
        options=EVALUATOR,
    ),
    "a dimension that the text denies": Case(
        call("aten.cumsum.default", self=[1.0, 2.0], dim=0),
        "converter",
        "invalid-node",
        stated("invalid-node/invalid", input="axis", shape=[1], quote="A 0-D tensor"),
        options={**EVALUATOR, **REFUSED},
        nodes="c0_o0 = CumSum(c0_i0, axis)",
        numbers={"axis": np.array([0])},
    ),
    "a dimension that the text asks for": Case(
        call("aten.clone.default", self=tensor(1.0)),
        "converter",
        "invalid-node",
        stated("invalid-node/invalid", input="data", shape=[], quote="Tensor of rank r >= 1."),
        options=REFUSED,
        nodes="c0_o0 = ScatterND(c0_i0, place, new)",
        numbers={"place": np.zeros((1, 0), np.int64), "new": np.array([2.0], np.float32)},
    ),
    # The graph is an identity of real numbers.
    "the declared rank of an input": Case(
        call("aten.fft_ifft2.default", self=PAIRS, s=None, dim=(), norm=None),
        "converter",
        "invalid-model",
        stated("declared-shape/invalid", input="c0_i0", declared=[3, 2], given=[3, 2, 2]),
        options=REFUSED,
    ),
    "the shape of updates": Case(
        call("aten.scatter_add.default", self=[1.0, 2.0, 3.0], dim=0, index=[0], src=[5.0, 7.0]),
        "converter",
        "invalid-model",
        stated("shape-of-updates/invalid", operator="ScatterElements", quote="same rank and shape as indices"),
        options=REFUSED,
    ),
    "a value that the text does not allow": Case(
        call("aten.dropout.default", input=[1.0, 2.0, 3.0], p=1.0, train=True),
        "converter",
        "invalid-node",
        stated("invalid-node/invalid", input="ratio", values="1.0"),
        options=REFUSED,
    ),
    "one random number for many elements": Case(
        call("aten.normal.Tensor_Tensor", mean=tensor(0.0), std=[1.0] * 300),
        "converter",
        "graph-asks-otherwise",
        stated("drawn-numbers/same", drawn=1, elements=300),
    ),
    # Two runtimes that refuse a model may share a limitation.
    **{
        f"padding of an output below the dilation by {name}": Case(
            transposed(weight=tensor([[[0, 1]]], "float32"), bias=None, output_padding=(1,), dilation=(3,)),
            "backend",
            "fails-on-valid-node",
            {
                **stated("other-backend/refuses", witness="onnx-reference"),
                **stated("refused-node/valid", operator="ConvTranspose"),
            },
            options={"converter": name, **REFUSED},
        )
        for name in ("dynamo", "torchscript")
    },
    **{
        f"indices {indices}": Case(
            unary("aten.relu.default", [1.0, 2.0, 3.0]),
            owner,
            rule,
            options=REFUSED,
            nodes="c0_o0 = Gather(c0_i0, indices)",
            numbers={"indices": np.array(indices)},
        )
        for indices, owner, rule in (
            ([0, 2, 1], "unknown", "undecided"),
            ([-3, -1, 0], "unknown", "undecided"),
            ([0, 3, 1], "converter", "invalid-model"),
            ([-4, 0, 1], "converter", "invalid-model"),
        )
    },
}
ELEMENTS = {
    # PyTorch gives for row-major copies what it gives for the inputs as they are.
    "an infinity is not PyTorch's number": Case(
        call("aten.neg.default", self=spread(1000.0, 2000.0)),
        "converter",
        "graph-asks-otherwise",
        unstated=["row-major/contradicts"],
        nodes="c0_o0 = Exp(c0_i0)",
    ),
    "a zero is not PyTorch's other zero": Case(
        call("aten.neg.default", self=spread(0.0, 0.0)),
        "converter",
        "graph-asks-otherwise",
        unstated=["row-major/contradicts"],
        nodes="c0_o0 = Sub(zero, c0_i0)",
        numbers={"zero": np.zeros((), np.float32)},
    ),
    # dynamo gives 1 for the sum of the weights; the mean of the losses is right but for a rounding.
    "what is excused has no voice": Case(
        call(
            "aten.nll_loss_forward.default",
            self=TensorSpec((31, 1), "float16", (1, 0), 0, Recipe(("any",), "plain", 4058078348)),
            target=[0] * 31,
            weight=None,
            reduction=1,
            ignore_index=-100,
        ),
        "converter",
        "constant-result",
        stated("other-backend/same", witness="onnx-reference"),
    ),
    # A cast to float32 overflows; ONNX Runtime has 0 for exp(x) - 1 in addition, which is not what is reported.
    "elements of another kind of failure": Case(
        call("aten.celu.default", self=tensor([-1e-16, 1.7976931348623157e308], "float64"), alpha=0.5),
        "converter",
        "graph-asks-otherwise",
        options=TORCHSCRIPT,
    ),
}
CASES = {**DECOMPOSITIONS, **ARGUMENTS, **NUMBERS, **SPECIFICATION, **ELEMENTS}


@pytest.mark.parametrize("name", CASES)
def test_the_owner_is_named_by_what_witnesses_state(name: str) -> None:
    case = CASES[name]
    if case.options.get("backend") == "openvino":
        pytest.importorskip("openvino")
    decision = diagnosis_of(case.failure())
    assert (decision.blame, decision.rule) == (case.owner, case.rule)
    for statement, facts in case.stated.items():
        assert states(decision, statement, **facts), decision.testimony
    for statement in case.unstated:
        assert not states(decision, statement)


def test_elements_of_two_causes_have_two_owners() -> None:
    # ONNX Runtime computes powers of int64 in float64, and the graph adds 1 to another element.
    power = call("aten.pow.Tensor_Scalar", self=[55107, 5], exponent=4)
    nodes, numbers = "p = Pow(c0_i0, four) c0_o0 = Add(p, off)", {"four": np.array(4), "off": np.array([0, 1])}
    decision = diagnosis_of(trial_of(power, model=graph_of_nodes(power, nodes, numbers)))
    assert (decision.blame, decision.rule) == ("backend", "wrong-node")
    assert decision.rest is not None
    assert (decision.rest.blame, decision.rest.rule) == ("converter", "graph-asks-otherwise")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("an infinity is not PyTorch's number", "infinities"),
        ("a zero is not PyTorch's other zero", "sign of zero"),
        ("elements of another kind of failure", "overflow to infinity"),
        ("log_sigmoid by dynamo", "overflow to infinity"),
    ],
)
def test_a_failure_is_of_the_kind_that_its_first_wrong_element_shows(name: str, problem: str) -> None:
    context = CASES[name].failure()
    assert context.comparison is not None
    assert context.comparison.problem == problem


def test_only_elements_that_show_the_kind_of_failure_count() -> None:
    (wrong,) = CASES["elements of another kind of failure"].failure().wrong
    assert wrong.tolist() == [False, True]
    mean, weights = CASES["what is excused has no voice"].failure().wrong
    assert (bool(mean.any()), bool(weights.all())) == (False, True)


def test_two_draws_that_are_equal_are_no_evidence() -> None:
    # Of two elements drawn without replacement PyTorch gives one order or the other, each as often.
    drawn = call("aten.multinomial.default", self=tensor([0.5], shape=(2,), strides=(0,)), num_samples=2)
    model = graph_of_nodes(drawn, "c0_o0 = Identity(zeros)", {"zeros": np.zeros(2, np.int64)})
    assert not any(list(ask_row_major.testify(trial_of(drawn, model=model))) for _ in range(12))


def test_the_parts_of_a_composite_call_have_definitions_that_stay_in_range() -> None:
    # Its kernel multiplies an overflown variance's inverse by the mean, and ends in NaN; its definition gives zeros.
    values = tensor([[[3.4028234663852886e38, 2.0, -1.0, 1.0]]])
    context = trial_of(call("aten.group_norm.default", input=values, num_groups=1))
    assert np.isnan(context.reference.expected[0]).all()
    assert context.comparison is not None
    assert context.comparison.problem is None


def test_parts_without_definitions_define_nothing() -> None:
    assert defined_outputs(unary("aten.special_expm1.default", [1.0, 2.0])) is None
