"""A recorded failure with everything that its script needs, and its title for a script and for a tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import pyarrow.compute as pc

from harness.causes.cause import RootCause, root_cause
from harness.causes.known_issues import KnownIssue, read_known_issues
from harness.compare.diagnosis import Diagnosis
from harness.compare.faults import Fault
from harness.compare.problem_kinds import FLUSHED, OVERFLOW
from harness.compare.verdict import BEFORE_BACKEND, Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.convert.rules.rule import RuleProblem, load_rules
from harness.convert.rules.standalone_source import RuleSource, rule_source
from harness.core.dtypes import PRECISION
from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.overloads import packet
from harness.core.route import Route, route_label
from harness.generate.case_library import load_cases
from harness.pipeline.model_task import refuse_model
from harness.pipeline.program import varying_dims
from harness.record import store
from harness.record.json_lines import Minimal, read_minimal
from harness.record.layout import ResultsError
from harness.record.run_info import RunInfo, read_run_info, rule_files
from harness.run.backend import BACKENDS, REFERENCE


def opset_asked(converter: str, overload: str, recorded: object) -> int | None:
    """Return the opset that a run asked of a converter for an operator; None for the converter's own.

    Args:
        converter: Its name, which may include the opset.
        overload: The operator, which may be one that ONNX got in an opset.
        recorded: The value of the option in ``run.json``.
    """
    case, named = load_cases().get(overload), Route.parse(converter).opset
    if named is not None or isinstance(recorded, int):
        return named if named is not None else int(str(recorded))
    return case.opset if case is not None and case.opset in find_converter(converter).opsets() else None


@dataclass(frozen=True, kw_only=True)
class ReproducibleFailure:
    """One failure with one converter and one backend.

    Attributes:
        verdict: Its row; a shrunk failure has the row of the case it was shrunk from, with its own ending.
        invocation: The case, perhaps shrunk.
        exported: The exported invocation; the same as the one that was run for a static export.
        dynamic_dims: Per tensor, the dimensions that were left dynamic; None for a static export.
        diagnosis: The component to blame, with the evidence; None in a record of an earlier version.
        cause: Its root cause; None in a record of an earlier version.
        evidence: The evidence in words; "" until `harness.present` sets it.
        wrong: The fault of the guilty part, in words: ``ignores `alpha```; "" until `harness.present` sets it.
        opset: The opset that was asked for; None for the converter's default.
        timeout: Seconds that a step was given.
        minimal: Whether the invocation is a shrunk one.
        matters: The properties that the failure depends on, as shrinking found out.
        versions: Package → version, of the run.
        system: The run's machine, as in ``run.json``.
        rule_files: The files of the run's rules.
        known: Matching entries of the list of known defects.
    """

    verdict: Verdict
    invocation: Invocation
    exported: Invocation
    dynamic_dims: tuple[frozenset[int], ...] | None = None
    diagnosis: Diagnosis | None = None
    cause: RootCause | None = None
    evidence: str = ""
    wrong: str = ""
    opset: int | None = None
    timeout: float = 60.0
    minimal: bool = False
    matters: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    system: str = ""
    rule_files: tuple[Path, ...] = ()
    known: tuple[KnownIssue, ...] = ()

    @property
    def blame_rule(self) -> str:
        """The row of the decision table that decided the blame; "" if it is not known."""
        return self.diagnosis.rule if self.diagnosis else ""

    @property
    def is_in_rule(self) -> bool:
        """Whether the defect is in a conversion function of the user's."""
        return bool(self.verdict.rule) and self.verdict.blame in ("converter", "unknown", "")


def find_failure(
    results_dir: Path,
    wanted: str,
    *,
    converter: str | None = None,
    backend: str | None = None,
    original: bool = False,
) -> ReproducibleFailure:
    """Return a failure of a recorded case, in its shrunk form if the run has one and `original` is not wanted.

    Args:
        results_dir: The run.
        wanted: Case id or an unambiguous beginning of one; of a recorded or of a shrunk case.
        converter: Only with this one; None for the first that fails.
        backend: Only on this one.
        original: The recorded case even where a shrunk one is there.

    Raises:
        ResultsError: no such case, or it has not failed there.
    """
    minimals = read_minimal(results_dir)
    known = store.resolve_case(results_dir, wanted, minimals)
    rows = list(store.verdicts(results_dir, pc.field("case_id") == known))
    if not rows:
        known = next(m.case_id for m in minimals if m.minimal_id == known)
        rows = list(store.verdicts(results_dir, pc.field("case_id") == known))
    refuse_model(results_dir, known, rows[0].overload, "written as a script")
    row = _failing(rows, converter, backend)
    found = failure_of(results_dir, row, [] if original else minimals, read_run_info(results_dir))
    return replace(found, known=tuple(issue for issue in read_known_issues() if issue.matches(vars(row))))


def failure_of(results_dir: Path, row: Verdict, minimals: Sequence[Minimal], info: RunInfo) -> ReproducibleFailure:
    """Return a failed row of a run, in its shrunk form if `minimals` has one.

    Raises:
        ResultsError: the case is of another version.
    """
    key = row.case_id, row.converter, row.backend
    minimal = next((m for m in minimals if (m.case_id, m.converter, m.backend) == key), None)
    found = row if minimal is None else minimal.as_verdict(row)
    try:
        invocation = Invocation.from_json(found.invocation)
        exported = Invocation.from_json(found.exported_invocation or found.invocation)
    except InvalidInvocation as error:
        raise ResultsError(f"{results_dir}: case {row.case_id} cannot be read: {error}") from None
    dims = None
    if row.shape_mode == "dynamic":
        others = [invocation] if minimal is not None else _exported_together(results_dir, row)
        dims = varying_dims(exported, others)
    timeout = info.options.get("timeout")
    version = row.backend_version or info.versions.get(f"backend {row.backend}", "")
    return ReproducibleFailure(
        verdict=replace(found, backend_version=version),
        invocation=invocation,
        exported=exported,
        dynamic_dims=dims,
        diagnosis=Diagnosis.from_row(vars(found)),
        # A single remaining element shows less of the fault than the case that was drawn.
        cause=root_cause(vars(row)) if row.fault else None,
        evidence=found.evidence,
        opset=opset_asked(row.converter, row.overload, info.options.get("opset")),
        timeout=float(timeout) if isinstance(timeout, int | float) and timeout else 60.0,
        minimal=minimal is not None,
        matters=minimal.matters if minimal is not None else (),
        versions=dict(info.versions),
        system=" ".join(str(info.host[k]) for k in ("system", "release", "machine") if k in info.host),
        rule_files=rule_files(results_dir, info),
    )


def _failing(rows: list[Verdict], converter: str | None, backend: str | None) -> Verdict:
    here = [row for row in rows if converter in (None, row.converter) and backend in (None, row.backend)]
    case_id = rows[0].case_id
    if not here:
        known = ", ".join(sorted({route_label(row.converter, row.backend) for row in rows}))
        raise ResultsError(f"case {case_id} was not run with that converter and backend; it was with {known}")
    failing = [row for row in here if row.outcome.is_failure]
    if not failing:
        ends = ", ".join(sorted({f"{route_label(row.converter, row.backend)}: {row.outcome}" for row in here}))
        raise ResultsError(f"case {case_id} has nothing to reproduce ({ends})")
    return failing[0]


def _exported_together(results_dir: Path, row: Verdict) -> list[Invocation]:
    """Return the invocations that ran on the export of `row`: the sizes in which these differ were left dynamic."""
    exported, converter = pc.field("exported_invocation"), pc.field("converter")
    same = (exported == row.exported_invocation) & (converter == row.converter)
    texts = store.read(results_dir, ["invocation"], same)["invocation"].to_pylist()
    return [Invocation.from_json(text) for text in dict.fromkeys(texts)]


def rules_of(failure: ReproducibleFailure) -> tuple[dict[str, str], RuleSource]:
    """Overload → the name of the user's function that converted it, and the source of these functions.

    Raises:
        RuleProblem: a file of rules is not there any more, or cannot be loaded.
        NotSeparable: a rule is not a function of its own.
    """
    labels = set(failure.verdict.rule.split(", ")) - {""}
    files = {file.name: file for file in failure.rule_files}
    chosen = sorted({label.partition(":")[0] for label in labels})
    lost = [name for name in chosen if name not in files]
    if lost:
        raise RuleProblem(
            f"it was converted by the rule {failure.verdict.rule}; say where {' and '.join(lost)} is: --rules FILE"
        )
    functions: dict[str, str] = {}
    imports: list[str] = []
    code: list[str] = []
    for name in chosen:
        rules = load_rules(str(files[name]))
        mine = [
            r for r in rules if r.converter == Route.parse(failure.verdict.converter).converter and r.label in labels
        ]
        functions |= {rule.overload: rule.name for rule in mine}
        found = rule_source(files[name], sorted({rule.name for rule in mine}))
        imports += found.imports
        code += [*(["", ""] if code else []), *found.code]
    return functions, RuleSource(tuple(imports), tuple(code))


_STEPS = {
    Stage.CONVERT: "the export",
    Stage.TRANSFORM: "transforming the model",
    Stage.CHECK: "checking the exported model",
    Stage.LOAD: "loading the model",
    Stage.RUN: "running the model",
    Stage.COMPARE: "comparing",
}
_ENDS = {
    Outcome.UNSUPPORTED: "is refused",
    Outcome.ERROR: "fails",
    Outcome.CRASH: "kills the process",
    Outcome.TIMEOUT: "hangs",
}
#: Nodes that only carry values to and from the others.
_GLUE = frozenset({"Cast", "Constant", "Identity"})


def title(failure: ReproducibleFailure) -> str:
    """Describe the failure in one line, in the harness's words."""
    early = failure.verdict.stage in BEFORE_BACKEND
    where = failure.verdict.converter if early else route_label(failure.verdict.converter, failure.verdict.backend)
    return f"{failure.invocation.overload} through {where}: {_problem(failure)}"


def _problem(failure: ReproducibleFailure) -> str:
    if failure.verdict.outcome is Outcome.MISMATCH:
        return failure.wrong or wrong_result(failure)
    return f"{_STEPS[failure.verdict.stage]} {_ENDS[failure.verdict.outcome]}"


def wrong_result(failure: ReproducibleFailure) -> str:
    """Describe the wrong result: ``wrong values``, ``a wrong shape``, ``subnormals flushed to zero``."""
    kind = failure.verdict.signature or "values"
    if kind in (FLUSHED, OVERFLOW):
        return kind
    return f"{'' if kind in ('values', 'NaN positions') else 'a '}wrong {kind}"


def fault(failure: ReproducibleFailure) -> str:
    """Describe the fault of the guilty part: ``gives wrong values``, ``flushes subnormals to zero``."""
    known = {FLUSHED: "flushes subnormals to zero", OVERFLOW: "overflows to infinity"}
    return failure.wrong or known.get(failure.verdict.signature, f"gives {wrong_result(failure)}")


def _ends(failure: ReproducibleFailure) -> str:
    """Describe the fault of the user's conversion function: ``gives wrong values``, ``fails``."""
    return fault(failure) if failure.verdict.outcome is Outcome.MISMATCH else _ENDS[failure.verdict.outcome]


def converter_name(name: str) -> str:
    """Return a converter's name for its users: ``torch.onnx.export(dynamo=True)``."""
    return find_converter(name).summary.partition(",")[0] or name


def backend_name(name: str) -> str:
    """Return a backend's name for its users: ``ONNX Runtime``."""
    entry = BACKENDS.find(name)[0]
    return name if entry.name.endswith(":") else entry.summary.partition(",")[0] or name


def title_for(failure: ReproducibleFailure, tracker: str, exported: onnx.ModelProto | None) -> str:
    """Return a title in the manner of a tracker's maintainers.

    Args:
        tracker: A GitHub repository.
        exported: The exported model, if it is known.
    """
    if failure.verdict.blame == "spec":
        what = wrong_result(failure).removeprefix("wrong ")
        return f"Specification of {_operators(failure, exported)} leaves {what} open"
    if failure.is_in_rule:
        return f"{failure.verdict.rule} {_ends(failure)} for {failure.invocation.dtype}"
    if failure.verdict.blame == "pytorch":
        operator = packet(failure.invocation.overload).removeprefix("aten.")
        return f"{operator} {fault(failure)} for {failure.invocation.dtype}"
    if tracker == BACKENDS.find(failure.verdict.backend)[0].tracker:
        return _runtime_title(failure, exported)
    return _export_title(failure, exported)


def _export_title(failure: ReproducibleFailure, exported: onnx.ModelProto | None) -> str:
    """Return a title for an exporter's tracker: ``[ONNX] celu computes float64 in float32``."""
    operator = packet(failure.invocation.overload).removeprefix("aten.")
    dtype = failure.invocation.dtype
    legacy = " with dynamo=False" if "dynamo=False" in converter_name(failure.verdict.converter) else ""
    if failure.verdict.stage is Stage.CONVERT:
        if failure.verdict.outcome is Outcome.UNSUPPORTED:
            return f"[ONNX] No conversion of {operator} for {dtype}{legacy}"
        return f"[ONNX] Export of {operator} for {dtype} {_ENDS[failure.verdict.outcome]}{legacy}"
    if failure.verdict.stage is Stage.CHECK:
        return f"[ONNX] {operator} for {dtype} is exported as an invalid model{legacy}"
    if failure.verdict.stage is not Stage.COMPARE:
        return f"[ONNX] Exported {operator} for {dtype}: {_problem(failure)}{legacy}"
    narrower = _narrower(dtype, exported) if failure.blame_rule == "fewer-bits" else ""
    if narrower:
        return f"[ONNX] {operator} computes {dtype} in {narrower}{legacy}"
    return f"[ONNX] Exported {operator} {fault(failure)} for {dtype}{legacy}"


def _runtime_title(failure: ReproducibleFailure, exported: onnx.ModelProto | None) -> str:
    """Return a title for a runtime's tracker: ``Sigmoid gives wrong values for float32 on CPU``."""
    what = _operators(failure, exported)
    where = "in the reference evaluator" if failure.verdict.backend == REFERENCE else "on CPU"
    where = "on CUDA" if "cuda" in failure.verdict.backend else where
    dtype = _dtype_of(exported) or failure.invocation.dtype
    if failure.verdict.stage is Stage.COMPARE:
        by = " with graph optimisations" if failure.blame_rule == "graph-optimisation" else ""
        return f"{what} {fault(failure)} for {dtype} {where}{by}"
    if failure.verdict.outcome is Outcome.UNSUPPORTED and failure.verdict.stage is Stage.LOAD:
        return f"{what} is not implemented for {dtype} {where}"
    return f"{what} for {dtype} {where}: {_problem(failure)}"


def _operators(failure: ReproducibleFailure, exported: onnx.ModelProto | None) -> str:
    """Name the ONNX operators of a small model, or the operator that a larger one was exported from."""
    nodes = list(exported.graph.node) if exported is not None else []
    # The operator for which a runtime has no kernel is known.
    named = [failure.diagnosis.place] if failure.diagnosis and failure.diagnosis.fault == Fault.NO_KERNEL else []
    found = list(dict.fromkeys(named or (node.op_type for node in nodes if node.op_type not in _GLUE)))
    found = found or list(dict.fromkeys(node.op_type for node in nodes))
    if 0 < len(found) <= 3:
        return found[0] if len(found) == 1 else f"A model of {', '.join(found[:-1])} and {found[-1]}"
    return f"A model of {packet(failure.invocation.overload)}"


def _dtype_of(exported: onnx.ModelProto | None) -> str:
    """Return the dtype of the first value that the first telling node takes; "" if it is not known."""
    if exported is None:
        return ""
    graph = exported.graph
    known = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    known |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    telling = [node for node in graph.node if node.op_type not in _GLUE] or list(graph.node)
    taken = [known[name] for node in telling[:1] for name in node.input if known.get(name)]
    return _word(taken[0]) if taken else ""


def _narrower(dtype: str, exported: onnx.ModelProto | None) -> str:
    """Return the floating dtype of fewer bits that the nodes of a model convert to; "" for none."""
    to = [
        _word(attribute.i)
        for node in (exported.graph.node if exported is not None else ())
        for attribute in node.attribute
        if attribute.name == "to"
    ]
    bits = PRECISION.get(dtype, 0)
    return min((word for word in to if PRECISION.get(word, bits) < bits), key=PRECISION.__getitem__, default="")


def _word(element: int) -> str:
    """Return ``float32`` for ONNX's ``FLOAT``."""
    name: str = onnx.TensorProto.DataType.Name(element).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)
