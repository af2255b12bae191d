"""Which recorded failure a script is to show, with all that it takes to write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.compute as pc

from harness.causes.known_issues import KnownIssue, read_known_issues
from harness.compare import Diagnosis, Outcome, Stage, Verdict
from harness.convert import RuleProblem, RuleSource, load_rules, rule_source
from harness.core import InvalidInvocation, Invocation
from harness.execute import refuse_model, varying_dims
from harness.record import Minimal, ResultsError, RunInfo, read_minimal, read_run_info, rule_files, store


@dataclass(frozen=True, kw_only=True)
class ReproducibleFailure:
    """One failure with one converter and one backend; what is not said here is as in a `Verdict`.

    Attributes:
        case_id: Of the recorded case; a shrunk failure has that of the case it was shrunk from.
        exported: What was exported; the same as what was run for a static export.
        dynamic_dims: Per tensor, the dimensions that were left dynamic; None for a static export.
        diagnosis: Whose defect it is, and why; None in a record of an earlier version.
        evidence: Why, in words; "" until somebody who makes words says so.
        opset: That was asked for; None for the converter's default.
        timeout: Seconds that a step was given.
        minimal: Whether the invocation is a shrunk one.
        matters: What the failure depends on, as shrinking found out.
        versions: Package → version, of the run.
        system: Of the run's machine, as ``run.json`` has it.
        rule: Of the user's conversion functions, those that took part; "" without any.
        rule_files: Where the run had its rules from.
        known: Entries of the list of known defects that match.
    """

    case_id: str
    invocation: Invocation
    exported: Invocation
    dynamic_dims: tuple[frozenset[int], ...] | None = None
    converter: str
    backend: str
    backend_version: str = ""
    stage: Stage
    outcome: Outcome
    blame: str = ""
    diagnosis: Diagnosis | None = None
    evidence: str = ""
    signature: str = ""
    message: str = ""
    opset: int | None = None
    timeout: float = 60.0
    minimal: bool = False
    matters: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    system: str = ""
    rule: str = ""
    rule_files: tuple[Path, ...] = ()
    known: tuple[KnownIssue, ...] = ()

    @property
    def blame_rule(self) -> str:
        """The row of the decision table that decided the blame; "" where it is not known."""
        return self.diagnosis.rule if self.diagnosis else ""

    @property
    def of_rule(self) -> bool:
        """Whether the defect is in a conversion function of the user's."""
        return bool(self.rule) and self.blame == "converter"


def find_failure(
    results_dir: Path,
    wanted: str,
    *,
    converter: str | None = None,
    backend: str | None = None,
    original: bool = False,
) -> ReproducibleFailure:
    """A failure of a recorded case, in its shrunk form where the run has one and `original` is not wanted.

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
    refuse_model(known, rows[0].overload, "written as a script")
    row = _failing(rows, converter, backend)
    found = failure_of(results_dir, row, [] if original else minimals, read_run_info(results_dir))
    return replace(found, known=tuple(issue for issue in read_known_issues() if issue.matches(vars(row))))


def failure_of(results_dir: Path, row: Verdict, minimals: Sequence[Minimal], info: RunInfo) -> ReproducibleFailure:
    """A failed row of a run, in its shrunk form where `minimals` has one.

    Raises:
        ResultsError: the case is of another version.
    """
    key = row.case_id, row.converter, row.backend
    minimal = next((m for m in minimals if (m.case_id, m.converter, m.backend) == key), None)
    found = minimal if minimal is not None else row
    try:
        invocation = Invocation.from_json(found.invocation)
        exported = Invocation.from_json(found.exported_invocation or found.invocation)
    except InvalidInvocation as error:
        raise ResultsError(f"{results_dir}: case {row.case_id} cannot be read: {error}") from None
    dims = None
    if row.shape_mode == "dynamic":
        others = [invocation] if minimal is not None else _exported_together(results_dir, row)
        dims = varying_dims(exported, others)
    opset, timeout = info.options.get("opset"), info.options.get("timeout")
    return ReproducibleFailure(
        case_id=row.case_id,
        invocation=invocation,
        exported=exported,
        dynamic_dims=dims,
        converter=row.converter,
        backend=row.backend,
        backend_version=row.backend_version or info.versions.get(f"backend {row.backend}", ""),
        stage=found.stage,
        outcome=found.outcome,
        blame=found.blame,
        diagnosis=Diagnosis.from_row(vars(found)),
        evidence=found.evidence,
        signature=found.signature,
        message=found.message,
        opset=opset if isinstance(opset, int) else None,
        timeout=float(timeout) if isinstance(timeout, int | float) and timeout else 60.0,
        minimal=minimal is not None,
        matters=minimal.matters if minimal is not None else (),
        versions=dict(info.versions),
        system=" ".join(str(info.host[k]) for k in ("system", "release", "machine") if k in info.host),
        rule=row.rule,
        rule_files=rule_files(results_dir, info),
    )


def _failing(rows: list[Verdict], converter: str | None, backend: str | None) -> Verdict:
    here = [row for row in rows if converter in (None, row.converter) and backend in (None, row.backend)]
    case_id = rows[0].case_id
    if not here:
        known = ", ".join(sorted({f"{row.converter} → {row.backend}" for row in rows}))
        raise ResultsError(f"case {case_id} was not run with that converter and backend; it was with {known}")
    failing = [row for row in here if row.outcome.is_failure]
    if not failing:
        ends = ", ".join(sorted({f"{row.converter} → {row.backend}: {row.outcome}" for row in here}))
        raise ResultsError(f"case {case_id} has nothing to reproduce ({ends})")
    return failing[0]


def _exported_together(results_dir: Path, row: Verdict) -> list[Invocation]:
    """What ran on the export of `row`: the sizes that differ among these were left dynamic."""
    exported, converter = pc.field("exported_invocation"), pc.field("converter")
    same = (exported == row.exported_invocation) & (converter == row.converter)
    texts = store.read(results_dir, ["invocation"], same)["invocation"].to_pylist()
    return [Invocation.from_json(text) for text in dict.fromkeys(texts)]


def rules_of(failure: ReproducibleFailure) -> tuple[dict[str, str], RuleSource]:
    """Overload → the name of the user's function that converted it, and the source of these functions.

    Raises:
        RuleProblem: a file of rules is not there any more, or cannot be loaded.
        NotSeparable: a rule is no function of its own.
    """
    labels = set(failure.rule.split(", ")) - {""}
    files = {file.name: file for file in failure.rule_files}
    chosen = sorted({label.partition(":")[0] for label in labels})
    lost = [name for name in chosen if name not in files]
    if lost:
        raise RuleProblem(
            f"it was converted by the rule {failure.rule}; say where {' and '.join(lost)} is: --rules FILE"
        )
    functions: dict[str, str] = {}
    imports: list[str] = []
    code: list[str] = []
    for name in chosen:
        rules = load_rules(str(files[name]))
        mine = [r for r in rules if r.converter == failure.converter and r.label in labels]
        functions |= {rule.overload: rule.name for rule in mine}
        found = rule_source(files[name], sorted({rule.name for rule in mine}))
        imports += found.imports
        code += [*(["", ""] if code else []), *found.code]
    return functions, RuleSource(tuple(imports), tuple(code))
