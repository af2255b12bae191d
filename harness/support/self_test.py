"""A test of an installation in half a minute: every route that can run, and a fault that must be found."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.compare.verdict import CONVERTER, Outcome, Verdict
from harness.convert.converter import CONVERTERS
from harness.core.plugins import UnknownName
from harness.core.route import Route
from harness.pipeline.supervisor import Supervisor, WorkerFailed
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.unit import Unit, run_unit
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS
from harness.support.health import Problem, RouteTest

#: Operators that every converter and runtime takes.
_OPERATORS = ("aten.add.Tensor", "aten.relu.default")
#: A conversion function that drops `alpha`, and the operator whose cases must show it.
_FAULTY_RULE = """\
from harness.convert.rules import dynamo
from onnxscript import opset18 as op


@dynamo("aten::celu")
def celu(self, alpha: float = 1.0):
    return op.Celu(self)
"""
_FAULTY = "aten.celu.default"


def run_self_test(seconds: float) -> tuple[list[RouteTest], list[Problem]]:
    """Run a few cases on every route that can run, the default ones first, and a faulty rule.

    Args:
        seconds: After this time no further route is begun.
    """
    began, tests, problems = time.monotonic(), list[RouteTest](), list[Problem]()
    with Supervisor(timeout=60.0) as supervisor:
        for route in _routes():
            if tests and time.monotonic() - began > seconds:
                tests.append(RouteTest(str(route), 0, 0, 0.0))
                continue
            test = _test_route(route, supervisor)
            tests.append(test)
            if test.passed < test.cases and not test.is_built_only:
                problems.append(Problem("route-fails", test.route, (test.message,)))
        if any(test.route == "dynamo → ort-cpu" for test in tests) and not _finds_fault(supervisor):
            problems.append(Problem("fault-not-found", _FAULTY))
    return tests, problems


def _routes() -> Iterator[Route]:
    """Yield a route for each converter and each backend that can run here, the default ones first.

    Further converters are tried with the first backend that takes what they make.
    """
    converters = [entry for entry in CONVERTERS.entries() if entry.probe() is None and entry.converts]
    backends = [e for e in BACKENDS.entries() if not e.name.endswith(":") and e.probe("") is None]
    converters.sort(key=lambda entry: (not entry.default, entry.name))
    backends.sort(key=lambda entry: (not entry.default, ONNX not in entry.takes, entry.name))
    seen: set[str] = set()
    for backend in backends:
        fitting = [entry for entry in converters if entry.makes in backend.takes]
        for converter in fitting:
            if converter is fitting[0] or converter.name not in seen:
                seen.add(converter.name)
                yield Route(converter=converter.name, backend=backend.name)


def _test_route(route: Route, supervisor: Supervisor) -> RouteTest:
    began = time.monotonic()
    try:
        verdicts = _verdicts(_units(_OPERATORS, route), supervisor)
    except (UsageProblem, UnknownName, WorkerFailed) as error:
        return RouteTest(str(route), 0, 1, time.monotonic() - began, str(error))
    passed = sum(verdict.outcome in (Outcome.PASS, Outcome.INACCURATE, Outcome.NARROWED) for verdict in verdicts)
    failing = next((v for v in verdicts if v.outcome.is_failure), None)
    message = "" if failing is None else f"{failing.overload}: {failing.outcome} at {failing.stage}: {failing.message}"
    built = bool(verdicts) and all(verdict.outcome is Outcome.BUILT for verdict in verdicts)
    if not verdicts:
        return RouteTest(str(route), 0, 1, time.monotonic() - began, "no case was drawn")
    return RouteTest(str(route), passed, len(verdicts), time.monotonic() - began, message, built)


def _units(operators: Sequence[str], route: Route, rules: tuple[str, ...] = ()) -> tuple[Unit, ...]:
    options = Options(
        ops=tuple(operators),
        converters=(route.converter,),
        backends=(route.backend,),
        dtypes=("float32",),
        examples=4,
        values=2,
        shapes="static",
        sources=("generated",),
        rules=rules,
    )
    return make_plan(options).units


def _verdicts(units: Sequence[Unit], supervisor: Supervisor) -> list[Verdict]:
    return [verdict for unit in units for verdicts in run_unit(unit, supervisor) for verdict in verdicts]


def _finds_fault(supervisor: Supervisor) -> bool:
    """Whether a wrong conversion function is found and blamed."""
    with tempfile.TemporaryDirectory(prefix="conformance-doctor-") as folder:
        rules = Path(folder) / "faulty.py"
        rules.write_text(_FAULTY_RULE, encoding="utf-8")
        units = _units([_FAULTY], Route(converter="dynamo", backend="ort-cpu"), (str(rules),))
        verdicts = _verdicts(units, supervisor)
    return any(v.outcome is Outcome.MISMATCH and v.blame == CONVERTER and v.rule for v in verdicts)
