"""Failures with one cause count as one defect, and known defects are recognised."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from converter_failures import failed
from harness_runs import row_of
from rich.console import Console

from harness.causes.groups import FailureGroup, GroupKind, failure_groups
from harness.causes.known_issues import KnownIssue, no_longer_failing, read_known_issues, shipped_file
from harness.compare.signatures import normalise
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.present.failures_text import render
from harness.record.json_lines import Minimal
from harness.record.layout import ResultsError
from harness.record.parquet import to_table


def failure(number: int, overload: str = "aten.celu.default", size: int = 1, **changes: Any) -> Verdict:
    spec = TensorSpec((size,), "float32", contiguous_strides((size,)), 0, Literal((0.5,) * size))
    fields: dict[str, Any] = {
        "case_id": f"{number:012x}",
        "structure_id": f"{number:012x}",
        "family": "activation",
        "outcome": Outcome.MISMATCH,
        "blame": "unknown",
        "signature": "values",
        "message": "values: output 0: expected 1.0, got 2.0",
    }
    given = {**fields, **changes}
    if not given["outcome"].is_failure:
        return row_of(Invocation(overload, (("self", spec),)), **given)
    signature, converter = given.pop("signature"), given.pop("converter", "dynamo")
    early = given.get("stage", Stage.COMPARE) is not Stage.COMPARE
    message = signature if early and "message" not in changes else given["message"]
    del given["message"]
    row = failed(overload, message, converter, {"self": spec}, **given)
    return dataclasses.replace(row, signature=signature)


def converting(number: int, overload: str, message: str, **changes: Any) -> Verdict:
    return failure(
        number,
        overload,
        **{
            "stage": Stage.CONVERT,
            "outcome": Outcome.ERROR,
            "blame": "converter",
            "signature": normalise(message),
            "message": message,
            **changes,
        },
    )


def groups_of(*rows: Verdict, **more: Any) -> list[FailureGroup]:
    return failure_groups(to_table(rows, "run"), **more)


def test_a_converters_defect_is_the_same_in_every_backend() -> None:
    rows = [
        failure(n, dtype=dtype, blame="converter", backend=backend)
        for n, dtype in enumerate(("float16", "bfloat16", "float32", "float64"))
        for backend in ("ort-cpu", "onnx-reference")
    ]
    [group] = groups_of(*rows)
    assert (group.cases, group.blame) == (4, "converter")
    assert group.dtypes == ("bfloat16", "float16", "float32", "float64")
    assert group.backends == ("onnx-reference", "ort-cpu")


def test_a_wrong_model_that_fails_differently_in_each_backend_is_one_defect() -> None:
    error: dict[str, Any] = {
        "stage": Stage.RUN,
        "outcome": Outcome.ERROR,
        "signature": "cannot squeeze",
        "blame": "converter",
    }
    rows = [failure(1, blame="converter"), failure(2, blame="converter")]
    rows += [failure(2, backend="onnx-reference", **error), failure(3, backend="onnx-reference", **error)]
    [group] = groups_of(*rows)
    assert (group.outcome, group.cases) == (Outcome.MISMATCH, 3)
    # Without a case that shows both, nothing says that they are one.
    assert len(groups_of(rows[0], rows[3])) == 2


def test_a_backends_defect_is_the_same_with_every_converter() -> None:
    load: dict[str, Any] = {
        "stage": Stage.LOAD,
        "outcome": Outcome.UNSUPPORTED,
        "signature": "no Erf",
        "blame": "backend",
    }
    rows = [failure(1, **load), failure(1, converter="torchscript", **load)]
    [group] = groups_of(*rows)
    assert group.converters == ("dynamo", "torchscript")
    assert len(groups_of(*rows, failure(1, **{**load, "backend": "trt"}))) == 2


def test_where_nobody_is_blamed_converters_and_backends_stay_apart() -> None:
    rows = [failure(1), failure(1, backend="trt"), failure(1, converter="torchscript")]
    assert len(groups_of(*rows)) == 3


def test_a_step_that_alone_is_guilty_is_a_defect_of_its_own() -> None:
    rows = [
        failure(1, blame="backend", blame_rule="graph-optimisation"),
        failure(2, blame="backend", blame_rule="graph-optimisation"),
        failure(3, blame="backend", blame_rule="model-is-right"),
    ]
    assert [group.cases for group in groups_of(*rows)] == [2, 1]


def test_what_the_specification_leaves_open_is_listed_last_and_apart() -> None:
    rows = [failure(n, "aten.max.dim", blame="spec") for n in range(9)]
    rows += [converting(20, "aten.sum.default", "ValueError: no", outcome=Outcome.UNSUPPORTED)]
    groups = groups_of(*rows)
    assert [group.blame for group in groups] == ["converter", "spec"]
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(render(groups))
    listed = capture.get()
    assert "1 distinct failure, worst first" in listed
    assert listed.index("aten.sum.default") < listed.index("not a defect") < listed.index("aten.max.dim")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "DispatchError: No ONNX function found for <OpOverload(op='aten.special_zeta', "
            "overload='other_scalar')>. Failure message: No decompositions registered",
            "DispatchError: No ONNX function found for <OpOverload(op='aten.special_zeta', "
            "overload='default')>. Failure message: No decompositions registered",
        ),
        (
            'RuntimeError: 0 INTERNAL ASSERT FAILED at "/w/torch/csrc/jit/ir/alias_analysis.cpp":623, please '
            "report a bug to PyTorch. We don't have an op for aten::eq but it isn't a special case.  "
            "Argument types: Tensor, bool, \n\nCandidates:\n\taten::eq.Tensor(Tensor self, Tensor other)",
            'RuntimeError: 0 INTERNAL ASSERT FAILED at "/w/torch/csrc/jit/ir/alias_analysis.cpp":620, please '
            "report a bug to PyTorch. We don't have an op for aten::where but it isn't a special case.  "
            "Argument types: Tensor, float, bool, \n\nCandidates:\n\taten::where(Tensor condition)",
        ),
        (
            "InferenceError: [ShapeInferenceError] (op_type:Less, node name: n1): B typestr: T, has "
            "unsupported type: tensor(int16)",
            "InferenceError: [ShapeInferenceError] (op_type:Less, node name: n7): A typestr: T, has "
            "unsupported type: tensor(bool)",
        ),
        (
            "BackendFailure: [ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /w/ops.h:256 "
            "onnxruntime::Div<T>::Div(const onnxruntime::OpKernelInfo&) [with T = long int] b_data[i] != T{0} "
            "was false. Integer division by zero",
            "BackendFailure: [ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /w/ops.h:256 "
            "onnxruntime::Div<T>::Div(const onnxruntime::OpKernelInfo&) [with T = int] b_data[i] != T{0} was "
            "false. Integer division by zero",
        ),
        (
            "ValueError: Required parameter 'indices' is not provided. Signature: ''::Gather(T, indices: Tind) "
            "-> (T) where T=STRING | INT8",
            "ValueError: Required parameter 'indices' is not provided. Signature: ''::Gather(T, indices: Tind) "
            "-> (T) where T=INT8 | INT16 | STRING",
        ),
        (
            "RuntimeError: Pending unbacked symbols {u0} not in returned outputs FakeTensor(..., size=(u0, 2))"
            " ((2, 1), 0).",
            "RuntimeError: Pending unbacked symbols {u4} not in returned outputs FakeTensor(..., size=(u4,), "
            "dtype=torch.int64) ((1,), 3).",
        ),
    ],
)
def test_leftovers_of_a_case_do_not_split_a_defect(one: str, other: str) -> None:
    [group] = groups_of(converting(1, "aten.a.default", one), converting(2, "aten.b.default", other))
    assert group.overloads == ("aten.a.default", "aten.b.default")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("No ONNX function found for aten.foo.default", "No ONNX function found for aten.bar.default"),
        (
            "(op_type:Less): A typestr: T, has unsupported type: x",
            "(op_type:Or): A typestr: T, has unsupported type: x",
        ),
        ("(op_type:Less): unsupported type", "(op_type:Less): inconsistent type"),
        ("Required parameter 'dim' is not provided.", "Required parameter 'axis' is not provided."),
    ],
)
def test_defects_stay_apart(one: str, other: str) -> None:
    assert len(groups_of(converting(1, "aten.a.default", one), converting(2, "aten.a.default", other))) == 2


def test_uninformative_messages_are_grouped_by_operator() -> None:
    words = "ZeroDivisionError: integer modulo by zero"
    rows = [converting(n, name, words) for n, name in enumerate(("aten.take.default", "aten.flip.default"))]
    assert len(groups_of(*rows)) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aten.max_pool2d.default", "aten.max_pool3d.default"),
        ("aten.atan2.default", "aten.arctan2.default"),
        ("aten.sinc.default", "aten.special_sinc.default"),
        ("aten.as_strided.default", "aten.as_strided_copy.default"),
    ],
)
def test_names_of_one_operator_are_one(one: str, other: str) -> None:
    assert len(groups_of(failure(1, one), failure(2, other))) == 1


def test_a_group_shows_what_its_cases_were_shrunk_to() -> None:
    row = failure(1, size=9)
    minimal = Minimal(
        **{
            f.name: getattr(row, f.name)
            for f in dataclasses.fields(Minimal)
            if hasattr(row, f.name) and f.name != "elements"
        },
        minimal_id="abcdef012345",
        matters=("fails with alpha=2; not with 1",),
        elements=1,
    )
    elsewhere = dataclasses.replace(minimal, backend="trt", elements=0)
    [group] = groups_of(row, failure(2, size=3), minimal=[minimal, elsewhere])
    assert group.case_id == f"{2:012x}"
    assert group.minimal == minimal


# Known defects


def test_what_a_rule_does_is_never_one_with_what_the_converter_does() -> None:
    message = "RuntimeError: no kernel for the type"
    rows = [
        converting(1, "aten.celu.default", message),
        converting(2, "aten.elu.default", message, rule="mine.py:elu"),
        converting(3, "aten.selu.default", message, rule="mine.py:selu"),
        converting(4, "aten.gelu.default", message),
    ]
    groups = groups_of(*rows)
    assert sorted((group.rule, *group.overloads) for group in groups) == [
        ("", "aten.celu.default", "aten.gelu.default"),
        ("mine.py:elu", "aten.elu.default"),
        ("mine.py:selu", "aten.selu.default"),
    ]
    assert {group.to_data()["rule"] for group in groups} == {"", "mine.py:elu", "mine.py:selu"}
    console = Console(width=160)
    with console.capture() as shown:
        console.print(render(groups))
    assert "blame: the rule mine.py:elu" in shown.get()


@pytest.mark.parametrize("changes", [{"dtype": "float16"}, {"blame": "backend"}])
def test_a_minimal_case_that_is_another_groups_is_not_shown(changes: dict[str, str]) -> None:
    # The minimal case is a float32 one without blame.
    row = failure(1, size=3, **changes)
    small = failure(2)
    minimal = Minimal(
        case_id=row.case_id,
        overload=row.overload,
        converter=row.converter,
        backend=row.backend,
        stage=row.stage,
        outcome=row.outcome,
        signature=row.signature,
        **{name: getattr(small, name) for name in ("blame", "component", "place", "fault")},
        message="values: output 0: expected 0, got 1",
        minimal_id=small.case_id,
        invocation=small.invocation,
    )
    [group] = groups_of(row, minimal=[minimal])
    assert group.minimal is None
    assert group.call.startswith("aten.celu.default(self=")
    [group] = groups_of(failure(1, size=3), minimal=[minimal])
    assert group.minimal == minimal


def known_issues(tmp_path: Path, text: str) -> tuple[KnownIssue, ...]:
    path = tmp_path / "known.toml"
    path.write_text(text)
    return read_known_issues(path)


HEAD = '[[issue]]\nlink = "https://example.com/1"\nnote = "n"\n'


@pytest.mark.parametrize(
    ("keys", "matches"),
    [
        ('overload = "aten::celu"', True),
        ('overload = "aten.ce*"', True),
        ('overload = ["aten.elu", "aten.celu.default"]', True),
        ('overload = "aten.elu"', False),
        ('overload = "celu"\nbackend = "ort-cpu"\nconverter = ["dynamo"]', True),
        ('overload = "celu"\nbackend = "trt"', False),
        ('overload = "celu"\nstage = "compare"\noutcome = "mismatch"', True),
        ('overload = "celu"\nstage = "run"', False),
        ('signature = "value"', True),
        ('pattern = "^val.es$"', True),
        ('pattern = "NaN"', False),
        ('message = "expected 1.0, got \\\\d"', True),
        ('overload = "celu"\ncall = "float32\\\\[1\\\\]"', True),
        ('overload = "celu"\ncall = "alpha="', False),
        ('overload = "celu"\ndtype = "float16"', False),
    ],
)
def test_an_entry_matches_where_all_that_it_states_holds(keys: str, matches: bool, tmp_path: Path) -> None:
    [group] = groups_of(failure(1), known=known_issues(tmp_path, HEAD + keys))
    assert bool(group.known) == matches


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[issue", "cannot read"),
        ('[[issues]]\nlink = ""', "unknown key 'issues'"),
        (HEAD + 'overlaod = "x"', "unknown key 'overlaod'; did you mean 'overload'?"),
        (HEAD, "it would match every failure"),
        ('[[issue]]\nnote = "n"\noverload = "x"', "no 'link'"),
        ('[[issue]]\nlink = "https://x"\noverload = "x"', "no 'note'"),
        ('[[issue]]\nlink = "#12"\nnote = "n"\noverload = "x"', "'link' must begin with https://"),
        (HEAD + 'overload = "x"\nstage = "compile"', "stage 'compile' is none of reference, convert"),
        (HEAD + 'overload = "x"\noutcome = "pass"', "outcome 'pass' is none of mismatch"),
        (HEAD + "overload = []", "'overload' must be a name or a list of names"),
        (HEAD + "overload = 3", "'overload' must be a name or a list of names"),
        (HEAD + 'pattern = "("', "'pattern' is not a regular expression"),
        (HEAD + "signature = 3", "'signature' must be a text"),
    ],
)
def test_a_damaged_file_of_known_issues_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as caught:
        known_issues(tmp_path, text)
    words = str(caught.value)
    assert said in words
    assert str(tmp_path / "known.toml") in words
    assert "\n" not in words
    assert text.startswith("[[issues") or "[[issue]]" not in text or "entry 1" in words


def test_an_entry_that_no_longer_fails_is_reported(tmp_path: Path) -> None:
    known = known_issues(tmp_path, HEAD + 'overload = "aten.celu"\nsignature = "values"\nbackend = "ort-cpu"')
    passing: dict[str, Any] = {"outcome": Outcome.PASS, "signature": "", "message": ""}
    passed = [failure(n, **passing) for n in range(3)]

    def gone(*rows: Verdict) -> list[int]:
        return [one.passed for one in no_longer_failing(known, to_table(rows, "run"))]

    assert gone(*passed) == [3]
    assert gone(*passed, failure(9)) == []
    # It says nothing that another operator or another backend is right, or that PyTorch took no case.
    assert gone(failure(1, "aten.elu.default", **passing)) == []
    assert gone(failure(1, backend="trt", **passing)) == []
    assert gone(failure(1, outcome=Outcome.SKIP, stage=Stage.REFERENCE)) == []
    assert gone(*passed, failure(9, signature="shape")) == [3]


@pytest.mark.parametrize(
    ("repository", "blames"),
    [
        ("pytorch/pytorch", {"converter", "pytorch"}),
        ("microsoft/onnxscript", {"converter"}),
        ("microsoft/onnxruntime", {"backend"}),
        ("openvinotoolkit/openvino", {"backend"}),
    ],
)
def test_an_issue_is_not_attached_to_another_components_defect(
    tmp_path: Path, repository: str, blames: set[str]
) -> None:
    link = f"https://github.com/{repository}/issues/1"
    (known,) = known_issues(tmp_path, f'[[issue]]\nlink = "{link}"\nnote = "n"\noverload = "aten.celu"\n')
    rows = {blame: asdict(failure(1, blame=blame)) for blame in ("converter", "backend", "pytorch", "unknown", "spec")}
    matched = {blame for blame, row in rows.items() if known.matches(row)}
    # A failure that is left open or unknown may have any culprit.
    assert matched == blames | {"unknown", "spec"}


def test_the_entries_that_come_with_the_harness_are_valid_and_upstream() -> None:
    path = shipped_file()
    assert path is not None
    known = read_known_issues()
    assert len(known) >= 15
    assert len({issue.link for issue in known}) == len(known)
    upstream = ("pytorch/pytorch", "microsoft/onnxruntime", "microsoft/onnxscript", "onnx/onnx")
    for issue in known:
        assert issue.link.startswith(tuple(f"https://github.com/{name}/" for name in upstream)), issue.link
        assert issue.note.endswith(".")


@pytest.mark.parametrize(
    ("outcome", "blame", "kind"),
    [
        (Outcome.MISMATCH, "converter", GroupKind.DEFECT),
        (Outcome.MISMATCH, "unknown", GroupKind.UNDECIDED),
        (Outcome.MISMATCH, "spec", GroupKind.LEFT_OPEN),
        (Outcome.UNSUPPORTED, "backend", GroupKind.GAP),
    ],
)
def test_a_group_is_a_defect_a_gap_undecided_or_left_open(outcome: Outcome, blame: str, kind: GroupKind) -> None:
    (group,) = groups_of(failure(1, outcome=outcome, blame=blame))
    assert group.kind is kind
