"""Small changes of a converter that repair its failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnxscript
import pytest
from click.testing import CliRunner
from harness_runs import record_of, row_of, vector

from harness.analyse.places.edit_text import changed_text, edit_difference
from harness.analyse.places.edits import edits, rarer_edits, rarest_edits
from harness.analyse.places.source_code import SourceCode
from harness.app.cli._group import conformance
from harness.compare import Outcome, Stage
from harness.convert import CodeLine
from harness.core import Invocation
from harness.record import RunInfo, RunWriter, store

VALUES = (2.0, -1.5, 0.25, -0.5)
WRONG = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "blame": "converter", "signature": "values"}
NN = Path("function_libs/torch_lib/ops/nn.py")
RIGHT = "    return op.Celu(self, alpha=alpha)"
PLANTED = "    return op.Celu(self)"

FUNCTIONS = """
import math
import torch
from onnxscript import FLOAT, ir
from onnxscript.function_libs.torch_lib.registration import torch_op
from onnxscript.onnx_opset import opset18 as op
from torch.onnx import symbolic_helper


def mean(self, dim, keepdim):
    return op.ReduceMean(
        self,  # what is averaged
        dim, keepdims=False)


def sine(self):
    return op.Sin(self) + 1


def scaled(self, alpha):
    return op.Mul(self, op.CastLike(alpha, self))


def larger(self, other):
    return op.GreaterOrEqual(self, other)


def symbolic(g, self, value):
    return g.op("Mul", self, g.op("Constant", value_t=torch.tensor([value])))


def turned(self, dimension, compute_dtype):
    return op.Transpose(op.LogSoftmax(self))


def joined(self, other):
    return op.Concat(self, other)


def summed(g, self, dtype):
    return g.op("ReduceSum", self)


def averaged(self, dim, dtype):
    return op.ReduceMean(self, dim)


def squeezed(self, dim):
    return op.Squeeze(self, [dim])


def halved(self, rounded, whole):
    return op.Floor(self) if rounded and not whole else self


def lowest(self):
    return op.Max(self, math.inf)


def product(self, dtype):
    return op.ReduceProd(self or 1)


@torch_op("mine::built")
def built(self):
    return op.IsNaN(self)
"""


def celu(alpha: float, dtype: str = "float32") -> Invocation:
    return Invocation("aten.celu.default", (("self", vector(VALUES, dtype)), ("alpha", alpha)))


def with_planted(directory: Path) -> Path:
    """A folder with onnxscript, one of whose conversion functions ignores an argument."""
    package = Path(onnxscript.__file__).parent
    within = package
    for part in ("", *NN.parts):
        within = within / part
        if within.is_dir():
            (directory / package.name / within.relative_to(package)).mkdir()
            for child in within.iterdir():
                if child.name not in NN.parts:
                    (directory / package.name / child.relative_to(package)).symlink_to(child)
    text = (package / NN).read_text(encoding="utf-8")
    assert RIGHT in text
    (directory / package.name / NN).write_text(text.replace(RIGHT, PLANTED), encoding="utf-8")
    return directory


def test_a_planted_defect_is_repaired(tmp_path: Path) -> None:
    place = tmp_path / "packages"
    place.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(with_planted(place))}
    run = tmp_path / "run"
    with RunWriter(run, RunInfo.begin(seed=0, options={"examples": 8, "values": 4})) as writer:
        writer.write(row_of(celu(alpha), **WRONG) for alpha in (2.0, 0.5))
        writer.write([row_of(celu(1.0))])
    store.finish(run, 0)
    words = ["fix", celu(2.0).case_id, "--run", str(run), "--write", str(tmp_path / "patch"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "harness.app.cli", *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["rule"], said["function"]) == ("read the argument alpha", "aten_celu")
    assert said["failing"] == 2
    # Ten times as many as the run drew, but for those that fail with or without the defect.
    assert 20 < said["passing"] <= 80
    assert said["file"] == f"onnxscript/{NN}"
    assert f"-{PLANTED}\n+{RIGHT}\n" in said["diff"]
    assert (tmp_path / "patch").read_text(encoding="utf-8") == said["diff"]
    # The installed file is as it was.
    assert PLANTED in (place / "onnxscript" / NN).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "of_case", "of_group"),
    [
        ({**WRONG, "blame": "backend"}, "the failure is the backend's", "the failure is the backend's"),
        ({**WRONG, "rule": "aten::celu"}, "a rule of yours took part", "a rule of yours took part"),
        ({}, "it did not fail", "there is no failure 1"),
    ],
)
def test_what_is_not_the_converters_is_refused(
    tmp_path: Path, changes: dict[str, object], of_case: str, of_group: str
) -> None:
    run = record_of(tmp_path, [celu(2.0)], **changes)
    for target, why in ((celu(2.0).case_id[:8], of_case), ("1", of_group)):
        done = CliRunner().invoke(conformance, ["fix", target, "--run", str(run)])
        assert done.exit_code == 2
        assert why in " ".join(done.output.split())


def changed(function: str, rule: str, directory: Path) -> list[str]:
    """What each change by a rule makes of the one statement of a function."""
    file = directory / "functions.py"
    file.write_text(FUNCTIONS, encoding="utf-8")
    source = SourceCode()
    lines = FUNCTIONS.splitlines()
    line = next(i for i, text in enumerate(lines, 2) if text.startswith(f"def {function}("))
    statement = source.statement(CodeLine(str(file), line, function))
    assert statement is not None
    tried = [edit for kind in (edits, rarer_edits, rarest_edits) for edit in kind(statement, source, 20)]
    found = []
    for edit in tried:
        # Whatever is tried can be written down.
        text = changed_text(edit, source)
        if edit.rule == rule:
            assert edit_difference(edit, source)
            old = set(FUNCTIONS.splitlines())
            found.append("\n".join(part.strip() for part in text.splitlines() if part not in old))
    return found


@pytest.mark.parametrize(
    ("function", "rule", "text"),
    [
        ("mean", "read the argument keepdim", "return op.ReduceMean(self, dim, keepdims=keepdim)"),
        ("mean", "cast to the dtype of keepdim",
         "return op.CastLike(op.ReduceMean(\ndim, keepdims=False), keepdim)"),
        ("sine", "compute in float what Sin does not take",
         'return (op.Sin(self) if self.dtype.name in ("FLOAT", "DOUBLE", "FLOAT16") else '
         "op.Sin(op.Cast(self, to=FLOAT.dtype))) + 1"),
        ("sine", "leave out Sin where it does not take the dtype",
         'return (op.Sin(self) if self.dtype.name in ("FLOAT", "DOUBLE", "FLOAT16") else '
         "op.Identity(self)) + 1"),
        ("scaled", "a float64 constant",
         "return op.Mul(self, op.Constant(value=ir.tensor(alpha, dtype=self.dtype)))"),
        ("larger", "a NaN-safe comparison", "return op.Not(op.Less(self, other))"),
        ("symbolic", "a float64 constant",
         'return g.op("Mul", self, g.op("Constant", value_t=torch.tensor(value, dtype=torch.float64)))'),
        # A function that is built from its source has no dtypes to ask.
        ("built", "compute in float what IsNaN does not take",
         '@torch_op("mine::built", trace_only=True)\n'
         'return op.IsNaN(self) if self.dtype.name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16") else '
         "op.IsNaN(op.Cast(self, to=FLOAT.dtype))"),
        ("product", "cast to dtype", "return op.Cast(op.ReduceProd(self or 1), to=dtype)"),
        ("turned", "give axis=dimension", "return op.Transpose(op.LogSoftmax(self, axis=dimension))"),
        ("turned", "give perm=[0, 2, 1]", "return op.Transpose(op.LogSoftmax(self), perm=[0, 2, 1])"),
        ("turned", "cast to compute_dtype",
         "return op.Cast(op.Transpose(op.LogSoftmax(self)), to=compute_dtype)"),
        ("turned", "take axis -1 away", "return op.Squeeze(op.Transpose(op.LogSoftmax(self)), [-1])"),
        # An attribute that must be given has no default.
        ("joined", "give axis=0", "return op.Concat(self, other, axis=0)"),
        ("summed", "take all axes of size 1 away", 'return g.op("Squeeze", g.op("ReduceSum", self))'),
        ("summed", "add axis 0", 'return symbolic_helper._unsqueeze_helper(g, g.op("ReduceSum", self), [0])'),
        ("averaged", "compute nothing where dim is not given",
         "return op.ReduceMean(self, dim) if dim is not None else None"),
        ("averaged", "leave dim out where dim is not given",
         "return op.ReduceMean(self, dim) if dim is not None else op.ReduceMean(self)"),
        ("averaged", "cast to dtype where it is given",
         "return op.ReduceMean(op.Cast(self, to=dtype) if dtype is not None and dtype != -1 else self, dim)"),
        ("averaged", "expand to the shape of self",
         "return op.Expand(op.ReduceMean(self, dim), op.Shape(self))"),
        ("squeezed", "leave an axis of another size than 1",
         "return op.Squeeze(self, [dim]) if self.shape[dim] == 1 else self"),
        ("halved", "negate the condition",
         "return op.Floor(self) if not rounded and not whole else self"),
        ("lowest", "another sign", "return op.Max(self, -math.inf)"),
    ],
)  # fmt: skip
def test_a_change_touches_nothing_but_its_expression(
    function: str, rule: str, text: str, tmp_path: Path
) -> None:
    assert text in changed(function, rule, tmp_path)
