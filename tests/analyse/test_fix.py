"""Small changes of a converter that repair its failures."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import onnxscript
import pytest
from click.testing import CliRunner
from harness_runs import record_of, row_of, vector

from harness.analyse.places.edit import Edit
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


def made(dims):
    def inner(g, self, offset):
        return g.op("ReduceSum", self)

    return inner


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


def bmm(dtype: str, size: int) -> Invocation:
    batch = replace(vector(range(1, size + 1), dtype), shape=(size, 1, 1), strides=(1, 1, 1))
    return Invocation("aten.bmm.default", (("self", batch), ("mat2", batch)))


@pytest.mark.parametrize(("others", "status"), [((), 0), (("complex64",), 3)])
def test_a_defect_of_torchscript_is_repaired(tmp_path: Path, others: tuple[str, ...], status: int) -> None:
    failing = [bmm("uint8", 1), bmm("int8", 2), *(bmm(dtype, 1) for dtype in others)]
    run = tmp_path / "run"
    with RunWriter(run, RunInfo.begin(seed=0, options={"examples": 4, "values": 2})) as writer:
        writer.write(row_of(call, converter="torchscript", **WRONG) for call in failing)
        writer.write([row_of(bmm("float32", 1), converter="torchscript")])
    store.finish(run, 0)
    words = ["fix", failing[0].case_id, "--run", str(run), "--seconds", "2", "--json"]
    done = CliRunner().invoke(conformance, words)
    said = json.loads(done.stdout)
    assert done.exit_code == status
    assert said["function"] == "bmm"
    assert said["rule"].endswith("what MatMul does not take, and cast back")
    assert (said["failing"], said["repaired"]) == (len(failing), 2)


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


def tried_edits(function: str, source: SourceCode, file: Path) -> list[Edit]:
    """All changes of the last statement of a function that has no other."""
    file.write_text(FUNCTIONS, encoding="utf-8")
    tree = ast.parse(FUNCTIONS)
    line = next(
        node.body[-1].lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    statement = source.statement(CodeLine(str(file), line, function))
    assert statement is not None
    return [edit for kind in (edits, rarer_edits, rarest_edits) for edit in kind(statement, source, 20)]


def new_lines(edit: Edit, source: SourceCode) -> str:
    """The lines that are not there without an edit."""
    old = set(FUNCTIONS.splitlines())
    return "\n".join(part.strip() for part in changed_text(edit, source).splitlines() if part not in old)


def changed(function: str, rule: str, directory: Path) -> list[str]:
    """What each change by a rule makes of the one statement of a function."""
    source = SourceCode()
    found = []
    for edit in tried_edits(function, source, directory / "functions.py"):
        # Whatever is tried can be written down.
        text = new_lines(edit, source)
        if edit.rule == rule:
            assert edit_difference(edit, source)
            found.append(text)
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
        # What a function makes is changed where it is written.
        ("inner", "read the argument offset in Mul",
         'return g.op("Mul", g.op("ReduceSum", self), offset)'),
        ("sine", "compute Sin in float where it does not take the dtype of self, and cast back",
         "given = self\n"
         'return op.CastLike((op.Sin(self if given.dtype.name in ("FLOAT", "DOUBLE", "FLOAT16") else '
         "op.Cast(self, to=FLOAT.dtype)) + 1), given)"),
        ("scaled", "And in place of Mul for bool",
         'return op.And(self, op.CastLike(alpha, self)) if self.dtype.name in ("BOOL",) else '
         "op.Mul(self, op.CastLike(alpha, self))"),
    ],
)  # fmt: skip
def test_a_change_touches_nothing_but_its_expression(
    function: str, rule: str, text: str, tmp_path: Path
) -> None:
    assert text in changed(function, rule, tmp_path)


def test_changes_are_made_within_each_other(tmp_path: Path) -> None:
    source = SourceCode()
    of_rule = {edit.rule: edit for edit in tried_edits("averaged", source, tmp_path / "functions.py")}
    outer = of_rule["cast to the dtype of self"]
    inner = of_rule["cast to dtype where it is given"]
    given = "op.Cast({0}, to=dtype) if dtype is not None and dtype != -1 else {0}"
    expected = f"return op.CastLike(op.ReduceMean(self, {given.format('dim')}), self)"
    assert new_lines(outer.and_then(inner), source) == expected
