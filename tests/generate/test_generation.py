"""Draws are the same everywhere, cover every family, and are rich in what breaks exporters."""

from __future__ import annotations

import contextlib
import hashlib
import math
import multiprocessing
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness_runs import PLUGINS, ROOT, environment

from harness.core.dtypes import ALL, INT_RANGE, WIDE_UNSIGNED, is_float
from harness.core.invocation import Invocation, TensorSpec
from harness.core.overloads import all_overloads
from harness.core.tensors import build_tensor
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.pipeline.reference import run_reference
from harness.pipeline.torch_call import NothingToCompare

pytestmark = pytest.mark.slowest(25)

#: One overload of every family that the harness promises, and of every form within it.
_PROMISED = """
    abs erfinv add.Tensor add.Scalar sub.Tensor mul.Tensor mul.Scalar div.Tensor_mode floor_divide pow.Scalar
    remainder.Tensor fmod.Scalar atan2 eq.Tensor lt.Scalar logical_xor isnan bitwise_and.Tensor bitwise_not
    bitwise_left_shift.Tensor clamp clamp.Tensor clamp_min celu gelu hardswish leaky_relu sum sum.dim_IntList
    mean.dim prod.dim_int amax var.correction std.correction logsumexp any.dim argmax argmin max.dim cumsum
    cumprod logcumsumexp cummax sort topk argsort kthvalue softmax.int _softmax log_softmax.int mm bmm matmul
    addmm baddbmm einsum linear convolution conv1d conv2d conv3d conv_transpose2d.input max_pool2d
    max_pool2d_with_indices avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool2d adaptive_max_pool2d
    max_unpool2d batch_norm layer_norm group_norm instance_norm constant_pad_nd reflection_pad2d
    replication_pad1d upsample_nearest2d upsample_bilinear2d upsample_bilinear2d.vec upsample_bicubic2d
    index.Tensor index_put index_select masked_fill.Scalar gather scatter.src scatter_add scatter_reduce.two
    view permute expand cat stack split.Tensor chunk unfold roll flip repeat tile slice.Tensor narrow diagonal
    tril triu pixel_shuffle embedding embedding_bag where.self nonzero zeros_like full_like arange.start_step
    linspace full to.dtype _to_copy mse_loss l1_loss nll_loss_nd cross_entropy_loss binary_cross_entropy
    smooth_l1_loss kl_div scaled_dot_product_attention grid_sampler
"""
PROMISED = _PROMISED.split()


def dotted(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


@cache
def _many(overload: str, structures: int = 120) -> tuple[Invocation, ...]:
    found = draw_cases(load_cases()[overload], seed=0, structures=structures, values=1)
    return tuple(f.invocations[0] for f in found)


@cache
def drawn() -> dict[str, tuple[Invocation, ...]]:
    """Structures of every operator case, one draw of values each."""
    return {overload: _many(overload, 12) for overload in load_cases()}


@cache
def some() -> dict[str, tuple[Invocation, ...]]:
    """The same for every third operator case: quick, and enough to speak of all."""
    return {overload: _many(overload, 12) for overload in list(load_cases())[::3]}


@cache
def tensors() -> tuple[TensorSpec, ...]:
    return tuple(spec for found in some().values() for invocation in found for spec in invocation.tensors())


def test_at_least_180_overloads_of_every_promised_family_are_covered() -> None:
    assert len(load_cases()) >= 180
    assert [name for name in map(dotted, PROMISED) if name not in load_cases()] == []


def test_every_operator_case_is_of_an_overload_that_pytorch_has() -> None:
    assert set(load_cases()) <= set(all_overloads())


def test_every_operator_case_draws_what_was_asked_for_and_nothing_twice() -> None:
    for overload, found in some().items():
        assert found, overload
        assert len({invocation.structure_id for invocation in found}) == len(found) <= 12
        assert {invocation.overload for invocation in found} == {overload}
    # Few operators have fewer structures than that to offer (arguments of few choices).
    assert sum(len(found) < 12 for found in some().values()) < len(some()) / 20


def test_dtypes_take_turns_in_few_draws() -> None:
    for overload, found in some().items():
        case = load_cases()[overload]
        allowed = set(case.dtypes) - set(case.rare) - set(case.gaps)
        if len(found) == 12 and all(list(invocation.tensors()) for invocation in found):
            seen = {spec.dtype for invocation in found for spec in invocation.tensors()}
            assert len(seen & allowed) >= min(len(allowed), 4), overload


def test_more_values_share_the_structure_and_differ() -> None:
    for overload in ("aten.add.Tensor", "aten.conv2d.default", "aten.index_put.default"):
        for found in draw_cases(load_cases()[overload], seed=1, structures=6, values=4):
            assert len({invocation.structure_id for invocation in found.invocations}) == 1
            assert len({invocation.case_id for invocation in found.invocations}) == len(found.invocations)


def fingerprint(seed: int, overloads: Sequence[str]) -> str:
    """Return a hash of the cases that `seed` gives."""
    ids = [
        invocation.case_id
        for overload in overloads
        for found in draw_cases(load_cases()[overload], seed=seed, structures=6, values=3)
        for invocation in found.invocations
    ]
    return hashlib.sha256(" ".join(ids).encode()).hexdigest()


SAMPLE = tuple(list(load_cases())[::15])


def test_the_same_seed_gives_the_same_cases_in_another_process_among_other_modules() -> None:
    # Hypothesis left to itself mixes in constants of the modules that are loaded, and Python's hashes vary.
    code = (
        "import sys; import planted, sqlite3, xml.dom.minidom, harness_runs, test_generation as t;"
        "print(t.fingerprint(5, sys.argv[1:]))"
    )
    path = ":".join(map(str, (ROOT, PLUGINS, ROOT / "tests" / "support", Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-c", code, *SAMPLE],
        env=environment(PYTHONHASHSEED="123", PYTHONPATH=path),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.strip() == fingerprint(5, SAMPLE)


def test_what_was_drawn_before_does_not_matter() -> None:
    first = fingerprint(6, ["aten.add.Tensor"])
    fingerprint(6, ["aten.mul.Tensor", "aten.cat.default"])
    assert fingerprint(6, ["aten.add.Tensor"]) == first


def test_other_seeds_give_other_cases() -> None:
    assert len({fingerprint(seed, SAMPLE) for seed in range(4)}) == 4


def test_fewer_draws_are_the_beginning_of_more() -> None:
    for overload in ("aten.add.Tensor", "aten.avg_pool2d.default"):
        few = draw_cases(load_cases()[overload], seed=2, structures=5, values=2)
        assert draw_cases(load_cases()[overload], seed=2, structures=9, values=2)[: len(few)] == few


def test_a_dtype_restricts_what_is_drawn() -> None:
    found = draw_cases(load_cases()["aten.relu.default"], seed=0, structures=8, values=1, dtypes=["float16"])
    assert {f.invocations[0].dtype for f in found} == {"float16"}
    assert draw_cases(load_cases()["aten.celu.default"], seed=0, structures=8, values=1, dtypes=["bool"]) == []


def test_ranks_sizes_and_layouts_are_varied() -> None:
    ranks = Counter(len(spec.shape) for spec in tensors())
    assert all(ranks[rank] > 100 for rank in range(6)), ranks
    seen = Counter[str]()
    for spec in tensors():
        seen["empty"] += 0 in spec.shape
        seen["one"] += 1 in spec.shape
        seen["odd"] += any(size in (7, 9, 15, 17, 33) for size in spec.shape)
        seen["not contiguous"] += not spec.is_contiguous
        seen["expanded"] += any(stride == 0 and size > 1 for size, stride in zip(spec.shape, spec.strides, strict=True))
        seen["permuted"] += list(spec.strides) != sorted(spec.strides, reverse=True)
        seen["offset"] += spec.offset > 0
    assert min(seen.values()) > 100, seen
    assert len(seen) == 7


def test_broadcasting_goes_either_way() -> None:
    ways = Counter[str]()
    for invocation in _many("aten.add.Tensor", 240):
        left, right = (spec.shape for spec in invocation.tensors())
        both = np.broadcast_shapes(left, right)
        ways["left"] += both != left and both == right
        ways["right"] += both != right and both == left
        ways["both"] += both not in (left, right)
        ways["neither"] += left == right
    assert set(ways) == {"left", "right", "both", "neither"}
    assert all(ways.values()), ways


def test_arguments_are_omitted_explicit_and_none_and_dims_negative() -> None:
    seen = Counter[str]()
    for invocation in _many("aten.var.correction"):
        arguments = dict(invocation.arguments)
        for name in ("dim", "correction", "keepdim"):
            seen[f"{name} omitted"] += name not in arguments
            seen[f"{name} given"] += arguments.get(name) is not None
        seen["dim None"] += "dim" in arguments and arguments["dim"] is None
        dim = arguments.get("dim")
        seen["dim negative"] += isinstance(dim, tuple) and any(isinstance(d, int) and d < 0 for d in dim)
        seen["several dims"] += isinstance(dim, tuple) and len(dim) > 1
    assert all(seen.values()), seen


def test_promotion_meets_scalars_of_another_kind_and_tensors_of_another_dtype() -> None:
    kinds = {
        (is_float(invocation.dtype), type(dict(invocation.arguments)["other"]))
        for invocation in _many("aten.add.Scalar")
    }
    assert {(True, int), (True, float), (False, int), (False, float)} <= kinds
    mixed = [{spec.dtype for spec in invocation.tensors()} for invocation in _many("aten.add.Tensor")]
    assert sum(len(dtypes) > 1 for dtypes in mixed) > 5


@cache
def values_of(dtype: str) -> tuple[Any, ...]:
    """Elements of tensors of `dtype` that may hold any value, over a few hundred draws."""
    found: set[Any] = set()
    zeros: set[bool] = set()
    overloads: Sequence[str] = (
        "aten.abs.default",
        "aten.neg.default",
        "aten.add.Tensor",
        "aten.maximum.default",
    )
    if dtype == "bool":
        overloads = ("aten.logical_not.default",)
    elif dtype in WIDE_UNSIGNED:
        overloads = ("aten.eq.Tensor", "aten.ne.Tensor", "aten.clone.default", "aten.cat.default")
    for overload in overloads:
        for drawn_case in draw_cases(load_cases()[overload], seed=0, structures=40, values=4, dtypes=[dtype]):
            for invocation in drawn_case.invocations:
                for spec in invocation.tensors():
                    if spec.dtype == dtype:
                        tensor = build_tensor(spec)
                        found.update(tensor.reshape(-1).tolist())
                        if is_float(dtype):
                            zeros.update(torch.signbit(tensor[tensor == 0]).tolist())
    assert not is_float(dtype) or zeros == {False, True}
    return tuple(found)


@pytest.mark.parametrize("dtype", [d for d in ALL if is_float(d)])
def test_float_values_cover_the_classes_that_break_kernels(dtype: str) -> None:
    finfo = torch.finfo(getattr(torch, dtype))
    values = values_of(dtype)
    finite = [abs(v) for v in values if math.isfinite(v)]

    def near(wanted: float) -> bool:
        return any(abs(v - wanted) <= abs(wanted) / 64 for v in finite)

    def rounded(wanted: float) -> float:
        return torch.tensor(wanted, dtype=torch.float64).to(getattr(torch, dtype)).item()

    classes = {
        "NaN": any(math.isnan(v) for v in values),
        "+inf": math.inf in values,
        "-inf": -math.inf in values,
        "subnormal": any(0 < v < finfo.tiny for v in finite),
        "smallest normal": finfo.tiny in finite,
        "largest": {finfo.max, -finfo.max} <= set(values),
        "halves": {0.5, 1.5, 2.5, -0.5, -2.5} <= set(values),
        "tenths": {rounded(0.1), rounded(0.3), rounded(-0.7)} <= set(values),
        "above one": 1 + finfo.eps in finite,
        "exp overflows": near(math.log(finfo.max)),
        "exp vanishes": any(v > 9 for v in finite),
        "2^24": dtype == "float16" or 2.0**24 + 2 in finite or 2.0**24 in finite,
        "2^31": dtype == "float16" or 2.0**31 in finite,
        "2^53": dtype == "float16" or 2.0**53 in finite,
    }
    assert [name for name, present in classes.items() if not present] == []


@pytest.mark.parametrize("dtype", INT_RANGE)
def test_integer_values_cover_both_extremes_and_the_limits_of_floats(dtype: str) -> None:
    low, high = INT_RANGE[dtype]
    wanted = {0, 1, low, high}
    for edge in (2**24, 2**31, 2**53):
        wanted |= {v for v in (edge - 1, edge, edge + 1) if v <= high}
    assert wanted <= set(values_of(dtype))


def test_bool_values_are_both() -> None:
    assert set(values_of("bool")) == {False, True}


def test_divisors_include_zero_where_pytorch_takes_it_and_minus_one() -> None:
    for overload, dtypes, wanted in (
        ("aten.div.Tensor", ["float32"], {0.0, -1.0}),
        ("aten.div.Tensor_mode", ["int32"], {-1}),
    ):
        found: set[Any] = set()
        for drawn_case in draw_cases(load_cases()[overload], seed=0, structures=60, values=4, dtypes=dtypes):
            for invocation in drawn_case.invocations:
                other = dict(invocation.arguments)["other"]
                assert isinstance(other, TensorSpec)
                found.update(build_tensor(other).reshape(-1).tolist())
        assert wanted <= found, overload


def test_the_default_budget_has_nan_in_any_position_of_any_operator() -> None:
    # A hundred cases, as a plain `pytest harness` draws them: what loses NaN must show.
    positions: dict[str, set[str]] = {}
    for overload in ("aten.abs.default", "aten.relu.default", "aten.clamp.default", "aten.add.Tensor"):
        positions[overload] = set()
        for found in draw_cases(load_cases()[overload], seed=0, structures=25, values=4):
            for spec in (spec for invocation in found.invocations for spec in invocation.tensors()):
                tensor = build_tensor(spec).reshape(-1)
                if is_float(spec.dtype) and len(tensor) > 2:
                    last = len(tensor) - 1
                    positions[overload] |= {
                        "first" if place == 0 else "last" if place == last else "inner"
                        for place in tensor.isnan().nonzero().reshape(-1).tolist()
                    }
    assert all(positions.values()), positions
    assert set().union(*positions.values()) == {"first", "inner", "last"}


# Whether PyTorch takes what is drawn. It may die of it, so that it is asked in a process of its own.


def _ask_pytorch(connection: Connection) -> None:
    """Answer each invocation that comes with PyTorch's refusal, "" for none."""
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError):
        while True:
            try:
                run_reference(Invocation.from_json(connection.recv()))
            except NothingToCompare:
                connection.send("")
            except Exception as error:
                connection.send(f"{type(error).__name__}: {error}".splitlines()[0])
            else:
                connection.send("")


def _answers(invocations: Sequence[Invocation]) -> Iterator[str]:
    """PyTorch's refusal of each, "" for none; "died" where it took its process along."""
    # As the harness does, which has its fork server running.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.pipeline.preload"])
    process: Any = None
    for invocation in invocations:
        if process is None:
            ours, theirs = context.Pipe()
            process = context.Process(target=_ask_pytorch, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
        ours.send(invocation.json)
        if not ours.poll(120):
            process.kill()
            pytest.fail(f"PyTorch hangs in {invocation.json}")
        try:
            yield ours.recv()
        except EOFError:
            process.join(60)
            process = None
            yield "died"
    if process is not None:
        ours.close()
        process.join(60)


def _refused(asked: Sequence[Invocation]) -> dict[str, list[tuple[Invocation, str]]]:
    refused: dict[str, list[tuple[Invocation, str]]] = defaultdict(list)
    for invocation, answer in zip(asked, _answers(asked), strict=True):
        if answer:
            refused[invocation.overload].append((invocation, answer))
    return refused


@pytest.mark.slow
def test_pytorch_takes_nine_in_ten_draws_of_every_operator() -> None:
    refused = _refused([invocation for found in drawn().values() for invocation in found])
    # One of twelve says nothing yet; of those with more, enough are drawn to tell.
    suspects = [overload for overload, found in refused.items() if len(found) > 1]
    more = [
        invocation
        for overload in suspects
        for found in draw_cases(load_cases()[overload], seed=1, structures=80, values=1)
        for invocation in found.invocations
    ]
    refused_more, asked = _refused(more), Counter(invocation.overload for invocation in more)
    defects = {
        overload: (f"{len(found)} of {asked[overload]}", str(found[0][0]), found[0][1])
        for overload, found in refused_more.items()
        if len(found) > asked[overload] / 10
    }
    assert not defects
