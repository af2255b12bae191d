"""`pytest harness`: its options, its items, and its hooks; the run itself is `harness.app.session`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from harness.app import baseline_option, changed_option, command_options, lost_record, model_windows, time_budget
from harness.app.session import Session, corpus_of
from harness.compare.repeated import RUNS
from harness.convert.changed_functions import ChangedConversions
from harness.core.documents import parse_data
from harness.coverage.exceptions import excuses
from harness.coverage.report import coverage_report
from harness.coverage.seen_pairs import tried_report
from harness.coverage.survey import Survey
from harness.gate.diff_inputs import BaselineComparison
from harness.gate.waivers import Waivers
from harness.generate.case_library import load_cases
from harness.generate.sources.recorded import read_replay
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import Plan, make_plan
from harness.plan.unit import Unit
from harness.present import draw_report as generator
from harness.present.changed_text import changed_lines
from harness.present.github_annotations import github_annotations
from harness.present.session_lines import Afterwords, ProgressLine, header
from harness.present.terminal_summary import print_summary
from harness.present.waiver_text import waiver_lines
from harness.record.layout import ResultsError
from harness.record.run_info import RunInfo, read_run_info
from harness.reproduce.shrink_session import default_seconds, shrink_after_run

#: The beginning of pytest's message about an item that no worker process could run.
_NOT_STARTED = "WorkerFailed: "
#: Seconds between progress lines if the terminal cannot rewrite one.
_QUIET_INTERVAL = 15.0

_OPTIONS = pytest.StashKey[Options]()
_PLAN = pytest.StashKey[Plan]()
_SESSION = pytest.StashKey[Session]()
_CHANGED = pytest.StashKey[ChangedConversions]()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the options."""
    group = parser.getgroup("conformance", "PyTorch → ONNX → runtime conformance")
    command_options.add(group.addoption, has_timeout=pluginmanager.hasplugin("timeout"))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Print the coverage instead of running a session for --coverage; with --op, print what a run has tried.

    With --changed-since, choose the operators, or end with status 0 if no conversion function differs.
    """
    given = config.option
    if given.help:
        return None
    if not given.coverage:
        return _choose_changed(config)
    if given.op:
        text, status = tried_report(given.op, Path(given.results_dir) if given.results_dir else None)
    else:
        text, status = coverage_report(load_cases())
    print(text)
    return status


def _choose_changed(config: pytest.Config) -> int | None:
    """Choose the operators for --changed-since; the workers of xdist are told them."""
    if not config.option.changed_since:
        return None
    if hasattr(config, "workerinput"):
        config.option.op = config.workerinput["conformance"]["operators"]
        return None
    try:
        changed = changed_option.choose(config.option)
    except UsageProblem as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[_CHANGED] = changed
    if changed.operators or changed.affects_all:
        return None
    print(*changed_lines(changed), sep="\n")
    return 0


def pytest_configure(config: pytest.Config) -> None:
    """Resolve the options. Invalid options end the session with status 4."""
    if config.option.help:
        return
    try:
        if model_windows.is_wanted(config.option) and not hasattr(config, "workerinput"):
            model_windows.write_windows(config.option)
        options = _options(config.option)
        time_budget.prepare(config.option)
        config.stash[_OPTIONS], config.stash[_PLAN] = options, make_plan(options)
    except (UsageProblem, ResultsError) as error:
        raise pytest.UsageError(str(error)) from None
    # Our summary replaces pytest's own, unless the user asks for that with `--tb` or `-r`.
    if config.option.tbstyle == "auto":
        config.option.tbstyle = "no"
    if config.option.reportchars == "fE":
        config.option.reportchars = ""


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """Collect operators, models or the generator's quality."""
    unwanted = name.startswith("test_") and name != command_options.test_function(collector.config.option)
    return [] if unwanted else None


def _options(given: Any) -> Options:
    """Return the user's choices as `Options`.

    Raises:
        UsageProblem: words that do not go together.
        ResultsError: the run to replay cannot be read.
    """
    replay = None
    if given.replay is not None:
        replay = read_replay(Path(given.replay), given.case)
        # A case is exported as it was then, unless the user says otherwise now.
        recorded = read_run_info(Path(given.replay)).options
        for name in ("opset", "converter", "backend"):
            if not getattr(given, name):
                setattr(given, name, recorded.get(name))
    elif given.case:
        raise UsageProblem("--case names a recorded case; say where it was recorded with --replay DIR")
    baseline_option.prepare(given)
    if given.shrink is not None and not given.shrink >= 0:
        raise UsageProblem(f"--shrink {given.shrink:g}: give seconds, or 0 for not at all")
    if given.generator_report is not None and (given.generator_report < 1 or given.replay is not None):
        raise UsageProblem("--generator-report N needs a positive N, and cannot be used with --replay")
    if given.baseline and (given.models or given.model):
        raise UsageProblem("a baseline is about operators; leave out --baseline, or --model and --models")
    if (given.timeout or 0) < 0 or given.memory_limit <= 0:
        raise UsageProblem("--timeout and --memory-limit must be positive")
    opsets = command_options.opsets(given)
    # So it is recorded, and read again.
    given.opset = opsets[0] if len(opsets) == 1 else None
    return Options(
        ops=command_options.operators(given),
        converters=command_options.converters(given),
        backends=tuple(given.backend or ()),
        dtypes=tuple(given.dtype),
        examples=given.examples,
        values=given.values,
        seed=given.seed,
        shapes=given.shapes,
        opset=opsets[0] if len(opsets) == 1 else None,
        opsets=opsets if len(opsets) > 1 else (),
        batch_size=given.batch_size,
        sources=command_options.sources(given),
        public_api=given.public_api,
        blame=not given.no_blame,
        replay=replay,
        # A user who names a case looks for its failure, which one run of a random operator may miss.
        runs=RUNS if given.case else 1,
        rules=tuple(str(Path(file).absolute()) for file in given.rules),
        shard=given.shard,
        parts=command_options.shard_parts(given.shard_parts),
        models=command_options.model_words(given),
        profile=given.profile or "",
        strict_device=given.strict_device,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Open the record, before xdist starts its workers."""
    config = session.config
    given = config.option
    if given.collectonly or given.generator_report:
        return
    if given.timeout is None:
        # The option is pytest-timeout's, which has no default.
        given.timeout = command_options.STEP_SECONDS
    joined = getattr(config, "workerinput", {}).get("conformance")
    directory = joined["directory"] if joined else given.results_dir
    try:
        config.stash[_SESSION] = Session(
            config.stash[_PLAN],
            Path(directory) if directory else None,
            options={name: getattr(given, name) for name in command_options.RECORDED},
            rule_files=tuple(map(Path, given.rules)),
            seed=given.seed,
            # 0 is how pytest-timeout says none.
            timeout=given.timeout or float("inf"),
            memory_limit=int(given.memory_limit * 2**30),
            baseline=baseline_option.expected(given),
            waivers=Waivers.read(Path(given.waivers) if given.waivers else None),
            joins=RunInfo.from_json(joined["run"]) if joined else None,
            worker=config.workerinput["workerid"] if joined else "main",  # type: ignore[attr-defined]
        )
    except ResultsError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer() -> bool:
    """Keep pytest-timeout from limiting items: each of their thousands of steps has its limit."""
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to."""
    session = node.config.stash.get(_SESSION, None)
    if session is None:
        return
    node.workerinput["conformance"] = {
        "directory": str(session.results_dir.absolute()),
        "run": session.run_info.json,
        "operators": list(node.config.option.op),
    }


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return versions, the converters and backends that take part, and those that cannot."""
    plan = config.stash[_PLAN]
    changed = config.stash.get(_CHANGED, None)
    return [*header(plan, config.stash[_OPTIONS]), *(changed_lines(changed) if changed else ())]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item per unit."""
    if "unit" in metafunc.fixturenames:
        units = metafunc.config.stash[_PLAN].units
        metafunc.parametrize("unit", units, ids=[_item_id(unit) for unit in units])
    if "surveyed" in metafunc.fixturenames:
        units = metafunc.config.stash[_PLAN].units
        metafunc.parametrize("surveyed", list(dict.fromkeys(unit.overload for unit in units)))


def _item_id(unit: Unit) -> str:
    mode = f"-{unit.route.shape_mode}" if unit.route.dynamic else ""
    return f"{unit.overload}-{unit.route.export}{mode}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort operators by real use if --minutes is given."""
    time_budget.sort_by_use(config.option, items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip items that start too late for --minutes."""
    time_budget.skip_late(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail an item whose verdicts cannot be written, with the reason."""
    with lost_record.noted(item):
        return (yield)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record the operators that the user deselected, so that they do not count as missing."""
    run = session.config.stash.get(_SESSION, None)
    given = [item.callspec.params.get("unit") for item in session.items if hasattr(item, "callspec")]
    chosen = {(unit.overload, unit.word) for unit in given if isinstance(unit, Unit)}
    # Under xdist the workers collect; the process that starts them has no items.
    if run is not None and chosen:
        units = session.config.stash[_PLAN].units
        run.leave_out(unit for unit in units if (unit.overload, unit.word) not in chosen)


@pytest.fixture(scope="session")
def conformance(request: pytest.FixtureRequest) -> Session:
    """Return the run that items add to."""
    return request.config.stash[_SESSION]


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport, config: pytest.Config) -> tuple[str, str, str] | None:
    """Print no letter per item, because the progress line says it. `-v` prints a line per item."""
    is_late = report.when == "setup" and time_budget.NOT_REACHED in dict(report.user_properties)
    if config.option.verbose > 0 or (report.when != "call" and not is_late):
        return None
    return report.outcome, "", ""


class _Follower:
    """Follows the reports of all items, those of xdist's workers too, and keeps the progress line."""

    def __init__(self, session: pytest.Session, reporter: Any, items: int, gate: baseline_option.Gate) -> None:
        #: Why the record cannot be written any further; "" if it can.
        self.lost = ""
        self._session = session
        self.progress = ProgressLine(items, budget=time_budget.seconds_left(session.config.option))
        self.cases = 0
        self.fired: set[str] = set()
        self.notes: dict[str, None] = {}
        self.gate = gate
        self.waived: Counter[int] = Counter()
        self.ran: set[str] = set()
        self.afterwords = Afterwords()
        self.surveys: list[Survey] = []
        self.not_reached: list[str] = []
        self._reporter = reporter
        self._last_written = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one item."""
        self.notes.update(dict.fromkeys(_raised(report)))
        properties: dict[str, Any] = dict(report.user_properties)
        if report.when == "setup" and time_budget.NOT_REACHED in properties:
            self.not_reached.append(properties[time_budget.NOT_REACHED])
        if report.when != "call":
            return
        if lost_record.PROPERTY in properties and not self.lost:
            self.lost = properties[lost_record.PROPERTY]
            lost_record.end_session(self._session, self.lost)
        self.cases += properties.get("cases", 0)
        self.fired.update(properties.get("fired", ()))
        self.notes.update(dict.fromkeys(properties.get("notes", ())))
        self.gate.add(properties)
        self.waived.update(dict(properties.get("waived", ())))
        self.ran.add(properties.get("ran", ""))
        self.afterwords.add(properties.get("notices", ()), properties.get("remembered", (0, 0)))
        if "survey" in properties:
            self.surveys.append(parse_data(Survey, properties["survey"]))
        self.progress.add(items=1, cases=properties.get("cases", 0), failures=properties.get("failures", 0))
        if self._reporter is None or self._reporter.verbosity != 0:
            return
        if self._reporter.hasmarkup:
            self._reporter.rewrite(self.progress.line(), erase=True)
        elif self.progress.state.elapsed - self._last_written >= _QUIET_INTERVAL:
            self._last_written = self.progress.state.elapsed
            self._reporter.write_line(self.progress.line())


def _raised(report: pytest.TestReport) -> list[str]:
    """Return a line about the error that ended an item early, which the record lacks; else an empty list."""
    where = getattr(report.longrepr, "reprcrash", None)
    # An item that fails for its verdicts has run to its end and reports that itself.
    if not report.failed or where is None or "cases" in dict(report.user_properties):
        return []
    message = next(iter(where.message.splitlines()), "")
    if _NOT_STARTED in message:
        return [message.partition(_NOT_STARTED)[2]]
    place = f"{Path(where.path).name}, line {where.lineno}"
    return [f"An item ended with {message} ({place}). The option --tb=short shows how it came there."]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Begin to follow the reports; the loop itself is pytest's, or xdist's."""
    config = session.config
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        # Under xdist only the workers collect.
        items = len(session.items) or len(config.stash[_PLAN].units)
        gate = baseline_option.Gate(baseline_option.expected(config.option))
        follower = _Follower(session, config.pluginmanager.get_plugin("terminalreporter"), items, gate)
        config.pluginmanager.register(follower, "conformance-follower")


class _Hooks:
    @pytest.hookspec
    def pytest_conformance_compared(self, comparison: BaselineComparison) -> None:
        """Receive the comparison of the run with its baseline."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of the harness."""
    pluginmanager.add_hookspecs(_Hooks)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Complete the record. A run without a case is not green."""
    run = session.config.stash.get(_SESSION, None)
    if run is None:
        return
    follower = session.config.pluginmanager.get_plugin("conformance-follower")
    # A shard without an operator has nothing to draw.
    drew = follower is None or follower.cases or not session.config.stash[_PLAN].units
    if not drew and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
    if _idle_rules(session.config) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = exitstatus = pytest.ExitCode.TESTS_FAILED
    try:
        run.close(int(exitstatus), follower.notes if follower is not None else ())
    except ResultsError as error:
        if follower is None:
            # The process that starts the workers reports it.
            return
        follower.lost = follower.lost or str(error)
    if follower is not None and follower.lost:
        session.exitstatus = lost_record.STATUS
        return
    if follower is not None and follower.cases:
        session.exitstatus = follower.gate.close(session.config.option, run.results_dir, int(exitstatus))
        compared = follower.gate.comparison(read_run_info(run.results_dir))
        session.config.hook.pytest_conformance_compared(comparison=compared)
    ours = not hasattr(session.config, "workerinput") and not session.config.stash[_PLAN].has_models
    if ours and exitstatus == pytest.ExitCode.TESTS_FAILED:
        _shrink(session.config, run)


def _idle_rules(config: pytest.Config) -> list[str]:
    """Return the rules that no case used, although cases ran."""
    follower = config.pluginmanager.get_plugin("conformance-follower")
    if follower is None or not follower.cases:
        return []
    return [label for label in config.stash[_PLAN].rules if label not in follower.fired]


def _shrink(config: pytest.Config, run: Session) -> None:
    given = config.option
    seconds = given.shrink
    if seconds is None:
        seconds = 0.0 if given.record_only else default_seconds(run.results_dir)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    follower = config.pluginmanager.get_plugin("conformance-follower")
    if seconds > 0 and reporter is not None and follower is not None:
        line = shrink_after_run(
            run.results_dir,
            seconds,
            timeout=given.timeout or float("inf"),
            memory_limit=int(given.memory_limit * 2**30),
            cases=follower.gate.worse_cases,
            rules=config.stash[_OPTIONS].rules,
            corpus=corpus_of(config.stash[_PLAN].units[0]),
        )
        reporter.ensure_newline()
        reporter.write_line(line)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the matrix, the failures, a command that reproduces one, and where everything is."""
    run = config.stash.get(_SESSION, None)
    follower = config.pluginmanager.get_plugin("conformance-follower")
    surveys = follower.surveys if follower is not None else []
    if run is None and not surveys:
        return
    terminalreporter.ensure_newline()
    terminalreporter.section("conformance" if run else "generator", "=")
    marked = terminalreporter.hasmarkup
    console = Console(
        file=terminalreporter._tw._file,
        force_terminal=marked,
        no_color=not marked,
        # A file or a pipe has no width; a hundred columns are easy to read.
        width=terminalreporter._tw.fullwidth if marked else max(terminalreporter._tw.fullwidth, 100),
    )
    if run is None:
        for part in generator.render(surveys, excuses(), whole=not config.option.op):
            console.print(part, soft_wrap=isinstance(part, Text))
        return
    if follower is not None and follower.lost:
        terminalreporter.write_line(f"The run ended early: {follower.lost}", red=True)
        return
    print_summary(
        console,
        run.results_dir,
        regressed=follower.gate.regressed if follower else None,
        verbose=config.get_verbosity() > 0,
        minutes=config.option.minutes,
    )
    if config.option.github:
        for line in github_annotations(run.results_dir):
            terminalreporter.write_line(line)
    if config.option.baseline and follower is not None:
        for part in follower.gate.rendered(config.option, run.run_info):
            console.print(part, soft_wrap=True)
    if config.option.waivers and follower is not None:
        waivers = Waivers.read(Path(config.option.waivers))
        for line in waiver_lines(waivers.uses(follower.waived, follower.ran)):
            terminalreporter.write_line(line)
    for label in _idle_rules(config):
        terminalreporter.write_line(f"ERROR: no case of the run called the rule {label}", red=True)
    if follower is not None:
        state = follower.progress.state
        terminalreporter.write_line(f"{state.elapsed:.0f} s, {state.rate:.1f} verdicts a second")
        late = time_budget.lines(config.option, follower.not_reached, run.results_dir)
        for line in [*follower.afterwords.lines(), *late]:
            terminalreporter.write_line(line)
