"""`pytest harness`: the options, the items, and what is said before, during and after a run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter
from rich.console import Console

import harness
from harness import backends, converters
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.unit import Unit
from harness.plan import Options, Plan, UsageProblem, make_plan
from harness.record import layout, store
from harness.record.errors import ResultsError
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter
from harness.replay import read_replay
from harness.report.progress import Progress
from harness.report.summary import print_summary

#: Seconds between progress lines where the terminal cannot rewrite one.
_QUIET_INTERVAL = 15.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of design's command line."""
    group = parser.getgroup("conformance", "PyTorch → ONNX → runtime conformance")
    add = group.addoption
    add("--op", action="append", default=[], metavar="NAME", help="operator: aten::celu, 'aten.upsample_*'")
    add("--converter", action="append", default=[], metavar="NAME", help="dynamo (default), torchscript, …")
    add("--backend", action="append", default=[], metavar="NAME", help="ort-cpu (default), trt, …, or all")
    add("--dtype", action="append", default=[], metavar="NAME", help="only these dtypes, e.g. float16")
    add(
        "--examples", type=int, default=Options.examples, metavar="N", help="cases per operator (%(default)s)"
    )
    add(
        "--values", type=int, default=Options.values, metavar="N", help="value draws per export (%(default)s)"
    )
    add("--seed", type=int, default=Options.seed, metavar="N", help="of the draws (%(default)s)")
    add("--shapes", choices=("static", "dynamic", "both"), default=Options.shapes, help="kind of export")
    add("--opset", type=int, default=None, metavar="N", help="to emit; default: the converter's own")
    add("--batch-size", type=int, default=Options.batch_size, metavar="N", help="structures per export")
    add("--public-api", action="store_true", help="keep nothing between exports: slow and plain")
    add("--memory-limit", type=float, default=4.0, metavar="GIB", help="of a worker process (%(default)s)")
    add("--results-dir", default=None, metavar="DIR", help="where the run is written (results/RUN_ID)")
    add("--record-only", action="store_true", help="record failures and exit with status 0")
    add("--replay", default=None, metavar="DIR", help="run recorded cases again instead of drawing")
    add("--case", action="append", default=[], metavar="ID", help="with --replay: only these cases")
    # pytest-timeout has an option of that name; its value serves both.
    with contextlib.suppress(ValueError):
        add("--timeout", type=float, default=120.0, metavar="S", help="seconds per step of a batch")


_RECORDED_OPTIONS = ("op", "dtype", "examples", "values", "shapes", "opset", "batch_size", "public_api")


class Conformance:
    """One process's part of a run: the plan, the worker process, the record.

    Attributes:
        plan: What the session runs.
        results_dir: Where the run is written; set when the session starts.
        run_info: Of the run; likewise.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.worker = getattr(config, "workerinput", {}).get("workerid", "main")
        self.is_worker = hasattr(config, "workerinput")
        option = config.option
        replay = None
        if option.replay is not None:
            replay = read_replay(Path(option.replay), option.case)
        elif option.case:
            raise UsageProblem("--case names a recorded case: say where it was recorded with --replay DIR")
        self.plan: Plan = make_plan(
            Options(
                ops=tuple(option.op),
                converters=tuple(option.converter),
                backends=tuple(option.backend),
                dtypes=tuple(option.dtype),
                examples=option.examples,
                values=option.values,
                seed=option.seed,
                shapes=option.shapes,
                opset=option.opset,
                batch_size=option.batch_size,
                public_api=option.public_api,
                replay=replay,
            )
        )
        timeout = option.timeout or 120.0
        if timeout <= 0 or option.memory_limit <= 0:
            raise UsageProblem("--timeout and --memory-limit must be positive")
        self._supervisor = Supervisor(timeout=timeout, memory_limit=int(option.memory_limit * 2**30))
        self.results_dir: Path | None = None
        self.run_info: RunInfo | None = None
        self._writer: RunWriter | None = None
        self.progress: Progress | None = None
        self.cases = 0
        self._last_line = 0.0

    # The record

    def start(self) -> None:
        """Create the run's directory, or join it as an xdist worker."""
        if self.is_worker:
            given = self.config.workerinput["conformance"]  # type: ignore[attr-defined]
            self.results_dir, self.run_info = Path(given["directory"]), RunInfo.from_json(given["run"])
        else:
            self.run_info = RunInfo.begin(
                seed=self.config.option.seed,
                options=self._recorded_options(),
                versions={"harness": harness.__version__, **self._versions()},
            )
            wanted = self.config.option.results_dir
            self.results_dir = Path(wanted) if wanted else layout.default_directory(self.run_info.run_id)
        self._writer = RunWriter(self.results_dir, self.run_info, self.worker)

    def _recorded_options(self) -> dict[str, Any]:
        option = self.config.option
        return {
            **{name: getattr(option, name) for name in _RECORDED_OPTIONS},
            "converter": list(self.plan.converters),
            "backend": list(self.plan.backends),
            "replay": option.replay is not None,
        }

    def _versions(self) -> dict[str, str]:
        named = {f"converter {name}": converters.find(name).version() for name in self.plan.converters}
        for name in self.plan.backends:
            entry, argument = backends.find(name)
            named[f"backend {name}"] = entry.version(argument)
        return named

    def run(self, unit: Unit) -> ItemResult:
        """Run one unit and record every verdict, batch by batch."""
        from harness.pipeline.unit import run_unit

        assert self._writer is not None
        result = ItemResult()
        for verdicts in run_unit(unit, self._supervisor):
            self._writer.write(verdicts)
            self._writer.flush()
            result.add(verdicts)
        return result

    def finish(self, exit_status: int) -> None:
        """End the worker process and close the record; the controller merges it."""
        self._supervisor.close()
        if self._writer is not None:
            self._writer.close()
            if not self.is_worker:
                assert self.results_dir is not None
                store.finish(self.results_dir, exit_status)

    # What is said

    def header(self) -> list[str]:
        """Versions, who takes part, who cannot and why."""
        versions = ", ".join(
            f"{name} {version}"
            for name, version in RunInfo.begin(seed=0, options={}).versions.items()
            if name in ("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu", "hypothesis")
        )
        lines = [f"conformance: harness {harness.__version__}, {versions}"]
        for kind, chosen in (("converter", self.plan.converters), ("backend", self.plan.backends)):
            names = [e.name for e in (converters if kind == "converter" else backends).entries()]
            missing = {name for k, name, _ in self.plan.unavailable if k == kind}
            rest = [n for n in names if n not in chosen and n not in missing]
            lines.append(
                f"{kind}s: {', '.join(chosen)}" + (f" (also here: {', '.join(rest)})" if rest else "")
            )
            for k, name, why in self.plan.unavailable:
                if k == kind:
                    lines.append(f"  {name} unavailable: {why.reason}; to get it: {why.install}")
        option = self.config.option
        operators = len({unit.overload for unit in self.plan.units})
        what = f"{option.examples} cases each" if option.replay is None else f"replayed from {option.replay}"
        lines.append(
            f"plan: {operators} operator overloads, {what}, {option.shapes} shapes, seed {option.seed}"
        )
        return lines

    def show_progress(self, reporter: TerminalReporter, properties: dict[str, Any]) -> None:
        """Rewrite the progress line, or add one now and then where lines cannot be rewritten."""
        assert self.progress is not None
        self.cases += properties.get("cases", 0)
        self.progress.add(items=1, cases=properties.get("cases", 0), failures=properties.get("failures", 0))
        if reporter.verbosity > 0:
            return
        if reporter.hasmarkup:
            reporter.rewrite(self.progress.line(), erase=True)
        elif self.progress.state.elapsed - self._last_line >= _QUIET_INTERVAL:
            self._last_line = self.progress.state.elapsed
            reporter.write_line(self.progress.line())


class ItemResult:
    """What one item counts: cases, outcomes, the first words of each kind of failure."""

    def __init__(self) -> None:
        self.verdicts = 0
        self.cases: set[tuple[str, str]] = set()
        self.outcomes: dict[str, int] = {}
        self.failures: dict[str, tuple[int, str]] = {}

    def add(self, verdicts: list[Any]) -> None:
        """Count more verdicts."""
        for verdict in verdicts:
            self.verdicts += 1
            self.cases.add((verdict.case_id, verdict.exported_invocation))
            self.outcomes[verdict.outcome.value] = self.outcomes.get(verdict.outcome.value, 0) + 1
            if verdict.outcome.is_failure:
                key = f"{verdict.backend}: {verdict.outcome} at {verdict.stage}: {verdict.signature}"
                count, case_id = self.failures.get(key, (0, verdict.case_id))
                self.failures[key] = (count + 1, case_id)

    @property
    def failed(self) -> int:
        """Verdicts that fail the item."""
        return sum(count for count, _ in self.failures.values())

    def text(self) -> str:
        """For pytest's report of a failed item."""
        lines = [f"{self.failed} of {self.verdicts} verdicts are failures"]
        for key, (count, case_id) in sorted(self.failures.items(), key=lambda f: -f[1][0]):
            lines.append(f"  {count:>4} × {key} (first: {case_id})")
        return "\n".join(lines)


_KEY = pytest.StashKey[Conformance]()


def pytest_configure(config: pytest.Config) -> None:
    """Resolve what was asked for; what is wrong with it ends the session with status 4."""
    if config.option.help:
        return
    try:
        config.stash[_KEY] = Conformance(config)
    except (UsageProblem, ResultsError) as error:
        raise pytest.UsageError(str(error)) from None
    # The summary below says more in less; `--tb` and `-r` bring pytest's own back.
    if config.option.tbstyle == "auto":
        config.option.tbstyle = "no"
    if config.option.reportchars == "fE":
        config.option.reportchars = ""


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Open the record before any worker starts."""
    if session.config.option.collectonly:
        return
    try:
        session.config.stash[_KEY].start()
    except ResultsError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to."""
    conformance = node.config.stash[_KEY]
    node.workerinput["conformance"] = {
        "directory": str(conformance.results_dir.absolute()),
        "run": conformance.run_info.json,
    }


def pytest_report_header(config: pytest.Config) -> list[str]:
    """See `Conformance.header`."""
    return config.stash[_KEY].header()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item per unit."""
    if "unit" in metafunc.fixturenames:
        units = metafunc.config.stash[_KEY].plan.units
        metafunc.parametrize("unit", units, ids=[_item_id(unit) for unit in units])


def _item_id(unit: Unit) -> str:
    mode = "" if unit.shape_mode == "static" else f"-{unit.shape_mode}"
    return f"{unit.overload}-{unit.converter}{mode}"


@pytest.fixture(scope="session")
def conformance(request: pytest.FixtureRequest) -> Conformance:
    """The session's `Conformance`."""
    return request.config.stash[_KEY]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the clock of the progress line."""
    session.config.stash[_KEY].progress = Progress(len(session.items))


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """No letter per item: the progress line says it. `-v` has its line per item."""
    if report.when != "call" or config.option.verbose > 0:
        return None
    return report.outcome, "", ""


class _ProgressPlugin:
    """Follows reports on the controller, which hears of every worker's items."""

    def __init__(self, conformance: Conformance, reporter: TerminalReporter) -> None:
        self._conformance, self._reporter = conformance, reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            if self._conformance.progress is None:
                # Under xdist the workers collect, and their first report comes before this is known here.
                self._conformance.progress = Progress(len(self._conformance.plan.units))
            self._conformance.show_progress(self._reporter, dict(report.user_properties))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Follow the reports where there is a terminal to write to; the loop itself is pytest's or xdist's."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    conformance = session.config.stash[_KEY]
    if reporter is not None and not conformance.is_worker and not session.config.option.collectonly:
        session.config.pluginmanager.register(_ProgressPlugin(conformance, reporter))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Close the record. A run that drew no case is not green."""
    conformance = session.config.stash.get(_KEY, None)
    if conformance is None or conformance.results_dir is None:
        return
    nothing = not conformance.is_worker and exitstatus == pytest.ExitCode.OK and not conformance.cases
    if nothing:
        session.exitstatus = exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
    conformance.finish(int(exitstatus))


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """The matrix, the failures, how to reproduce one, where everything is."""
    conformance = config.stash[_KEY]
    if conformance.results_dir is None:
        return
    terminalreporter.ensure_newline()
    terminalreporter.section("conformance", "=")
    console = Console(
        file=terminalreporter._tw._file,
        force_terminal=terminalreporter.hasmarkup,
        no_color=not terminalreporter.hasmarkup,
        width=None if terminalreporter.hasmarkup else max(terminalreporter._tw.fullwidth, 100),
    )
    print_summary(console, conformance.results_dir)
    if conformance.progress is not None:
        terminalreporter.write_line(conformance.progress.line().rpartition(",")[0])
