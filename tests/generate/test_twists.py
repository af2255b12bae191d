"""Twists change one thing about a program, whatever pattern it is of."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from harness.core.invocation import Invocation, Literal, Recipe, Result, TensorSpec, Weight
from harness.core.program import Program, unshare_inputs, weights_of
from harness.core.tensors import weight_tensor
from harness.generate.any_call import shapes_of
from harness.generate.program_draws import draw_program
from harness.generate.programs import load_patterns
from harness.generate.twists import TWISTS, TwistDraw, twist_program
from harness.pipeline.reference import run_reference
from harness.pipeline.torch_call import CallRejected

PATTERNS = ("gelu", "conv-bn", "transposes", "matmul-add", "pad-conv", "neutral")


def programs(count: int = 4) -> list[Program]:
    drawn = [draw_program(load_patterns()[f"program.{name}"], 1, index) for name in PATTERNS for index in range(count)]
    return [unshare_inputs(Program.of(program)) for program in drawn]


@pytest.mark.parametrize("name", TWISTS)
def test_each_kind_changes_programs_of_several_patterns(name: str) -> None:
    changed = set()
    for number, program in enumerate(programs()):
        draw = TwistDraw(program, Random(f"{name} {number}"), shapes_of(program.calls))
        for _ in range(4):
            twisted = TWISTS[name](draw)
            if twisted is not None and twisted != program:
                changed.add(program.name)
    assert len(changed) >= 2


def test_pytorch_takes_nearly_all_twisted_programs() -> None:
    counts: Counter[str] = Counter()
    for number, program in enumerate(programs(8)):
        twisted = twist_program(program, Random(number))
        try:
            run_reference(twisted.invocation)
        except CallRejected:
            counts["rejected"] += 1
        else:
            counts["taken" if twisted.invocation != program.invocation else "unchanged"] += 1
    assert counts["taken"] >= 0.85 * counts.total()


def test_a_constant_of_integers_gets_numbers_that_these_hold() -> None:
    index = Weight(TensorSpec((2,), "int64", (1,), 0, Literal((0, 1))))
    rows = TensorSpec((3, 2), "float32", (2, 1), 0, Recipe(("any",), "plain", 1))
    call = Invocation("aten.index_select.default", (("self", rows), ("dim", 0), ("index", index)))
    program = Program("test", (call,), (Result(0),))
    for number in range(40):
        twisted = TWISTS["weight"](TwistDraw(program, Random(number), shapes_of(program.calls)))
        for weight in () if twisted is None else weights_of(twisted):
            weight_tensor(weight)


def test_another_number_is_the_only_difference() -> None:
    (program,) = (p for p in programs(1) if p.name == "gelu")
    draw = TwistDraw(program, Random(3), shapes_of(program.calls))
    twisted = TWISTS["number"](draw)
    assert twisted is not None
    pairs = zip(program.calls, twisted.calls, strict=True)
    differences = [pair for call, other in pairs for pair in set(call.arguments) ^ set(other.arguments)]
    assert len(differences) == 2
    assert len({name for name, _ in differences}) == 1
    assert twisted.returns == program.returns


def test_a_twist_is_the_same_on_every_machine() -> None:
    first, second = ([twist_program(p, Random(7)).invocation.case_id for p in programs(2)] for _ in range(2))
    assert first == second
