"""Invocations are plain values: one text, one identity, the same bits everywhere."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from harness_runs import ROOT, environment
from hypothesis import HealthCheck, given, settings, strategies as st

from harness.core.captured_values import raw_stream
from harness.core.dtypes import ALL, INT_RANGE, UNSIGNED
from harness.core.invocation import (
    Enumerated,
    InvalidInvocation,
    Invocation,
    Literal,
    Recipe,
    TensorSpec,
    contiguous_strides,
)
from harness.core.styles import STYLES
from harness.core.tensors import bind, build_tensor, build_tensors
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases, invocations

OVERLOADS = tuple(load_cases())


@st.composite
def any_invocation(draw: st.DrawFn) -> Invocation:
    """An invocation of any operator case about any of its dtypes."""
    case = load_cases()[draw(st.sampled_from(OVERLOADS))]
    return draw(invocations(case, draw(st.sampled_from(case.dtypes))))


@settings(max_examples=400, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(any_invocation())
def test_json_and_back_is_the_same_invocation(invocation: Invocation) -> None:
    back = Invocation.from_json(invocation.json)
    assert back.json == invocation.json
    assert back.case_id == invocation.case_id
    assert back.structure_id == invocation.structure_id
    # NaN arguments are unequal to themselves; representations tell ints, bools and floats apart too.
    assert repr(back) == repr(invocation)
    assert json.loads(invocation.json)["overload"] == invocation.overload
    bind(back)


def test_every_operator_case_survives_the_round_trip() -> None:
    for case in load_cases().values():
        for drawn in draw_cases(case, seed=3, structures=1, values=2):
            for invocation in drawn.invocations:
                assert repr(Invocation.from_json(invocation.json)) == repr(invocation)


def spec(
    shape: tuple[int, ...],
    dtype: str = "float32",
    values: Recipe | Literal | None = None,
    strides: tuple[int, ...] | None = None,
    offset: int = 0,
) -> TensorSpec:
    chosen = values or Recipe(("any",), "mixed", 7)
    return TensorSpec(shape, dtype, contiguous_strides(shape) if strides is None else strides, offset, chosen)


GOLDEN_ADD = Invocation(
    "aten.add.Tensor",
    (("self", spec((2, 3))), ("other", spec((3,), "bfloat16", strides=(2,), offset=1)), ("alpha", -0.5)),
)
GOLDEN_SUM = Invocation(
    "aten.sum.dim_IntList",
    (
        ("self", spec((2,), "int64", Literal((-(2**63), 2**63 - 1)))),
        ("dim", (-1,)),
        ("keepdim", True),
        ("dtype", Enumerated("dtype", "float64")),
    ),
)
GOLDEN_CLAMP = Invocation(
    "aten.clamp.default",
    (("self", spec((), "float16", Literal((-0.0,)))), ("min", math.nan), ("max", -math.inf)),
)
GOLDEN_CAT = Invocation("aten.cat.default", (("tensors", (spec((1,)), spec((0, 2)))), ("dim", 0)))


@pytest.mark.parametrize(
    ("invocation", "case_id", "structure_id"),
    [
        (GOLDEN_ADD, "6d6735c98ae1", "03f66c05b66a"),
        (GOLDEN_SUM, "7fa775f6a89f", "a4eedba845bb"),
        (GOLDEN_CLAMP, "51dcc7b52320", "d6e82a4cf65b"),
        (GOLDEN_CAT, "97c4ba6e3909", "aff882bcba97"),
    ],
    ids=lambda value: value.overload if isinstance(value, Invocation) else "",
)
def test_ids_never_change(invocation: Invocation, case_id: str, structure_id: str) -> None:
    # Records, baselines and corpora of users hold them.
    assert (invocation.case_id, invocation.structure_id) == (case_id, structure_id)


def test_what_differs_in_any_part_has_another_id() -> None:
    x = spec((2, 2))
    variants = [
        Invocation("aten.sum.dim_IntList", (("self", tensor), *rest))
        for tensor in (
            x,
            spec((2, 2), "float64"),
            spec((2, 2), strides=(1, 2)),
            spec((2, 2), offset=1),
            spec((2, 2), values=Recipe(("any",), "mixed", 8)),
            spec((2, 2), values=Recipe(("any",), "plain", 7)),
            spec((2, 2), values=Recipe(("finite",), "mixed", 7)),
            spec((2, 2), values=Literal((0.0, 1.0, 2.0, 3.0))),
            spec((2, 2), values=Literal((-0.0, 1.0, 2.0, 3.0))),
        )
        # An explicit default is another call than an omitted one.
        for rest in ((), (("dim", None),), (("dim", (0,)),), (("dim", (0,)), ("keepdim", False)))
    ]
    assert len({invocation.case_id for invocation in variants}) == len(variants)
    # True, 1 and 1.0 are equal in Python and different to an operator.
    numbers = [Invocation("aten.add.Scalar", (("self", x), ("other", n))) for n in (True, 1, 1.0)]
    assert len({invocation.case_id for invocation in numbers}) == 3


def test_values_alone_leave_the_structure_the_same() -> None:
    other = GOLDEN_ADD.with_values(lambda tensor: Recipe(("any",), "special", 99))
    assert other.structure_id == GOLDEN_ADD.structure_id
    assert other.case_id != GOLDEN_ADD.case_id


def digest(tensor: torch.Tensor) -> str:
    """Return a hash of the tensor's bytes, in row-major order."""
    # A single element counts as contiguous whatever its stride.
    raw = tensor.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)
    return hashlib.sha256(bytes(raw.tolist())).hexdigest()[:16]


GOLDEN_BYTES = {
    "float32": "fb5ca1028aea64a5",
    "float64": "f01dc4b4a6820b0b",
    "float16": "8de20181b46913df",
    "bfloat16": "902118b126b45103",
    "int64": "3bb51205a03ac872",
    "int32": "f24e9716ae3ee5c1",
    "int16": "d78e128eec852844",
    "int8": "1d06f339e1123cd6",
    "uint8": "f354e5644e706523",
    "uint16": "34a86974e14a9440",
    "uint32": "d8d6bfc73ff24a9e",
    "uint64": "5ce7e8147bd85615",
    "bool": "ac9b58847f249ef0",
}


@pytest.mark.parametrize("dtype", GOLDEN_BYTES)
def test_the_bytes_of_a_recipe_never_change(dtype: str) -> None:
    # Every style and the domains with parameters, so that no edit of a table goes unnoticed.
    recipes = [Recipe(("any",), style, 1234) for style in STYLES]
    recipes += [
        Recipe(("range", -1, 1) if dtype not in (*UNSIGNED, "bool") else ("range", 0, 1), "mixed", 5),
        Recipe(("finite",), "special", 6),
        Recipe(("nonzero",), "special", 7),
    ]
    if dtype != "bool":
        recipes.append(Recipe(("distinct",), "plain", 8))
    together = torch.cat([build_tensor(spec((64,), dtype, recipe)) for recipe in recipes])
    assert digest(together) == GOLDEN_BYTES[dtype]


def test_the_raw_stream_never_changes() -> None:
    assert [hex(int(word)) for word in raw_stream(42, 3)] == [
        "0xc621fbcd16d92688",
        "0x705a5661a791ffc1",
        "0xdbcd12c26eda1624",
    ]


def test_a_fresh_process_rebuilds_every_tensor_bit_for_bit() -> None:
    drawn = [
        draw_cases(case, seed=11, structures=2, values=1)[-1].invocations[0]
        for case in list(load_cases().values())[::4]
    ]
    code = (
        "import sys; from test_invocation import digests; from harness.core.invocation import Invocation\n"
        "for line in sys.stdin: print(digests(Invocation.from_json(line)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(invocation.json for invocation in drawn),
        # As on a CPU without vector instructions.
        env=environment(
            PYTHONHASHSEED="77",
            PYTHONPATH=f"{ROOT}:{ROOT / 'tests' / 'core'}:{ROOT / 'tests' / 'support'}",
            ATEN_CPU_CAPABILITY="default",
        ),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.splitlines() == [digests(invocation) for invocation in drawn]


def digests(invocation: Invocation) -> str:
    """Everything that a tensor is, for each of the invocation's."""
    return " ".join(
        f"{t.dtype} {list(t.shape)} {t.stride()} {t.storage_offset()} {digest(t)}" for t in build_tensors(invocation)
    )


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((2, 3), (3, 1), 0),
        ((2, 3), (1, 2), 0),
        ((2, 3), (6, 2), 1),
        ((2, 3), (0, 1), 0),
        ((2, 3), (0, 0), 4),
        ((3,), (1,), 5),
        ((), (), 3),
        ((0, 4), (4, 1), 2),
        ((1, 1, 1), (7, 5, 3), 0),
    ],
    ids=str,
)
def test_a_tensor_lies_in_memory_as_its_spec_says(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    described = spec(shape, strides=strides, offset=offset)
    literal = Literal(tuple(float(n) for n in range(described.storage_size)))
    tensor = build_tensor(spec(shape, values=literal, strides=strides, offset=offset))
    assert tuple(tensor.shape) == shape
    assert described.is_contiguous == tensor.is_contiguous()
    for place in torch.cartesian_prod(*map(torch.arange, shape)).reshape(-1, len(shape)) if shape else ():
        index = [int(i) for i in place]
        assert tensor[tuple(index)] == offset + sum(i * s for i, s in zip(index, strides, strict=True))
    if not tensor.is_contiguous():
        assert tensor.stride() == strides
    # An expanded tensor is one value in several places.
    assert build_tensor(described).untyped_storage().nbytes() == 4 * described.storage_size


@pytest.mark.parametrize("dtype", sorted(set(INT_RANGE) & set(ALL)))
def test_integer_literals_keep_both_extremes(dtype: str) -> None:
    low, high = INT_RANGE[dtype]
    literal = Literal((low, high, 0, high - 1))
    described = Invocation("aten.abs.default", (("self", spec((4,), dtype, literal)),))
    (tensor,) = build_tensors(Invocation.from_json(described.json))
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.tolist() == [low, high, 0, high - 1]


@pytest.mark.parametrize(
    ("dtype", "bits"), [("float64", torch.int64), ("float32", torch.int32), ("bfloat16", torch.int16)]
)
def test_float_literals_keep_signed_zeros_subnormals_and_non_finite_values(dtype: str, bits: torch.dtype) -> None:
    finfo = torch.finfo(getattr(torch, dtype))
    values = (0.0, -0.0, math.inf, -math.inf, finfo.max, finfo.tiny, finfo.smallest_normal * finfo.eps, 0.1)
    described = Invocation("aten.abs.default", (("self", spec((8,), dtype, Literal(values))),))
    (tensor,) = build_tensors(Invocation.from_json(described.json))
    expected = torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype))
    assert tensor.view(bits).tolist() == expected.view(bits).tolist()
    assert torch.signbit(tensor).tolist()[:2] == [False, True]
    nan = Invocation("aten.abs.default", (("self", spec((1,), dtype, Literal((math.nan,)))),))
    assert build_tensors(Invocation.from_json(nan.json))[0].isnan().all()


def tensor_json(**changes: Any) -> str:
    tensor = {"shape": [1], "dtype": "float32", "strides": [1], "offset": 0, "values": [1.0], **changes}
    return json.dumps({"overload": "aten.abs.default", "arguments": {"self": {"tensor": tensor}}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "`overload`"),
        ("7", "`overload`"),
        ('{"overload": 3, "arguments": {}}', "`overload`"),
        ('{"overload": "aten.abs.default"}', "`arguments`"),
        ('{"overload": "aten.abs.default", "arguments": []}', "`arguments`"),
        ('{"overload": "aten.abs.default", "arguments": {"self": {"tensor": {}}}}', "aten.abs.default.self"),
        ('{"overload": "aten.abs.default", "arguments": {"self": {"tensor": 3}}}', "aten.abs.default.self"),
        ('{"overload": "aten.abs.default", "arguments": {"self": {"sensor": {}}}}', "aten.abs.default.self"),
        ('{"overload": "aten.abs.default", "arguments": {"self": {"float": "many"}}}', "not an argument"),
        (
            '{"overload": "aten.abs.default", "arguments": {"self": {"complex": [1]}}}',
            "aten.abs.default.self",
        ),
        ('{"overload": "aten.abs.default", "arguments": {"self": {"complex": 1}}}', "aten.abs.default.self"),
        ('{"overload": "aten.cat.default", "arguments": {"tensors": [1, {"x": 2}]}}', "tensors[1]"),
        (tensor_json(shape=3), "not a tensor"),
        (tensor_json(shape=["x"]), "not a tensor"),
        (tensor_json(shape=[-1]), "not a tensor"),
        (tensor_json(shape=[1, 1]), "not a tensor"),
        (tensor_json(offset=None), "not a tensor"),
        (tensor_json(dtype=32), "not a tensor"),
        (tensor_json(values=3), "not a tensor"),
        (tensor_json(recipe=["any"]), "not a tensor"),
        (tensor_json(recipe=["any", "plain", "x"]), "not a tensor"),
    ],
    ids=lambda value: value if len(value) < 20 else "",
)
def test_json_of_something_else_is_refused_in_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(InvalidInvocation) as refusal:
        Invocation.from_json(text)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
