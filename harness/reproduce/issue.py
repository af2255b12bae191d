"""A failure as a bug report, in the form that its tracker asks for.

A failure as a report that the maintainers of the guilty project can run as it stands.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import onnx

from harness.causes.known_issues import KnownIssue
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import CONVERTERS, find_converter
from harness.locate.suspect import Suspect
from harness.reproduce.failure import ReproducibleFailure, backend_name, converter_name, fault, title_for
from harness.reproduce.model_script import write_model_script
from harness.reproduce.script import write_graph_script, write_script
from harness.reproduce.script_text import NoScript, ScriptResult, run_text
from harness.run.backend import BACKENDS

#: Longer graphs and outputs are cut: trackers limit a report to 65,536 characters.
_LONGEST = 12_000

#: Packages in ``run.json`` that a stand-alone script needs; the others take no part in it.
_TELLING = frozenset({"torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir"})
#: The same of a script without PyTorch.
_RUNNING = frozenset({"numpy", "onnx"})
#: Processors as forms call them.
_PROCESSORS = {"x86_64": "X64", "AMD64": "X64", "aarch64": "ARM64", "arm64": "ARM64"}


class BugReport(ABC):
    """The contents of a bug report in any form; `FIELDS` names the fields that a tracker's form may ask for.

    Attributes:
        script: Code that shows the defect by itself.
    """

    FIELDS: ClassVar = (
        *("summary", "code", "expected", "actual", "diagnosis", "model", "is_about_conversion"),
        *("versions", "packages", "backend_version", "system", "platform", "architecture"),
    )

    script: str

    @property
    @abstractmethod
    def title(self) -> str:
        """Return a title in the manner of the tracker's maintainers."""

    @property
    @abstractmethod
    def tracker(self) -> str:
        """The GitHub repository that it is for; "" if none is known."""

    @property
    @abstractmethod
    def backend(self) -> str:
        """The runtime, by the name of its backend."""

    @property
    @abstractmethod
    def backend_version(self) -> str:
        """Return the version of the runtime."""

    @property
    @abstractmethod
    def installed(self) -> Mapping[str, str]:
        """Return package → version, ``python`` too, of the packages that took part."""

    @property
    @abstractmethod
    def system(self) -> str:
        """Operating system, release and processor; "" if they are unknown."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """Describe the failure in a few sentences."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """Describe the right result."""

    @property
    @abstractmethod
    def actual(self) -> str:
        """Describe the actual result."""

    @property
    @abstractmethod
    def diagnosis(self) -> str:
        """Describe the place of the defect, with the evidence."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The graph under a heading; nothing if the script has it."""

    @property
    @abstractmethod
    def is_about_conversion(self) -> str:
        """Return the answer for the form of ONNX's tracker."""

    @property
    def known(self) -> tuple[KnownIssue, ...]:
        """Entries of the list of known defects that match."""
        return ()

    @property
    def is_model_only(self) -> bool:
        """Whether the script shows the defect in a model, without PyTorch."""
        return "import torch" not in self.script

    @property
    def versions(self) -> str:
        """Return the versions in the format of PyTorch's ``collect_env``, as far as the record knows them."""
        torch = self.installed.get("torch", "")
        build = torch.partition("+")[2]
        numbers = re.fullmatch(r"cu(\d+)(\d)", build)
        cuda = f"{numbers[1]}.{numbers[2]}" if numbers else "None" if build == "cpu" else ""
        lines = [f"PyTorch version: {torch}"] if torch else []
        lines += [f"CUDA used to build PyTorch: {cuda}"] if cuda else []
        lines += [f"OS: {self.system}"] if self.system else []
        lines += [f"Python version: {self.installed['python']}"] if "python" in self.installed else []
        return fenced("\n".join([*lines, "", "Versions of relevant libraries:", *self._packages]))

    @property
    def packages(self) -> str:
        """One line per package, as pip names them."""
        python = [f"Python {self.installed['python']}"] if "python" in self.installed else []
        return fenced("\n".join([*python, *self._packages]))

    @property
    def _packages(self) -> list[str]:
        """``[pip3] onnx==1.23.2`` of all that takes part in the script."""
        wanted = (_RUNNING if self.is_model_only else _TELLING) | set(
            BACKENDS.find(self.backend)[0].distributions or ()
        )
        versions = {name: version for name, version in self.installed.items() if name in wanted}
        return [f"[pip3] {name}=={versions[name]}" for name in sorted(versions)]

    @property
    def code(self) -> str:
        """The script, fenced."""
        return fenced(self.script.strip(), "python")

    @property
    def platform(self) -> str:
        """The operating system."""
        return self.system.partition(" ")[0]

    @property
    def architecture(self) -> str:
        """The processor's, as ONNX Runtime's form has it."""
        machine = self.system.rpartition(" ")[2]
        return _PROCESSORS.get(machine, machine)


@dataclass(frozen=True)
class CallReport(BugReport):
    """A report on one call.

    Attributes:
        checked: The result of the stand-alone script on this machine; None if it was not run.
        graph: The exported model in ONNX's text format; "" if there is none.
        lines: Lines of the converter's source that may cause the failure, the likeliest first.
    """

    failure: ReproducibleFailure
    script: str
    checked: ScriptResult | None
    graph: str
    lines: tuple[Suspect, ...] = ()

    @property
    def tracker(self) -> str:
        """See `tracker_of`."""
        return tracker_of(self.failure)

    @property
    def known(self) -> tuple[KnownIssue, ...]:
        """Entries of the list of known defects that match."""
        return self.failure.known

    @property
    def backend(self) -> str:
        """The runtime, by the name of its backend."""
        return self.failure.verdict.backend

    @property
    def installed(self) -> Mapping[str, str]:
        """Package → version of the run."""
        return self.failure.versions

    @property
    def title(self) -> str:
        """Return a title in the manner of the tracker's maintainers."""
        return title_for(self.failure, tracker_of(self.failure), self.model_proto)

    @property
    def summary(self) -> str:
        """Describe the failure in a few sentences."""
        failure = self.failure
        call, runtime = f"`{failure.invocation}`", backend_name(failure.verdict.backend)
        export = f"`{converter_name(failure.verdict.converter)}`"
        if failure.verdict.outcome is Outcome.MISMATCH:
            result = f"{fault(failure)}: {_shown_difference(failure)}."
            if self.is_model_only:
                version = failure.versions.get("torch", "")
                by = f"{export} of PyTorch {version}".rstrip()
                begin = runtime[0].upper() + runtime[1:]
                return f"{begin} {result} The model was exported from {call} with {by}."
            return f"{call}, exported with {export} and run by {runtime}, {result}"
        done = {
            Stage.CONVERT: f"{call} cannot be exported with {export}",
            Stage.TRANSFORM: f"A model of {call}, exported with {export}, cannot be transformed",
            Stage.CHECK: f"{call}, exported with {export}, is not a valid ONNX model",
            Stage.LOAD: f"{runtime} cannot load a model of {call}, exported with {export}",
            Stage.RUN: f"{runtime} cannot run a model of {call}, exported with {export}",
        }.get(failure.verdict.stage, call)
        how = {Outcome.CRASH: ": the process dies", Outcome.TIMEOUT: ": it hangs"}.get(failure.verdict.outcome, "")
        return f"{done}{how}."

    @property
    def expected(self) -> str:
        """Describe the right result."""
        if self.failure.verdict.outcome is Outcome.MISMATCH:
            verb = "contains" if self.is_model_only else "computes"
            return f"The result of PyTorch eager, which the script {verb}."
        return {
            Stage.CONVERT: "An exported model.",
            Stage.TRANSFORM: "A transformed model.",
            Stage.CHECK: "A model that `onnx.checker.check_model(model, full_check=True)` accepts.",
        }.get(self.failure.verdict.stage, "The model is valid ONNX, so it should load and run.")

    @property
    def actual(self) -> str:
        """Return the script's output, or the recorded message."""
        output = self.checked.output if self.checked is not None else self.failure.verdict.message
        return fenced(output.strip())

    @property
    def diagnosis(self) -> str:
        """Describe the place of the defect, with the evidence."""
        failure = self.failure
        evidence = ["", self._named(failure.evidence)] if failure.evidence else []
        matters = [f"- {matter}" for matter in failure.matters]
        parts = [f"Diagnosis: {self._where}.", *evidence, *([""] if matters else []), *matters]
        return "\n".join([*parts, *self._places])

    @property
    def _where(self) -> str:
        """Say where the defect is: the owner that all views name, and the place."""
        failure = self.failure
        cause = failure.cause
        if failure.verdict.blame == "spec":
            return "the ONNX specification leaves the result open"
        if cause is None or failure.verdict.blame in ("", "unknown"):
            return "it is not known where the defect is"
        runtimes = {e.name for e in BACKENDS.entries()}
        owner = backend_name(cause.owner) if cause.owner in runtimes else cause.owner
        place = f", {cause.place}" if cause.place and cause.place not in owner else ""
        return f"the defect is in {owner}{place}"

    @property
    def _places(self) -> list[str]:
        """The suspected lines, with a heading if there are any."""
        lines = [f"- `{line.text}` in `{line.function}`, {line.file}:{line.line}. {line.reason}" for line in self.lines]
        return ["", "Likely source lines, most suspicious first:", "", *lines] if lines else []

    def _named(self, evidence: str) -> str:
        """Evidence with converters and runtimes as their users know them."""
        names = {entry.name: f"`{converter_name(entry.name)}`" for entry in CONVERTERS.entries()}
        names |= {e.name: backend_name(e.name) for e in BACKENDS.entries() if not e.name.endswith(":")}
        known = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
        words = re.sub(rf"(?<![\w.:-])({known})(?![\w-])", lambda match: names[match[1]], evidence)
        return re.sub(r"(^|\. )the ", r"\1The ", words)

    @property
    def model(self) -> str:
        """The graph under a heading; nothing if the script has it."""
        there = self.graph and not self.is_model_only
        return f"The exported model:\n\n{fenced(self.graph.strip())}\n" if there else ""

    @cached_property
    def model_proto(self) -> onnx.ModelProto | None:
        """Return the exported model; None if there is none, or if its text cannot be parsed."""
        return model_of(self.graph)

    @property
    def is_about_conversion(self) -> str:
        """Return the answer for the form of ONNX's tracker."""
        return "Yes" if self.failure.verdict.stage in (Stage.CONVERT, Stage.CHECK) else "No"

    @property
    def backend_version(self) -> str:
        """Return the version of the runtime."""
        return self.failure.verdict.backend_version

    @property
    def system(self) -> str:
        """Operating system, release and processor; "" if they are unknown."""
        return self.failure.system


def model_of(graph: str) -> onnx.ModelProto | None:
    """Parse a model from ONNX's text format; None for "", or if it cannot be parsed."""
    try:
        return onnx.parser.parse_model(graph) if graph else None
    except onnx.parser.ParseError:
        return None


def tracker_of(failure: ReproducibleFailure) -> str:
    """Return the GitHub repository that a failure is reported to; "" if none is known.

    If the blame is unknown it is the one of the stage at which the case ended.
    """
    converting = failure.verdict.stage in (Stage.CONVERT, Stage.CHECK)
    if failure.is_in_rule or failure.verdict.blame == "transform":
        return ""
    if failure.verdict.blame == "pytorch":
        return "pytorch/pytorch"
    if failure.verdict.blame == "spec":
        return "onnx/onnx"
    if failure.verdict.blame == "converter" or (converting and failure.verdict.blame != "backend"):
        return find_converter(failure.verdict.converter).tracker
    return BACKENDS.find(failure.verdict.backend)[0].tracker


def write_issue(report: BugReport) -> str:
    """Write the Markdown of a bug report: a first line with its title, then the tracker's form."""
    tracker = report.tracker
    where = f"<!-- for https://github.com/{tracker}/issues/new -->\n" if tracker else ""
    form = _form(report.backend, tracker)
    texts = {name: str(getattr(report, name)) for name in report.FIELDS}
    for name, text in texts.items():
        if not text:
            form = {heading: asked.replace(f"\n\n{{{name}}}", "") for heading, asked in form.items()}
    sections = {heading: asked.format_map(texts).strip() for heading, asked in form.items()}
    body = "\n".join(f"### {heading}\n\n{text}\n" for heading, text in sections.items() if text)
    known = "".join(f"Possibly a duplicate of {i.link}: {i.note}\n\n" for i in report.known)
    return f"{where}# {report.title}\n\n{known}{body}"


def fenced(text: str, language: str = "") -> str:
    """Text as a block of code, cut if it is very long."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}\n… {len(text) - _LONGEST} more characters"
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"{fence}{language}\n{text}\n{fence}"


#: For a tracker without a form.
_PLAIN = {
    "Description": "{summary}",
    "Reproduction": "{code}",
    "Expected": "{expected}",
    "Actual": "{actual}",
    "Diagnosis": "{diagnosis}",
    "Model": "{model}",
    "Versions": "{packages}",
}


def _form(backend: str, tracker: str) -> Mapping[str, str]:
    """Return the form of the backend if that tracker is its own, else of any plug-in with the tracker."""
    backends = (BACKENDS.find(backend)[0], *BACKENDS.entries())
    forms = [(e.tracker, e.issue_form) for e in backends]
    forms += [(e.tracker, e.issue_form) for e in CONVERTERS.entries()]
    return next((form for of, form in forms if of == tracker and form), _PLAIN)


def write_report(failure: ReproducibleFailure, *, check: bool = True, lines: tuple[Suspect, ...] = ()) -> CallReport:
    """Write the report for a failure.

    A script without PyTorch shows a runtime's defect, if such a script can.

    Args:
        check: Whether to run the script.
        lines: Lines of the converter's source that may cause the failure.

    Raises:
        NoScript: no script can show the failure.
    """
    graph = ""
    if failure.verdict.stage is not Stage.CONVERT:
        printed = run_text(write_graph_script(failure))
        graph = printed.output if printed.exit_status == 0 else ""
    tracker, model = tracker_of(failure), model_of(graph)
    heading = title_for(failure, tracker, model)
    if model is not None and tracker == BACKENDS.find(failure.verdict.backend)[0].tracker:
        try:
            script = write_model_script(failure, model, heading)
        except NoScript:
            pass
        else:
            checked = run_text(script) if check else None
            if checked is None or checked.reproduces:
                return CallReport(failure, script, checked, graph)
    script = write_script(failure, heading)
    return CallReport(failure, script, _checked(script, check), graph, lines)


def _checked(script: str, check: bool) -> ScriptResult | None:
    return run_text(script) if check else None


def _shown_difference(failure: ReproducibleFailure) -> str:
    """Describe the first wrong element; return the message for a record of an earlier version."""
    found = failure.diagnosis.difference if failure.diagnosis else None
    if found is None or not found.expected:
        return (failure.verdict.message.splitlines() or [failure.verdict.signature])[0]
    element = f"[{','.join(map(str, found.element))}]" if found.element else ""
    where = "" if found.output is None else f"output {found.output}{element}: "
    return f"{where}expected {found.expected}, got {found.got}"
