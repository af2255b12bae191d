"""The smallest thing that shows a model's failure: one of its calls, or a part of its exported graph.

1. Check the model. Of a way that fails, a call that fails alone is shrunk as the failures of a run are.
2. If none does, and the runtime refuses the graph or computes it wrongly, the smallest part of the graph is taken.
3. If there is none either, the model's calls are taken as a program, which is shrunk as drawn programs are.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.converter import find_converter
from harness.core.invocation import Invocation
from harness.core.onnx_arrays import build_array
from harness.core.text import count
from harness.generate.sources.recorded import FromRecord
from harness.models.check import ModelCheck, Progress, RouteCheck, check_model
from harness.models.facts import CallsTask, ModelFacts, model_calls
from harness.pipeline.graph_structure import GraphStructure
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelSource
from harness.pipeline.onnx_files import load_file
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit
from harness.record import store
from harness.record.run_info import RunInfo, installed_versions
from harness.record.writer import RunWriter
from harness.reproduce.failure import ReproducibleFailure, backend_name, find_failure
from harness.reproduce.graph_part import GraphPart, PartTask, find_part
from harness.reproduce.issue import BugReport, fenced
from harness.reproduce.model_script import write_part_script
from harness.reproduce.script_text import NoScript
from harness.reproduce.shrink_session import failures, shrink_run
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS

#: Of the optimiser that PyTorch's exporter calls.
OPTIMISER_TRACKER = "microsoft/onnxscript"
#: Seconds that a call is shrunk for.
_SHRINKING = 30.0


class InvalidFile(Exception):
    """A file that ONNX's own rules reject at a node, so that no runtime is to blame.

    Args:
        facts: The facts of the node, and why it is rejected.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(str(facts))
        self.facts = facts


def _whole_file(source: ModelSource, failure: Verdict) -> GraphPart:
    """Return a file of which nothing smaller fails, with the inputs that it fails with."""
    file = load_file(source)
    arrays = [build_array(spec) for spec in Invocation.from_json(failure.invocation).tensors()]
    feeds = dict(zip(GraphStructure(file.model).input_names, arrays, strict=True))
    return GraphPart(
        model=file.model.SerializeToString(),
        inputs=feeds,
        stage=str(failure.stage),
        message=failure.message,
        ends_process=failure.outcome in (Outcome.CRASH, Outcome.TIMEOUT),
    )


def smallest_of_model(
    units: Sequence[Unit], facts: ModelFacts, directory: Path, supervisor: Supervisor, progress: Progress
) -> ReproducibleFailure | GraphPart:
    """Return the smallest call or graph that shows the first failure of a model.

    Args:
        units: The arguments of `check_model`, as is `facts`.
        facts: The known facts of the model.
        directory: Directory to record a call that fails alone.
        supervisor: The supervisor for `check_model`.
        progress: Called before each step.

    Raises:
        ModelProblem: the model survives, or no smaller part of it fails; the message tells which.
        InvalidFile: an ONNX file is wrong itself.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    found = check_model(units, facts, supervisor, progress)
    way = next((way for way in found.ways if way.failure is not None), None)
    if way is None:
        where = f" in {units[0].backends[0]}" if units[0].whole_model.is_graph else ""
        raise ModelProblem(f"{found.word if where else found.name} survives{where}: there is nothing to reproduce")
    unit = next(u for u in units if _is_of(u, way))
    call = _call_to_show(way)
    if call is not None:
        progress(f"shrink {call.overload}")
        return _shrunk(call, unit, directory)
    failure, source = way.failure, unit.whole_model
    assert failure is not None
    if way.invalid_node is not None and source.is_graph:
        raise InvalidFile(way.invalid_node)
    part = None
    if find_converter(way.route.converter).makes == ONNX and failure.stage in (Stage.LOAD, Stage.RUN, Stage.COMPARE):
        progress("shrink the graph")
        part = find_part(
            PartTask(
                source=source,
                route=way.route,
                exported=Invocation.from_json(failure.exported_invocation or way.outcomes[0].invocation),
                invocation=Invocation.from_json(failure.invocation),
                optimiser=way.optimiser.owner,
                passes=way.optimiser.passes,
            ),
            supervisor,
        )
    if part is None and source.is_graph:
        part = _whole_file(source, failure)
    if part is None:
        progress("shrink the program of its calls")
        program = _failing_program(unit, failure, supervisor)
        if program is not None:
            return _shrunk(program, unit, directory)
        raise ModelProblem(_nothing_smaller(found, way))
    return replace(part, name=found.name, backend=way.route.backend)


def _failing_program(unit: Unit, failure: Verdict, supervisor: Supervisor) -> Verdict | None:
    """Return the verdict on a model's calls as a program that fails as the model does; None if there is none."""
    calls = model_calls(CallsTask(source=unit.whole_model, as_program=True), supervisor)
    if calls.program is None:
        return None
    alone = Unit(
        overload=calls.program.overload,
        route=replace(unit.route, dynamic=False),
        backends=(failure.backend,),
        sources=(FromRecord.of_calls([calls.program]),),
        settings=unit.settings,
    )
    ends = failure.stage, failure.outcome
    verdicts = (verdict for verdicts in run_unit(alone, supervisor) for verdict in verdicts)
    return next((verdict for verdict in verdicts if (verdict.stage, verdict.outcome) == ends), None)


def _is_of(unit: Unit, way: RouteCheck) -> bool:
    same = replace(unit.route, backend=way.route.backend) == way.route and unit.variant.dtype == way.dtype
    return same and way.route.backend in unit.backends


def _call_to_show(way: RouteCheck) -> Verdict | None:
    """Return the call that explains most of the failure."""
    return next(iter(way.guilty_calls), None)


def _nothing_smaller(found: ModelCheck, way: RouteCheck) -> str:
    assert way.failure is not None
    verdict = way.failure
    passes = f" without {' and '.join(way.optimiser.passes)}" if way.optimiser.passes else ""
    right = f"; without the optimiser of the {way.optimiser.owner} it is right{passes}" if way.optimiser.owner else ""
    return (
        f"{found.name} fails as a whole ({verdict.outcome} at {verdict.stage}: {verdict.signature}), and none of its "
        f"{count(way.calls_made, 'call')} does alone{right}"
    )


def _shrunk(call: Verdict, unit: Unit, directory: Path) -> ReproducibleFailure:
    """Shrink a call, recorded as a run of one case, which all code that shrinks and writes scripts reads."""
    options: dict[str, Any] = {"opset": unit.route.opset, "rules": list(unit.route.rules)}
    distributions = BACKENDS.find(call.backend)[0].distributions or ()
    with RunWriter(directory, RunInfo.begin(seed=0, options=options, runtimes=distributions)) as writer:
        writer.write([call])
    store.finish(directory)
    for _ in shrink_run(
        directory, seconds=_SHRINKING, per_failure=_SHRINKING, chosen=failures(directory), rules=unit.route.rules
    ):
        pass
    return find_failure(directory, call.case_id)


def write_part(part: GraphPart, stem: Path) -> tuple[str, tuple[Path, ...]]:
    """Write the script of a part, and files for the arrays that it cannot hold.

    Raises:
        NoScript: the backend has no code without PyTorch, or NumPy lacks a dtype.
    """
    try:
        return write_part_script(part, heading=part_title(part)), ()
    except NoScript:
        if any(array.dtype.kind not in "fiub" for array in part.inputs.values()):
            raise
    script = write_part_script(part, heading=part_title(part), saved=stem.name)
    model, inputs = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".onnx", ".npz"))
    model.write_bytes(part.model)
    np.savez(inputs, **part.inputs)  # type: ignore[arg-type]
    return script, (model, inputs)


@dataclass(frozen=True)
class PartReport(BugReport):
    """A report on a part of a graph.

    Attributes:
        part: The part.
        script: The script that shows it.
        output: The script's output on this machine; "" if it was not run.
    """

    part: GraphPart
    script: str
    output: str

    @property
    def title(self) -> str:
        """See `part_title`."""
        return part_title(self.part)

    @property
    def tracker(self) -> str:
        """The backend's, or that of the exporter's optimiser."""
        return OPTIMISER_TRACKER if self.part.exporter else BACKENDS.find(self.part.backend)[0].tracker

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self.part.backend

    @cached_property
    def installed(self) -> Mapping[str, str]:
        """Return the versions of the packages that the backend needs."""
        return installed_versions(BACKENDS.find(self.part.backend)[0].distributions or ())

    @property
    def backend_version(self) -> str:
        """Return the installed version of the backend."""
        entry, argument = BACKENDS.find(self.part.backend)
        return entry.version(argument)

    @property
    def system(self) -> str:
        """This machine's."""
        return f"{platform.system()} {platform.release()} {platform.machine()}"

    @property
    def summary(self) -> str:
        """Describe the failure, and the origin of the graph."""
        part, runtime = self.part, backend_name(self.part.backend)
        if part.exporter:
            runtime = f"What onnxscript.optimizer makes of a graph, run by {runtime},"
        nodes = count(len(part.proto.graph.node), "node")
        result = "gives a wrong result for" if part.stage == Stage.COMPARE else f"cannot {part.stage}"
        return f"{runtime} {result} a graph of {nodes}, reduced from {self.part.name}."

    @property
    def expected(self) -> str:
        """Describe the reference for the result."""
        part = self.part
        if part.stage != Stage.COMPARE:
            return "The model is valid ONNX, so it should load and run."
        by = "the operator's text says"
        if part.exporter:
            by = "the same graph gives as it is"
        elif part.optimiser:
            by = "the same runtime gives without graph optimisations"
        return f"What {by}, which the script contains."

    @property
    def actual(self) -> str:
        """Return the script's output, or the runtime's message."""
        return fenced((self.output or self.part.message).strip())

    @property
    def diagnosis(self) -> str:
        """Name the optimisations without which the result is right."""
        part = self.part
        if not part.optimiser:
            return "Each node is run by itself here: no optimisation of several nodes takes part."
        off = "without onnxscript.optimizer" if part.exporter else "with graph optimisations off"
        named = f"without {' and '.join(part.passes)}" if part.passes else off
        return f"The result is right {named}."

    @property
    def model(self) -> str:
        """Return "": the script contains the model."""
        return ""

    @property
    def is_about_conversion(self) -> str:
        """Return the answer for the form of ONNX's tracker."""
        return "No"


#: Operators that are named in a title.
_NAMED = 4


def part_title(part: GraphPart) -> str:
    """Return ``Relu and Clip give wrong values for float64 with graph optimisations (FuseReluClip)``."""
    names = part.operators
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    what = listed if len(names) <= _NAMED else f"A graph of {count(len(part.proto.graph.node), 'node')}"
    verb = "give" if 1 < len(names) <= _NAMED else "gives"
    if part.stage == Stage.COMPARE:
        ends = f"{verb} {'a wrong shape or dtype' if part.element is None else 'wrong values'}"
    else:
        ends = f"cannot be {'loaded' if part.stage == Stage.LOAD else 'run'}"
    dtypes = dict.fromkeys(str(array.dtype) for array in part.inputs.values())
    of = f" for {next(iter(dtypes))}" if dtypes else ""
    return f"{what} {ends}{of}{_describe_optimisations(part)}"


def _describe_optimisations(part: GraphPart) -> str:
    if not part.optimiser:
        return ""
    named = f" ({', '.join(part.passes)})" if part.passes else ""
    return f" {'after onnxscript.optimizer' if part.exporter else 'with graph optimisations'}{named}"
