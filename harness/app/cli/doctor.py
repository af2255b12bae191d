"""`conformance doctor`: what is installed, whether it works, and what is wrong."""

from __future__ import annotations

import contextlib
import sys

import click

from harness.app.cli._shared import emit, example, json_option, print_json, say_step, statuses

SECTION = "run"


@click.command(
    short_help="Say what is installed, and whether it works.",
    epilog=example("conformance doctor", "conformance doctor --seconds 0", "conformance doctor --json")
    + statuses("0 if nothing is wrong; 1 if something is"),
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="S",
    help="Begin no route of the self-test after this time; 0 for no self-test.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, seconds: float, as_json: bool) -> None:
    """Say what is installed, what can run here and how to get the rest, and what is wrong.

    Wrong are two distributions of one runtime, a file that hides a package, requirements that are not met, too little
    memory, folders that cannot be written to. The self-test runs a few cases on every route, the default ones first,
    and a conversion function that is wrong on purpose, which has to be found.

    With --json: healthy, versions, problems (id, subject, details, text), plugins (kind, name, version, reason,
    install), tests (route, passed, cases, seconds, message, is_built_only).
    """
    from harness.present.doctor_report import doctor_data, doctor_report
    from harness.present.report import render
    from harness.support.health import Installation, RouteTest
    from harness.support.hidden_packages import find_hidden

    problems = list(find_hidden())
    installation, tests = Installation(), list[RouteTest]()
    if not problems:
        # With a hidden package, what would be imported now is not what is installed.
        from harness.support.installation import find_installation

        installation = find_installation()
        problems += installation.problems
    if seconds and installation.versions and not any(problem.id == "no-backend" for problem in problems):
        say_step("run the self-test")
        with contextlib.redirect_stdout(sys.stderr):
            from harness.support.self_test import run_self_test

            tests, failures = run_self_test(seconds)
        problems += failures
    if as_json:
        print_json("doctor", doctor_data(installation, tests, problems))
    else:
        emit(render(doctor_report(installation, tests, problems), limit=100))
    ctx.exit(int(bool(problems)))
