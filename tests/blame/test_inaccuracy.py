"""Results that an ONNX operator's own formula explains are inaccurate, and no failure; others stay one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness_runs import row_of, verdict_of

from harness.app.cli._group import conformance
from harness.causes.inaccuracies import COLUMNS, INACCURATE, inaccuracies
from harness.compare.verdict import Outcome, Verdict, is_judged
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter


def ending(call: Invocation) -> tuple[Outcome, str, str, str]:
    verdict = verdict_of(call)
    return verdict.outcome, verdict.component, verdict.place, verdict.fault


def of(overload: str, values: list[float], **arguments: object) -> Invocation:
    spec = TensorSpec((len(values),), "float32", (1,), 0, Literal(tuple(values)))
    return Invocation(overload, (("self", spec), *arguments.items()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "place"),
    [
        (of("aten.elu.default", [-0.0123, -0.0313, -0.0007, 2.0]), "Elu"),
        (of("aten.celu.default", [-0.0123, -0.0313, -0.0007, 2.0]), "Celu"),
        (of("aten.gelu.default", [-3.9, -4.4, -4.8, -5.1], approximate="tanh"), "Gelu (approximate=tanh)"),
    ],
)
def test_a_formula_rounded_step_by_step_is_no_defect(call: Invocation, place: str) -> None:
    assert ending(call) == (Outcome.INACCURATE, "ort-cpu", place, "inaccurate")


def test_what_a_specification_leaves_open_is_not_inaccurate() -> None:
    def tensor(shape: tuple[int, ...], strides: tuple[int, ...], style: str, seed: int) -> TensorSpec:
        return TensorSpec(shape, "float16", strides, 0, Recipe(("any",), style, seed))

    call = Invocation(
        "aten.scaled_dot_product_attention.default",
        (
            ("query", tensor((2, 2, 7, 4), (112, 56, 8, 2), "wide", 727472)),
            ("key", tensor((2, 2, 8, 4), (4, 64, 8, 1), "halves", 215752)),
            ("value", tensor((2, 2, 8, 4), (64, 32, 4, 1), "saturating", 987810)),
        ),
    )
    verdict = verdict_of(call, opset=23)
    problems = [(problem["outcome"], problem["blame"]) for problem in json.loads(verdict.problems)]
    # Some scores overflow on their way, which ONNX leaves open; others are wrong.
    assert problems == [("mismatch", "converter"), ("mismatch", "spec")]


def test_a_dropped_argument_of_such_an_operator_is_one() -> None:
    # torchlib leaves `input_scale` out.
    call = of("aten.elu.default", [-0.5, -1.5, 2.0], input_scale=3.0)
    assert ending(call)[:2] == (Outcome.MISMATCH, "torchlib")


#: Wrong results that a rule about roundings alone would explain.
DEFECTS = {
    # Softmax in float32, and its result cast to the float64 that is asked for.
    "computed in a narrower dtype": """{"overload": "aten.softmax.int", "arguments": {"self": {"tensor": {"shape": [3],
        "dtype": "float32", "strides": [1], "offset": 0, "values": [0.3, 1.2, -0.7]}}, "dim": 0,
        "dtype": {"dtype": "float64"}}}""",
    # The largest of a row has no rounding: else a difference to it is anything.
    "a dropped argument of large numbers": """{"overload": "aten.cross_entropy_loss.default", "arguments": {
        "self": {"tensor": {"shape": [7, 2], "dtype": "float32", "strides": [2, 1], "offset": 0,
        "recipe": [["any"], "wide", 498568742]}}, "target": {"tensor": {"shape": [7], "dtype": "int64", "strides": [1],
        "offset": 0, "recipe": [["index_or", 2, -100], "alternating 1", 498568743]}}, "reduction": 2,
        "label_smoothing": 1.0}}""",
    "NaN for a number": """{"overload": "aten.scaled_dot_product_attention.default", "arguments": {
        "query": {"tensor": {"shape": [2, 3, 3, 8], "dtype": "float16", "strides": [72, 8, 24, 1], "offset": 0,
        "recipe": [["any"], "one", 885060]}}, "key": {"tensor": {"shape": [2, 3, 33, 8], "dtype": "float16",
        "strides": [792, 264, 1, 33], "offset": 0, "recipe": [["any"], "one", 330764]}}, "value": {"tensor": {
        "shape": [2, 3, 33, 8], "dtype": "float16", "strides": [8, 528, 16, 1], "offset": 0,
        "recipe": [["any"], "one", 292366]}}, "attn_mask": null, "scale": null}}""",
}


@pytest.mark.parametrize("call", DEFECTS.values(), ids=DEFECTS.keys())
def test_what_roundings_do_not_make_is_a_defect(call: str) -> None:
    assert verdict_of(Invocation.from_json(call)).outcome is Outcome.MISMATCH


def test_inaccuracies_are_listed_apart_by_their_size(tmp_path: Path) -> None:
    def row(place: str, error: float, ulps: float, value: float) -> Verdict:
        call = of("aten.celu.default", [value])
        return row_of(
            call,
            outcome=Outcome.INACCURATE,
            component="ort-cpu",
            place=place,
            fault="inaccurate",
            max_abs_error=error,
            max_ulp_error=ulps,
        )

    run = tmp_path / "run"
    with RunWriter(run, RunInfo.begin(seed=0, options={})) as writer:
        writer.write([row("Celu", 1e-9, 1e6, 0.1), row("Gelu", 1e-6, 10.0, 0.2)])
    store.finish(run, 0)
    found = inaccuracies(store.read(run, COLUMNS, INACCURATE).to_pylist())
    assert [(one.place, one.largest_error) for one in found] == [("Gelu", 1e-6), ("Celu", 1e-9)]
    done = CliRunner().invoke(conformance, ["failures", str(run)])
    assert done.exit_code == 0
    assert done.output.index("Gelu") < done.output.index("Celu")
    assert not is_judged(Outcome.INACCURATE, "backend")
