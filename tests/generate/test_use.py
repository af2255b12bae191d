"""The calls of real models as a source of cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from harness_runs import ROOT, output, rows, run_harness

from harness.causes.real_use import real_use
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.core.isolation import IsolatedCalls
from harness.core.overloads import all_overloads
from harness.core.plugins import UnknownName
from harness.generate.recorded_use import is_used
from harness.generate.sources.source import Request
from harness.generate.sources.use import FromUse, cast_call, create, model_calls, using_models
from harness.pipeline.reference import run_reference
from harness.present.real_use_text import kinds_sentence, real_use_sentence

pytestmark = pytest.mark.slowest(25)


def _no_sizes(bases: Sequence[Invocation], count: int) -> list[tuple[Invocation, ...]]:
    raise AssertionError("static exports have no other sizes")


def request(overload: str, dtypes: tuple[str, ...] | None = None) -> Request:
    return Request(overload=overload, dynamic=False, seed=0, examples=8, values=None, dtypes=dtypes, resize=_no_sizes)


def test_models_of_many_kinds_make_thousands_of_calls() -> None:
    kinds = Counter(kind for _, kind in using_models())
    assert kinds.total() > 150
    assert {"vision", "text", "detection", "segmentation", "diffusion", "audio"} <= kinds.keys()
    overloads = FromUse().overloads()
    assert set(overloads) <= set(all_overloads())
    assert sum(len(model_calls(overload)) for overload in overloads) > 10_000


def test_calls_of_most_models_come_first() -> None:
    for overload in ("aten.conv2d.default", "aten.linear.default"):
        models = [len(use.models) for use in model_calls(overload)]
        assert models == sorted(models, reverse=True)
        assert len(model_calls(overload, 3)) == 3


def test_pytorch_takes_every_call_in_every_deployed_dtype() -> None:
    for overload in list(FromUse().overloads())[::8]:
        for use in model_calls(overload, 2):
            run_reference(use.invocation)
            assert sum(spec.numel for spec in use.invocation.tensors()) <= 1 << 15


def test_a_float32_call_is_run_in_both_halves() -> None:
    found = FromUse().find(request("aten.linear.default"))
    dtypes = Counter(s.exported.dtype for s in found.groups)
    as_made = [use.invocation for use in model_calls("aten.linear.default")]
    in_float32 = len({call.structure_id for call in as_made if call.dtype == "float32"})
    assert dtypes["float32"] == in_float32
    assert min(dtypes["float16"], dtypes["bfloat16"]) >= in_float32
    common = create("common").find(request("aten.linear.default"))
    assert Counter(s.exported.dtype for s in common.groups)["float32"] <= 8
    only = FromUse().find(request("aten.linear.default", ("float16",)))
    assert {s.exported.dtype for s in only.groups} == {"float16"}


def test_a_cast_asks_for_what_the_model_would_be_in() -> None:
    spec = TensorSpec((2,), "float32", (1,), 0, Literal((1.0, 2.0)))
    index = TensorSpec((2,), "int64", (1,), 0, Literal((0, 1)))
    call = Invocation("aten.index.Tensor", (("self", spec), ("indices", (index,))))
    halved = cast_call(call, "float16")
    assert [tensor.dtype for tensor in halved.tensors()] == ["float16", "int64"]


def test_another_part_is_one_line() -> None:
    with pytest.raises(UnknownName, match="common"):
        create("rare")


def test_a_run_says_how_real_calls_do(tmp_path: Path) -> None:
    words = ["--source", "use:common", "--op", "relu", "--op", "aten::embedding", "--op", "avg_pool2d"]
    done = run_harness("--results-dir", tmp_path / "results", *words, "--backend", "ort-cpu", "--record-only")
    assert done.returncode == 0, output(done)
    found = rows(tmp_path / "results")
    assert {row["source"] for row in found} == {"use"}
    assert {row["shape_mode"] for row in found} == {"static", "dynamic"}
    (use,) = real_use(tmp_path / "results")
    assert use.calls <= 24
    assert use.models > 20
    assert use.by_dtype["float32"].total >= 10
    sentence = real_use_sentence(use)
    assert sentence in " ".join(output(done).split())
    assert "% pass in float32" in sentence
    assert "vision" in kinds_sentence(use)


# Smaller sizes


def _tensor(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Recipe(("any",), "plain", 1))


def test_sizes_stand_to_each_other_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "ci" / "tables")
    from small_calls import small_call

    conv = Invocation(
        "aten.conv2d.default",
        (("input", _tensor(1, 64, 56, 56)), ("weight", _tensor(64, 1, 3, 3)), ("padding", (1, 1)), ("groups", 64)),
    )
    linear = Invocation("aten.linear.default", (("input", _tensor(4, 197, 768)), ("weight", _tensor(3072, 768))))
    view = Invocation("aten.view.default", (("self", _tensor(8, 32, 768)), ("size", (8, 32, 12, 64))))
    with IsolatedCalls(timeout=60) as process:
        smaller = small_call(conv, process)
        assert smaller is not None
        given = dict(smaller.arguments)
        assert given["groups"] == given["weight"].shape[0] == given["input"].shape[1] < 64  # type: ignore[union-attr]
        smaller = small_call(linear, process)
        assert smaller is not None
        left, right = smaller.tensors()
        assert left.shape[-1] == right.shape[1]
        assert right.shape[0] == 4 * right.shape[1]
        smaller = small_call(view, process)
        assert smaller is not None
        run_reference(smaller)
        small = replace(view, arguments=(("self", _tensor(2, 6)), ("size", (12,))))
        assert small_call(small, process) == small


def test_a_call_like_a_recorded_one_is_used_in_half_precision_and_at_other_sizes() -> None:
    made = next(u.invocation for u in model_calls("aten.linear.default") if u.invocation.dtype == "float32")
    assert is_used(made)
    assert is_used(cast_call(made, "bfloat16"))
    larger = made.map_tensors(lambda spec: _change_sizes(spec, {n: n + 50 for n in _sizes(made) if n > 1}))
    assert is_used(larger)
    # Other relations: what was equal in two tensors is not.
    broken = replace(made, arguments=(made.arguments[0], *larger.arguments[1:]))
    assert not is_used(broken)


def test_a_call_with_special_values_or_other_attributes_is_not_used() -> None:
    made = next(u.invocation for u in model_calls("aten.softmax.int") if u.invocation.dtype == "float32")
    special = made.map_tensors(_add_special_values)
    assert not is_used(special)
    assert not is_used(replace(made, arguments=(*made.arguments[:1], ("dim", 7), *made.arguments[2:])))


def _add_special_values(spec: TensorSpec) -> TensorSpec:
    assert isinstance(spec.values, Recipe)
    return replace(spec, values=replace(spec.values, style="special"))


def _sizes(call: Invocation) -> set[int]:
    return {size for spec in call.tensors() for size in spec.shape}


def _change_sizes(spec: TensorSpec, sizes: dict[int, int]) -> TensorSpec:
    shape = tuple(sizes.get(size, size) for size in spec.shape)
    return replace(spec, shape=shape, strides=contiguous_strides(shape))
