"""`conformance profile`: what became of a runtime's claims in a run."""

from __future__ import annotations

from pathlib import Path

import click

from harness.app.cli._shared import emit, example, json_option, print_json, run_option, statuses

SECTION = "look"


@click.command(
    short_help="Show what became of a runtime's claims.",
    epilog=example(
        "pytest harness --onnx --backend ort-ep:mine --profile mine.toml --strict-device",
        "conformance profile mine.toml",
    )
    + statuses("0 if every claim is PASS or NOT_RUN, else 1"),
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
@run_option
@json_option
def command(file: Path, run: Path, as_json: bool) -> None:
    """Show what became of the claims in FILE in a run of `pytest harness --onnx --profile FILE`.

    An operator is PASS, FAIL, UNSUPPORTED, NOT_RUN, or EXCLUDED if the profile does not claim it.

    With --json: claims, a list of backend, overload, outcome, compared, failing, example.
    """
    from harness.generate.case_library import load_onnx_cases
    from harness.plan.options import UsageProblem
    from harness.plan.profile import read_profile
    from harness.present.profile_report import claims_table, is_kept, read_claims

    known = tuple(load_onnx_cases())
    try:
        profile = read_profile(file, known)
    except UsageProblem as problem:
        raise click.UsageError(str(problem)) from None
    claims = read_claims(run, profile)
    if as_json:
        print_json("profile", {"claims": [claim.to_data() for claim in claims]})
    else:
        emit(*claims_table(claims, excluded=len(known) - len(profile.dtypes)))
    raise SystemExit(0 if all(map(is_kept, claims)) else 1)
