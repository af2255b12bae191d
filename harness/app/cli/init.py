"""`conformance init`: the files that run the harness in the CI of another repository."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from harness.app.cli._shared import example, names_option, statuses

SECTION = "gate"

#: File in the repository → template.
_GITHUB = {
    ".github/workflows/conformance.yml": "pull_request.yml",
    ".github/workflows/conformance-nightly.yml": "nightly.yml",
    ".github/actions/conformance/action.yml": "action.yml",
}
_INSTALL = ("aten-onnx-conformance[cpu,github]",)


@click.group(short_help="Write the files that run the harness in a CI.")
def command() -> None:
    """Write the files that run the harness in the CI of your repository."""


@command.command(
    epilog=example(
        "conformance init github --rules my_rules.py",
        "conformance init github --install 'aten-onnx-conformance[cpu,github]' --install '-e .'",
        "conformance init github --converter dynamo --backend openvino --baseline conformance/baseline --force",
    )
    + statuses("0")
)
@click.option(
    "--install",
    multiple=True,
    metavar="WORDS",
    help=f"What pip installs. Repeatable. Default: {_INSTALL[0]}, and the repository's own package if it has one.",
)
@click.option("--rules", multiple=True, metavar="FILE", help="Files of conversion functions. Repeatable.")
@names_option("--converter", "converters", "Converter. Repeatable. Default: those of `conformance run`.")
@names_option("--backend", "backends", "Backend. Repeatable. Default: ort-cpu.")
@click.option(
    "--baseline", default="golden/baseline", show_default=True, metavar="DIR", help="Where the baseline is kept."
)
@click.option("--waivers", metavar="FILE", help="A file of failures that are expected.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option(
    "--to",
    "root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    show_default=True,
    metavar="DIR",
    help="The repository.",
)
def github(
    install: tuple[str, ...],
    rules: tuple[str, ...],
    converters: tuple[str, ...],
    backends: tuple[str, ...],
    baseline: str,
    waivers: str | None,
    force: bool,
    root: Path,
) -> None:
    """Write two workflows for GitHub, and the action that both use.

    The one for pull requests runs the operators whose conversion functions changed, compares them with the baseline,
    keeps one comment up to date and uploads a page. The nightly one runs everything, keeps the runs, and makes a
    baseline when it is started by hand.
    """
    for file in (*rules, *([waivers] if waivers else [])):
        if not (root / file).is_file():
            raise click.UsageError(f"{file}: no such file in {root}")
    selection = [word for name in converters for word in ("--converter", name)]
    selection += [word for name in backends for word in ("--backend", name)]
    rule_words = [word for file in rules for word in ("--rules", file)]
    values = {
        "INSTALL": " ".join(_installed(install, root)),
        "BASELINE": shlex.quote(baseline.rstrip("/")),
        "OPTIONS": shlex.join([*selection, *rule_words]),
        "WAIVERS": shlex.join(["--waivers", waivers] if waivers else []),
        "SELECTION": shlex.join(selection),
        "RULES": shlex.join(rule_words),
    }
    for name in _GITHUB:
        if (root / name).exists() and not force:
            raise click.UsageError(f"{root / name} is there already: give --force to replace it")
    for name, template in _GITHUB.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(_filled(template, values), encoding="utf-8")
        click.echo(f"wrote {root / name}")
    if not (root / baseline / "baseline.json").is_file():
        click.echo(
            f"next: start the nightly workflow by hand with `baseline`, and commit its artefact as {baseline}; "
            "until then pull requests are only shown, and never fail"
        )


def _installed(words: tuple[str, ...], root: Path) -> Iterator[str]:
    """Yield the words for pip: requirements are quoted, options are not."""
    package = ("-e .",) if (root / "pyproject.toml").is_file() or (root / "setup.py").is_file() else ()
    for text in words or (*_INSTALL, *package):
        yield text if text.startswith("-") else shlex.quote(text)


def _filled(template: str, values: dict[str, str]) -> str:
    """Return a template with its values; a line that has nothing but an empty one is left out."""
    text = resources.files("harness.app").joinpath("init_files", template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f" @{name}@", f" {value}" if value else "").replace(f"@{name}@", value)
    return text
