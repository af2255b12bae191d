"""A failure as a bug report, in the form that its tracker asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.analyse.repro.failure import ReproducibleFailure
from harness.analyse.repro.script import ScriptResult, title, wrong_result
from harness.compare import Outcome, Stage
from harness.convert import CONVERTERS, find_converter
from harness.run import BACKENDS

#: Longer graphs and outputs are cut: trackers limit a report to 65,536 characters.
_LONGEST = 12_000

#: Of what ``run.json`` lists; the rest takes no part in a stand-alone script.
_TELLING = frozenset({"python", "torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir"})


@dataclass(frozen=True)
class Report:
    """What a bug report says, whatever its form.

    Attributes:
        checked: How the stand-alone script ended here; None where it was not run.
        graph: The exported model in ONNX's text format; "" where there is none.
    """

    failure: ReproducibleFailure
    script: str
    checked: ScriptResult | None
    graph: str

    @property
    def summary(self) -> str:
        """What happens, in a few sentences."""
        failure = self.failure
        call = f"`{failure.invocation}`"
        if failure.outcome is Outcome.MISMATCH:
            said = failure.message.partition("\n")[0].removeprefix(f"{failure.signature}: ")
            way = f"exported with {failure.converter} and run by {failure.backend}"
            return f"{call}, {way}, gives {wrong_result(failure)}: {said}"
        done = {
            Stage.CONVERT: f"{call} cannot be exported with {failure.converter}",
            Stage.CHECK: f"{call}, exported with {failure.converter}, is not a valid ONNX model",
            Stage.LOAD: f"{failure.backend} cannot load {call}, exported with {failure.converter}",
            Stage.RUN: f"{failure.backend} cannot run {call}, exported with {failure.converter}",
        }.get(failure.stage, call)
        how = {Outcome.CRASH: ": the process dies", Outcome.TIMEOUT: ": it hangs"}.get(failure.outcome, "")
        return f"{done}{how}."

    @property
    def expected(self) -> str:
        """What should have happened."""
        if self.failure.outcome is Outcome.MISMATCH:
            return "The result of PyTorch eager, which the script computes."
        return {
            Stage.CONVERT: "An exported model.",
            Stage.CHECK: "A model that `onnx.checker.check_model(model, full_check=True)` accepts.",
        }.get(self.failure.stage, "The model is valid ONNX, so it should load and run.")

    @property
    def actual(self) -> str:
        """What the script prints, or what was recorded."""
        said = self.checked.output if self.checked is not None else self.failure.message
        return _fenced(said.strip())

    @property
    def blame(self) -> str:
        """Whose defect it is, and why."""
        failure = self.failure
        evidence = ["", failure.evidence] if failure.evidence else []
        matters = [f"- {matter}" for matter in failure.matters]
        return "\n".join([f"Blame: {failure.blame or 'unknown'}.", *evidence, *matters])

    @property
    def versions(self) -> str:
        """One line per package."""
        told = _TELLING | {f"converter {self.failure.converter}", f"backend {self.failure.backend}"}
        rows = [f"{name} {version}" for name, version in self.failure.versions.items() if name in told]
        return _fenced("\n".join([*rows, f"system {self.failure.system}"] if self.failure.system else rows))

    @property
    def code(self) -> str:
        """The script, fenced."""
        return _fenced(self.script.strip(), "python")

    @property
    def model(self) -> str:
        """The graph under a heading, or nothing."""
        return f"The exported model:\n\n{_fenced(self.graph.strip())}\n" if self.graph else ""

    @property
    def is_about_conversion(self) -> str:
        """As the form of ONNX's tracker has it."""
        return "Yes" if self.failure.stage in (Stage.CONVERT, Stage.CHECK) else "No"

    @property
    def backend_version(self) -> str:
        """Of the runtime."""
        return self.failure.backend_version

    @property
    def system(self) -> str:
        """Operating system, release and processor; "" where nobody knows them."""
        return self.failure.system

    @property
    def platform(self) -> str:
        """The operating system."""
        return self.system.partition(" ")[0]

    @property
    def architecture(self) -> str:
        """The processor's."""
        return self.system.rpartition(" ")[2]


def tracker_of(failure: ReproducibleFailure) -> str:
    """The GitHub repository that a failure is reported to; "" where nobody knows one.

    Where the blame is unknown it is the one of the stage at which the case ended.
    """
    converting = failure.stage in (Stage.CONVERT, Stage.CHECK)
    if failure.blame == "pytorch":
        return "pytorch/pytorch"
    if failure.blame == "spec":
        return "onnx/onnx"
    if failure.blame == "converter" or (converting and failure.blame != "backend"):
        return find_converter(failure.converter).tracker
    return BACKENDS.find(failure.backend)[0].tracker


def write_issue(report: Report) -> str:
    """The Markdown of a bug report: a first line with its title, then the tracker's form."""
    tracker = tracker_of(report.failure)
    where = f"<!-- for https://github.com/{tracker}/issues/new -->\n" if tracker else ""
    form = _form(report.failure, tracker)
    said = {name: getattr(report, name) for name, kind in vars(Report).items() if isinstance(kind, property)}
    sections = {heading: text.format_map(said).rstrip() for heading, text in form.items()}
    body = "\n".join(f"### {heading}\n\n{text}\n" for heading, text in sections.items() if text)
    known = "".join(f"Possibly a duplicate of {i.link}: {i.note}\n\n" for i in report.failure.known)
    return f"{where}# {title(report.failure)}\n\n{known}{body}"


def _fenced(text: str, language: str = "") -> str:
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
    "Blame": "{blame}",
    "Model": "{model}",
    "Versions": "{versions}",
}


def _form(failure: ReproducibleFailure, tracker: str) -> Mapping[str, str]:
    """The form of the backend where that tracker is its own, else of any plug-in with the tracker."""
    backends = (BACKENDS.find(failure.backend)[0], *BACKENDS.entries())
    forms = [(e.tracker, e.issue_form) for e in backends]
    forms += [(e.tracker, e.issue_form) for e in CONVERTERS.entries()]
    return next((form for of, form in forms if of == tracker and form), _PLAIN)
