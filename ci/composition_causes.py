#!/usr/bin/env python3
"""Known defects between operators, and how many of them a run has found.

    python ci/composition_causes.py          # does each still fail here? by PyTorch's and ONNX Runtime's own calls
    python ci/composition_causes.py RUN      # which of them a run of `--programs` has found

The causes were found by reading the rewrite rules of onnxscript, its constant folding and the passes of onnx-ir, and
by trying what they assume, without the harness. A cause is a rule, and what becomes of the graph: each has a module
that shows it. A run has found it where a failure of a program has that rule for its place and fails so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent.parent))

from harness.compare.diagnosis import COMPOSED, Diagnosis
from harness.compare.verdict import Outcome
from harness.record import store

NAN, HALF = float("nan"), torch.float16


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normally distributed numbers, the same each time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Module(torch.nn.Module):
    """A function of inputs and of the weights that the module holds."""

    def __init__(self, forward: Callable[..., Any], weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.function = forward
        for name, tensor in weights.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """What the function gives."""
        return self.function(self, *inputs)


@dataclass(frozen=True)
class Cause:
    """A defect between operators.

    Attributes:
        rule: The rule or pass at fault, as the place of a failure has it.
        what: What becomes of the graph.
        module: Shows it.
        inputs: Of the module.
        rejected: Whether the model is not even valid; its results are wrong otherwise.
        words: What a message about it has, one of them, where the rule alone does not tell it from another cause.
        calls: What the program has, one of them, where the message does not tell either.
    """

    rule: str
    what: str
    module: Module
    inputs: Sequence[torch.Tensor]
    rejected: bool = False
    words: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


def _cause(
    rule: str,
    what: str,
    forward: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    *,
    rejected: bool = False,
    words: Sequence[str] = (),
    calls: Sequence[str] = (),
    held: Mapping[str, torch.Tensor] | None = None,
    **weights: torch.Tensor,
) -> Cause:
    return Cause(rule, what, Module(forward, {**(held or {}), **weights}), inputs, rejected, tuple(words), tuple(calls))


def _normalised(y: torch.Tensor, m: Any, eps: float = 1e-5) -> torch.Tensor:
    return F.batch_norm(y, m.mean, m.var, m.gamma, m.beta, eps=eps)


def _statistics(channels: int, dtype: torch.dtype = torch.float32, var: float | None = None) -> dict[str, torch.Tensor]:
    spread = drawn(channels, seed=5).abs() + 0.5 if var is None else torch.full((channels,), var)
    values = {"mean": drawn(channels, seed=4), "var": spread, "gamma": drawn(channels, seed=2)}
    return {name: tensor.to(dtype) for name, tensor in {**values, "beta": drawn(channels, seed=3)}.items()}


def _batch_norms() -> list[Cause]:
    x, row = drawn(1, 2, 5, 5, seed=7), drawn(4, 3, seed=7)
    conv, turned, matrix = drawn(3, 2, 2, 2), drawn(2, 3, 2, 2), drawn(3, 3)
    layers: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor]] = {
        "Conv": (lambda m, x: F.conv2d(x, m.w), conv, x),
        "ConvTranspose": (lambda m, x: F.conv_transpose2d(x, m.w), turned, x),
        "Gemm": (lambda m, x: torch.addmm(m.c, x, m.w), matrix, row),
    }
    found = []
    for name, (layer, weight, given) in layers.items():
        rule = f"FuseBatchNormInto{name}"
        bias = {"c": torch.zeros(3) + 1} if name == "Gemm" else {}
        halves = {n: t.to(HALF) for n, t in bias.items()}

        def forward(m: Any, x: torch.Tensor, layer: Any = layer, eps: float = 1e-5) -> torch.Tensor:
            return _normalised(layer(m, x), m, eps)

        found.append(
            _cause(
                rule,
                "weights in float32 beside values in float16",
                forward,
                [given.to(HALF)],
                rejected=True,
                words=["nconsistent type"],
                w=weight.to(HALF),
                held={**halves, **_statistics(3)},
            )
        )
        found.append(
            _cause(
                rule,
                "an epsilon that float16 rounds, or weights that overflow",
                lambda m, x, forward=forward: forward(m, x, eps=1e-8),
                [given.to(HALF) / 64],
                w=weight.to(HALF) / 16,
                held={**halves, **_statistics(3, HALF, 0.0)},
            )
        )
    found.append(
        _cause(
            "FuseBatchNormIntoConv",
            "a weight that is returned is missing",
            lambda m, x: (_normalised(F.conv2d(x, m.w), m), m.w),
            [x],
            rejected=True,
            words=["not exist", "Graph must be in"],
            w=conv,
            held=_statistics(3),
        )
    )
    found.append(
        _cause(
            "FuseBatchNormIntoConv",
            "a bias has the name of another weight",
            lambda m, x: (_normalised(F.conv2d(x, m.w), m), F.conv2d(x, m.v, m.w_bias)),
            [x],
            rejected=True,
            words=["topologically"],
            w=conv,
            v=drawn(3, 2, 2, 2, seed=8),
            w_bias=drawn(3, seed=9),
            held=_statistics(3),
        )
    )
    return found


def _bounds() -> list[Cause]:
    x, wide = drawn(8), torch.tensor([1, 2**53 + 1, 2**53 + 3])
    one, minus = torch.tensor(1.0), torch.tensor(-1.0)
    low, high = torch.maximum, torch.minimum
    found = [
        _cause("FuseSuccessiveClip", "ranges that exclude each other", lambda m, x: x.clamp(0, 1).clamp(2, 3), [x]),
        _cause("FuseSuccessiveReluClip", "a negative maximum", lambda m, x: x.clamp(-3, -1).relu(), [x]),
        _cause(
            "FuseSuccessiveReluClip",
            "integers beyond float64",
            lambda m, x: x.clamp(min=2**53 + 1).relu(),
            [wide],
            words=["9007199254740992"],
        ),
        _cause(
            "FuseSuccessiveClip",
            "two chains have bounds of one name",
            lambda m, x: (x.clamp(0.0, 5.0).clamp(1.0, 4.0), x.clamp(-1.0, 0.6).clamp(-2.0, 0.5)),
            [x],
            rejected=True,
            words=["topologically"],
        ),
        _cause(
            "FuseSuccessiveReluClip",
            "two chains have bounds of one name",
            lambda m, x: (x.clamp(-1.0, 2.0).relu(), x.clamp(-1.0, 0.3).relu()),
            [x],
            rejected=True,
            words=["topologically"],
        ),
    ]
    pairs = {
        "FuseMaxMinToClip": (low, high, minus, one),
        "FuseMinMaxToClip": (high, low, one, minus),
        "FuseSuccessiveMin": (high, high, one, minus),
        "FuseSuccessiveMax": (low, low, minus, one),
    }
    for rule, (first, second, a, b) in pairs.items():

        def forward(m: Any, x: torch.Tensor, first: Any = first, second: Any = second) -> torch.Tensor:
            return torch.as_tensor(second(first(x, m.a), m.b))

        found.append(
            _cause(
                rule,
                "two chains have bounds of one name",
                lambda m, x, f=first, s=second: (s(f(x, m.a), m.b), s(f(x, m.c), m.d)),
                [x],
                rejected=True,
                words=["topologically"],
                a=a,
                b=b,
                c=a / 2,
                d=b / 3,
            )
        )
        if "Clip" in rule:
            shaped = {"a": a.reshape(1, 1), "b": b.reshape(1, 1)}
            rank = ["differ in rank"]
            found.append(_cause(rule, "bounds of a higher rank", forward, [x], rejected=True, words=rank, held=shaped))
            nan = torch.tensor(NAN)
            found.append(
                _cause("Clip", f"{rule}: a bound that is NaN", forward, [x], words=["expected nan"], a=nan, b=b)
            )
    return found


def _neutral() -> list[Cause]:
    x = torch.tensor([1.5409961, -0.2934289, -2.1787894], dtype=torch.float64)
    tiny = torch.tensor([1e-9, -3e-9], dtype=torch.float64)
    factor, shift = torch.tensor(1.000009, dtype=torch.float64), torch.tensor(5e-9, dtype=torch.float64)
    return [
        _cause("identity of Mul", "a factor of nearly one", lambda m, x: x * m.w, [x], w=factor),
        _cause("identity of Div", "a divisor of nearly one", lambda m, x: x / m.w, [x], w=factor),
        _cause(
            "identity of Add", "a summand of nearly none", lambda m, x: x + m.w, [tiny], words=["values: "], w=shift
        ),
        _cause(
            "identity of Sub", "a summand of nearly none", lambda m, x: x - m.w, [tiny], words=["values: "], w=shift
        ),
        _cause(
            "identity of Add",
            "minus zero plus zero",
            lambda m, x: 1 / (x + m.w),
            [torch.tensor([-0.0, 0.0])],
            words=["expected inf, got -inf", "expected -inf, got inf", "sign of zero"],
            w=torch.tensor(0.0),
        ),
    ]


def _moved() -> list[Cause]:
    rows, half = [drawn(3, 2), drawn(3, 2, seed=1)], torch.full((500,), 0.5)
    square = [drawn(4, 4), drawn(4, 4, seed=1)]
    return [
        _cause(
            "ScatterAllStatic",
            "what was there is not added",
            lambda m, x, v: x.index_put((m.i,), v, accumulate=True),
            rows,
            i=torch.arange(3),
        ),
        _cause(
            "_matmul of Reshape+Reshape+MatMul+Reshape",
            "other matrices are multiplied",
            lambda m, a, b: (a.view(4, 2, 2) @ b.view(4, 2, 2)).view(4, 4),
            square,
        ),
        _cause(
            "CommonSubexpressionEliminationPass",
            "two dropouts are one",
            lambda m, x: (F.dropout(x, 0.5, True) != F.dropout(x, 0.5, True)).any(),
            [torch.ones(500)],
            calls=["dropout"],
        ),
        _cause(
            "CommonSubexpressionEliminationPass",
            "two draws of Bernoulli are one",
            lambda m, x: (torch.bernoulli(x) != torch.bernoulli(x)).any(),
            [half],
            calls=["bernoulli"],
        ),
    ]


def _folded() -> list[Cause]:
    beside = [drawn(2)]

    def of(what: str, function: Callable[[torch.Tensor], torch.Tensor], weight: torch.Tensor, *words: str) -> Cause:
        return _cause("FoldConstantsPass", what, lambda m, x: (function(m.w), x + 1), beside, calls=words, w=weight)

    large = torch.full((30,), 3000.0).to(HALF)
    pooled = torch.tensor([[[[1.0, NAN], [0.0, 1.0]]]])
    return [
        of("log_softmax overflows", lambda w: F.log_softmax(w, 0), torch.tensor([1000.0, 0, -1000]), "log_softmax"),
        of("max_pool loses NaN", lambda w: F.max_pool2d(w, 2), pooled, "max_pool"),
        of("mean of float16 overflows", lambda w: w.mean(0), large, "mean", "var"),
    ]


def causes() -> list[Cause]:
    """All of them."""
    return [*_batch_norms(), *_bounds(), *_neutral(), *_moved(), *_folded()]


def what_happens(cause: Cause) -> str:
    """``fails: …`` in a few words, or ``passes``."""
    expected = cause.module(*cause.inputs)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            program = torch.onnx.export(cause.module.eval(), tuple(cause.inputs), dynamo=True, verbose=False)
        assert program is not None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options)
        feeds = {v.name: x.numpy() for v, x in zip(session.get_inputs(), cause.inputs, strict=False)}
        outputs = session.run(None, feeds)
    except Exception as error:
        return f"fails: {' '.join(str(error).split())[-110:]}"
    for want, got in zip(wanted, outputs, strict=True):
        e = want.detach().numpy()
        if e.shape != got.shape:
            return f"fails: a shape of {got.shape} for {e.shape}"
        near = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-9}.get(str(e.dtype))
        right = np.allclose(got, e, rtol=near, atol=0.0, equal_nan=True) if near else np.array_equal(got, e)
        if not right:
            return f"fails: {got.ravel()[:3]} for {e.ravel()[:3]}"
    return "passes"


def has_found(cause: Cause, row: Mapping[str, Any]) -> bool:
    """Whether a failure of a program is one of a cause."""
    outcome = Outcome(row["outcome"])
    if not outcome.is_failure or cause.rejected != (outcome is not Outcome.MISMATCH):
        return False
    diagnosis = Diagnosis.from_row(row)
    if diagnosis is None or COMPOSED not in diagnosis.facts:
        return False
    if cause.rule not in row["place"].removeprefix("optimiser, ").split(", "):
        return False
    told = not cause.words or any(word in row["message"] for word in cause.words)
    return told and (not cause.calls or any(word in row["invocation"] for word in cause.calls))


_COLUMNS = [
    "case_id",
    "outcome",
    "message",
    "invocation",
    "place",
    "diagnosis",
    "blame",
    "component",
    "fault",
    "detail",
]


def main() -> None:
    """Print a line for each cause."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    run = parser.parse_args().run
    rows = store.read(run, _COLUMNS).to_pylist() if run else []
    count = 0
    for number, cause in enumerate(known := causes(), start=1):
        if run:
            case = next((row["case_id"] for row in rows if has_found(cause, row)), "")
            count += bool(case)
            says = case or "not found"
        else:
            says = what_happens(cause)
            count += says != "passes"
        print(f"{number:3} {cause.rule}: {cause.what}: {says}")
    print(f"{count} of {len(known)} {'found' if run else 'fail here'}")


if __name__ == "__main__":
    main()
