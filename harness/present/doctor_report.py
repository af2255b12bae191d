"""An installation in words: what can run, what is wrong, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness.core.text import count
from harness.present.report import Note, Report, Row, Section
from harness.support.health import Installation, PlugIn, Problem, RouteTest


def doctor_report(installation: Installation, tests: Sequence[RouteTest], problems: Sequence[Problem]) -> Report:
    """Return the report of an installation and of its self-test."""
    running = tuple(plugin for plugin in installation.plugins if not plugin.reason)
    lacking = tuple(plugin for plugin in installation.plugins if plugin.reason)
    worst = "red" if problems else "green"
    words = count(len(problems), "problem") if problems else "everything that is installed works"
    sections = (
        Section(title="What is wrong", rows=tuple(map(_problem_row, problems)), style="bold red", noun="problem"),
        Section(title="Self-test", rows=tuple(map(_test_row, tests)), noun="route"),
        Section(title="Can run", rows=tuple(_running_rows(running)), noun="kind"),
        Section(title="Not installed", rows=tuple(map(_lacking_row, lacking)), noun="plug-in"),
    )
    versions = ", ".join(f"{name} {version}" for name, version in installation.versions.items())
    return Report(
        title="conformance doctor",
        before=(Note(words, worst), Note(versions)),
        sections=tuple(section for section in sections if section.rows),
    )


def _running_rows(plugins: Sequence[PlugIn]) -> Iterator[Row]:
    for kind in dict.fromkeys(plugin.kind for plugin in plugins):
        names = [f"{p.name} {p.version}".strip() for p in plugins if p.kind == kind]
        yield Row(f"{kind}s", ", ".join(names))


def _lacking_row(plugin: PlugIn) -> Row:
    return Row(f"{plugin.kind} {plugin.name}", f"{plugin.reason}; to get it: {plugin.install}")


def _test_row(test: RouteTest) -> Row:
    if not test.cases:
        return Row(test.route, "not tried: the time was over")
    if test.is_built_only:
        return Row(test.route, f"models are built, and cannot run on this machine, {test.seconds:.1f} s")
    failure = f": {test.message}" if test.message else ""
    return Row(test.route, f"{test.passed} of {count(test.cases, 'case')} pass, {test.seconds:.1f} s{failure}")


def _problem_row(problem: Problem) -> Row:
    return Row(problem.subject, problem_text(problem))


def problem_text(problem: Problem) -> str:
    """Return what is wrong and what to do, in a sentence without a full stop."""
    details = problem.details
    match problem.id:
        case "two-distributions":
            both = " and ".join(details)
            return f"{both} unpack into one package, where the last one wins: uninstall them all, then install one"
        case "hidden-package":
            return f"{details[0]} hides the installed {details[1]}: rename it, or work in another folder"
        case "unmet-requirement":
            wanted, version = details
            have = f"{version} is installed" if version else "it is not installed"
            return f"wants {wanted}, and {have}: pip install '{wanted}', or another release of the first"
        case "no-backend":
            return "no runtime is installed: pip install 'aten-onnx-conformance[cpu]'"
        case "little-memory":
            free, most = (int(number) / 2**30 for number in details)
            return f"{free:.1f} GiB are free, and a worker may use {most:.0f} GiB: use --memory-limit or fewer workers"
        case "not-writable":
            return "this folder cannot be written to"
        case "route-fails":
            return f"a case that works everywhere fails: {details[0]}"
        case "fault-not-found":
            return "a conversion function that drops alpha passes: nothing that this installation says can be trusted"
    raise AssertionError(problem.id)


def doctor_data(installation: Installation, tests: Sequence[RouteTest], problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the report as plain data."""
    return {
        "healthy": not problems,
        "versions": dict(installation.versions),
        "problems": [{**asdict(problem), "text": problem_text(problem)} for problem in problems],
        "plugins": [asdict(plugin) for plugin in installation.plugins],
        "tests": [asdict(test) for test in tests],
    }
