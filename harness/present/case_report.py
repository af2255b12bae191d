"""One case of a run: its call, its results, which component is at fault, and how to rerun it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.causes.cause import root_cause
from harness.causes.failure_match import call_text
from harness.causes.groups import minimal_data
from harness.causes.known_issues import KnownIssue
from harness.compare.case_problems import parse_problems
from harness.compare.output_comparison import parse_excuses
from harness.compare.verdict import Outcome, Verdict
from harness.core.invocation import MODEL, InvalidInvocation, Invocation
from harness.core.route import EXPORTED, Route, route_label
from harness.core.text import count, plain, shown
from harness.locate.suspect import Suspect
from harness.pipeline.model_task import model_word
from harness.present.call_text import torch_call
from harness.present.evidence import evidence_of_row, fault_text, place_text
from harness.present.run_counts import placement_text
from harness.record import layout, store
from harness.record.json_lines import Minimal, read_minimal
from harness.record.run_info import read_run_info


def shown_path(path: Path, cwd: Path | None = None) -> str:
    """Return `path` as a person would type it: relative if it is below `cwd` (the current directory)."""
    path, here = path.absolute(), (cwd or Path.cwd()).absolute()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def command(
    results_dir: Path,
    case_id: str,
    *,
    converter: str | None = None,
    backend: str | None = None,
    model: str | None = None,
    rules: Sequence[Path] = (),
    cwd: Path | None = None,
) -> str:
    """Return the command that reruns a case or a whole model from `cwd`.

    Args:
        results_dir: The run that recorded it.
        case_id: Its id, or the beginning of it.
        converter: The only converter to use; None for all. The same holds for `backend`.
        model: The model of the case, as its user named it; None for an operator's case.
        rules: Files of conversion functions that took part.
    """
    words = [*layout.run_command(cwd).split(), "--replay", shown_path(results_dir, cwd), "--case", case_id]
    if model is not None:
        words = [*layout.run_command(cwd).split(), "--model", model]
    for option, value in (("--converter", converter), ("--backend", backend)):
        if value:
            words += [option, value]
    for file in rules:
        words += ["--rules", shown_path(file, cwd)]
    return shlex.join(words)


_FAILED, _PASSED = "red", "green"


@dataclass(frozen=True, kw_only=True)
class CaseView:
    """Everything that a run knows about a case.

    Attributes:
        invocation: The invocation as JSON.
        versions: Versions of the packages that took part in the run.
        verdicts: One per converter, backend and export.
        minimal: The case that it was shrunk to, if it was.
        known: Known defects that match one of its failures, in the order of their list.
        lines: Converter, backend and shapes of a failure → lines of the converter that may cause it, the
            likeliest first, if they were searched for.
        unlocated: The same → why no lines were searched for, a `harness.locate.locate.Unlocated`.
    """

    run: Path
    case_id: str
    invocation: str
    versions: dict[str, str]
    verdicts: tuple[Verdict, ...]
    minimal: tuple[Minimal, ...]
    known: tuple[KnownIssue, ...]
    lines: Mapping[tuple[str, str, str], tuple[Suspect, ...]] = field(default_factory=dict)
    unlocated: Mapping[tuple[str, str, str], str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it failed anywhere."""
        return any(verdict.outcome.is_failure for verdict in self.verdicts)

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, as ``conformance show --json`` prints it."""
        return {
            "run": str(self.run),
            "case_id": self.case_id,
            "call": call_text(self.invocation),
            "torch": _torch_call(self.invocation),
            "invocation": self.invocation,
            "versions": self.versions,
            "verdicts": [verdict_data(verdict) | self._lines_of(verdict) for verdict in self.verdicts],
            "minimal": [minimal_data(minimal) for minimal in self.minimal],
            "known": [issue.to_data() for issue in self.known],
        }

    def _lines_of(self, verdict: Verdict) -> dict[str, Any]:
        found, why = self.lines.get(_export_of(verdict)), self.unlocated.get(_export_of(verdict))
        if why is not None:
            return {"lines": [], "no_lines_because": why}
        return {} if found is None else {"lines": [suspect.to_data() for suspect in found]}


def _export_of(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.converter, verdict.backend, verdict.shape_mode


def add_suspects(view: CaseView) -> CaseView:
    """Return the view with the lines that may cause the converter's failures; this exports the cases again.

    Raises:
        ResultsError: the run cannot be read.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    # PyTorch takes seconds to import, and nothing else here needs it.
    from harness.locate.locate import find_suspects, why_unlocated

    opset = read_run_info(view.run).options.get("opset")
    given = opset if isinstance(opset, int) else None
    failing = [verdict for verdict in view.verdicts if verdict.outcome.is_failure]
    reasons = {_export_of(v): str(why) for v in failing if (why := why_unlocated(v)) is not None}
    wanted = [verdict for verdict in failing if why_unlocated(verdict) is None]
    found = {_export_of(v): find_suspects(view.run, v, opset=given) for v in wanted}
    return replace(view, lines=found, unlocated=reasons)


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """Return one verdict as plain JSON data, without the fields of the case."""
    names = (
        "converter", "converter_version", "opset", "backend", "backend_version", "device", "shape_mode",
        "stage", "outcome", "blame", "blame_rule", "component", "place", "fault",
        "signature", "message", "max_abs_error", "max_rel_error",
        "max_ulp_error", "needed_rtol", "needed_atol", "mismatched_elements", "total_elements",
        "exported_invocation", "placement", "excused",
    )  # fmt: skip
    problems = [_add_evidence(problem) for problem in parse_problems(verdict.problems)]
    why = {"evidence": evidence_of_row(vars(verdict)), "diagnosis": _parsed(verdict.diagnosis)}
    owner = {"owner": _owner(vars(verdict))}
    return {**{name: getattr(verdict, name) for name in names}, **owner, **why, "problems": problems}


def _add_evidence(problem: Mapping[str, Any]) -> dict[str, Any]:
    why = {"evidence": evidence_of_row(problem), "diagnosis": _parsed(problem["diagnosis"])}
    return {**problem, **why}


def _parsed(diagnosis: str) -> Any:
    return json.loads(diagnosis) if diagnosis else None


def case_view(run: Path, wanted: str, known: Sequence[KnownIssue] = ()) -> CaseView:
    """Return a case of a run, by its id, the beginning of it, or the id of its shrunk case.

    Raises:
        ResultsError: no such case, with near ones; or the run cannot be read.
    """
    minimal = read_minimal(run)
    case_id = store.resolve_case(run, wanted, minimal)
    verdicts = tuple(store.verdicts(run, pc.field("case_id") == case_id))
    if not verdicts:
        case_id = next(m.case_id for m in minimal if m.minimal_id == case_id)
        verdicts = tuple(store.case(run, case_id))
    rows = [vars(v) for v in verdicts if v.outcome.is_failure]
    return CaseView(
        run=run,
        case_id=case_id,
        invocation=verdicts[0].invocation,
        versions=dict(read_run_info(run).versions),
        verdicts=verdicts,
        minimal=tuple(m for m in minimal if m.case_id == case_id),
        known=tuple(issue for issue in known if any(map(issue.matches, rows))),
    )


def render(view: CaseView) -> Iterator[RenderableType]:
    """Render the case for a terminal, part by part."""
    first = view.verdicts[0]
    yield Text.assemble((f"case {view.case_id}", "bold"), f"  {first.family}  {first.dtype}")
    yield shown(call_text(view.invocation), style="cyan")
    yield Text()
    model = model_word(view.run, (first.overload,))
    if model is None and Route.parse(first.converter).converter not in EXPORTED:
        yield Text("In PyTorch", style="bold")
        yield from _copied(_torch_call(view.invocation))
        yield Text()
    yield verdict_table(view.verdicts)
    for verdict in view.verdicts:
        yield from _details(verdict)
        yield from _lines(view.lines.get(_export_of(verdict)), view.unlocated.get(_export_of(verdict)))
    for issue in view.known:
        yield Text(f"known: {plain(issue.note)}", style="bold")
        yield Text(f"  {plain(issue.link)}", no_wrap=True)
    for minimal in view.minimal:
        yield Text()
        yield Text(
            f"Minimal case {minimal.minimal_id}, {route_label(minimal.converter, minimal.backend)}", style="bold"
        )
        yield shown(call_text(minimal.invocation), style="cyan")
        yield from (Padding(shown(sentence), (0, 0, 0, 2)) for sentence in minimal.matters)
        yield Padding(shown(minimal.message, limit=400), (0, 0, 0, 2))
        yield from _copied(_torch_call(minimal.invocation))
    yield Text()
    yield Text("Versions", style="bold")
    yield Padding(Text(", ".join(f"{name} {version}" for name, version in view.versions.items())), (0, 0, 0, 2))
    yield Text()
    if model is not None:
        yield Text("Rerun, or find where the error begins", style="bold")
        options = ["--converter", first.converter, "--backend", first.backend]
        for words in (["pytest", "harness", "--model", model], ["conformance", "check", model]):
            yield Text(f"  {shlex.join([*words, *options])}", no_wrap=True)
        return
    yield Text("Rerun, or export as a script", style="bold")
    for verb in ("replay", "repro"):
        words = ["conformance", verb, view.case_id, "--run", shown_path(view.run)]
        yield Text(f"  {shlex.join(words)}", no_wrap=True)


def verdict_table(verdicts: Sequence[Verdict]) -> RenderableType:
    """Render each route of a case: its outcome and its errors. A column without a value is left out."""
    titles = ("route", "shapes", "outcome", "blame", "wrong", "max abs", "max rel", "max ULP")
    rows = [_verdict_row(verdict) for verdict in verdicts]
    filled = [place for place in range(len(titles)) if place == 0 or any(row[place] for row in rows)]
    # Nothing is cut off: in a narrow terminal a cell has several lines.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place in filled:
        table.add_column(titles[place], justify="right" if titles[place] in titles[4:] else "left", overflow="fold")
    for verdict, row in zip(verdicts, rows, strict=True):
        style = _FAILED if verdict.outcome.is_failure else _PASSED if verdict.outcome is Outcome.PASS else "yellow"
        table.add_row(*(row[place] for place in filled), style=style)
    return table


def _verdict_row(verdict: Verdict) -> tuple[str, ...]:
    is_named = verdict.opset is None or Route.parse(verdict.converter).names_opset
    opset = "" if is_named else f"@{verdict.opset}"
    has_result = verdict.outcome in (Outcome.PASS, Outcome.MISMATCH)
    ended = str(verdict.outcome) if has_result else f"{verdict.outcome} at {verdict.stage}"
    wrong = f"{verdict.mismatched_elements}/{verdict.total_elements}" if verdict.total_elements else ""
    errors = (verdict.max_abs_error, verdict.max_rel_error, verdict.max_ulp_error)
    route = f"{plain(verdict.converter)}{opset} → {plain(verdict.backend)}"
    return route, verdict.shape_mode, ended, _owner(vars(verdict)), wrong, *map(number, errors)


def number(value: float | None) -> str:
    """Format a measured error: three digits; "" if there is none."""
    return "" if value is None else f"{value:.3g}"


def _details(verdict: Verdict) -> Iterator[RenderableType]:
    if not (verdict.message or verdict.blame or verdict.placement or verdict.excused):
        return
    yield Text()
    yield Text(
        f"{plain(route_label(verdict.converter, verdict.backend))}: {verdict.outcome} at {verdict.stage}", "bold"
    )
    lines = [plain(text) for text in verdict.message.splitlines()]
    yield Padding(Group(*map(Text, [text for text in lines if text][:12])), (0, 0, 0, 2))
    if verdict.placement:
        yield Padding(Text(plain(placement_text(verdict.placement))), (0, 0, 0, 2))
    for rule, elements in parse_excuses(verdict.excused):
        yield Padding(shown(f"{count(elements, 'element')} accepted: {rule}"), (0, 0, 0, 2))
    if verdict.blame:
        yield Padding(shown(f"blame: {_owner(vars(verdict))}", style="bold"), (0, 0, 0, 2))
        yield from _place(vars(verdict), 4)
    why = evidence_of_row(vars(verdict))
    if why:
        yield Padding(Group(*map(shown, why.splitlines())), (0, 0, 0, 4))
    for problem in parse_problems(verdict.problems)[1:]:
        row = {**vars(verdict), **problem}
        yield Padding(Text(f"also: {problem['outcome']} at {problem['stage']}"), (1, 0, 0, 2))
        yield Padding(shown(problem["message"], limit=400), (0, 0, 0, 4))
        yield Padding(shown(f"blame: {_owner(row)}", style="bold"), (0, 0, 0, 4))
        yield from _place(row, 6)
        yield Padding(shown(evidence_of_row(problem)), (0, 0, 0, 6))
    if verdict.exported_invocation:
        yield Padding(shown(f"exported with: {call_text(verdict.exported_invocation)}"), (0, 0, 0, 2))


def _owner(row: Mapping[str, Any]) -> str:
    """Return the one whose code is wrong; "" for a case that nobody is blamed for."""
    return root_cause(row).owner if row["blame"] else ""


def _place(row: Mapping[str, Any], indent: int) -> Iterator[RenderableType]:
    """Yield the place and the fault, if they are known."""
    if row["fault"]:
        cause = root_cause(row)
        yield Padding(shown(f"{place_text(cause)} {fault_text(cause)}"), (0, 0, 0, indent))


_WHY_NO_LINES = {
    "rule": "the conversion function is in your own file",
    "not-converter": "the converter is not to blame",
    "dynamic": "only exports with static shapes are searched",
    "model": "only single calls are searched; `conformance check` names the model's guilty call",
}


def _lines(found: Sequence[Suspect] | None, why_not: str | None) -> Iterator[RenderableType]:
    if why_not is not None:
        yield Padding(Text(f"no lines of the converter: {_WHY_NO_LINES[why_not]}", style="bold"), (0, 0, 0, 2))
    if found is None:
        return
    yield Padding(Text("lines of the converter", style="bold"), (0, 0, 0, 2))
    if not found:
        yield Padding(Text("The failure does not show here again, so no line can be named."), (0, 0, 0, 4))
    for suspect in found:
        yield Padding(Text(suspect.place), (0, 0, 0, 4))
        yield Padding(shown(suspect.text, style="cyan"), (0, 0, 0, 6))
        yield Padding(shown(suspect.reason), (0, 0, 0, 6))


def _copied(code: str) -> Iterator[Text]:
    for text in code.splitlines():
        yield Text(f"  {text}", no_wrap=True)


def _torch_call(invocation: str) -> str:
    try:
        if Invocation.from_json(invocation).overload.startswith(MODEL):
            return ""
        return torch_call(Invocation.from_json(invocation))
    except InvalidInvocation:
        return ""
