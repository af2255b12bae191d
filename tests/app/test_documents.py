"""The site of the documents is built without a warning, its reference names everything, its examples are real."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from harness_runs import ROOT, output

from harness.app import command_options
from harness.app.cli._group import conformance
from harness.present.json_documents import DOCUMENTS

TUTORIAL = (ROOT / "harness" / "docs" / "tutorial.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "harness" / "docs").glob("*.md"))
CONTEXT = click.Context(conformance)
PYTEST_OPTIONS: set[str] = set()
command_options.add(lambda *flags, **given: PYTEST_OPTIONS.update(flags), has_timeout=False)
#: Documents that show commands of `conformance`.
SHOWN = [*PAGES, ROOT / "README.md", ROOT / "ci" / "example" / "README.md", ROOT / "harness" / "app" / "README.md"]


def test_the_tutorials_files_are_those_of_the_example() -> None:
    files = dict(re.findall(r"```(?:python|toml)\n# (\S+\.(?:py|toml))\n(.*?)```", TUTORIAL, re.DOTALL))
    assert set(files) == {path.name for path in (ROOT / "ci" / "example").iterdir() if path.suffix in (".py", ".toml")}
    for name, text in files.items():
        assert (ROOT / "ci" / "example" / name).read_text() == text.lstrip("\n")


@pytest.mark.parametrize("file", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_shown_is_one(file: Path) -> None:
    for block in re.findall(r"^```(?:bash|sh)\n(.*?)^```", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split("&&"):
                words = shlex.split(part.partition("|")[0].partition(">>")[0], comments=True)
                if words[:1] == ["conformance"]:
                    check_words(words[1:])


def check_words(words: list[str]) -> None:
    """Check that a command has the options, without running it; files need not exist."""
    path, rest = words[0], words[1:]
    command = conformance.get_command(CONTEXT, path)
    assert command is not None, words
    if isinstance(command, click.Group):
        command, rest = command.get_command(CONTEXT, rest[0]), rest[1:]
        assert command is not None, words
    known = {flag for parameter in command.params for flag in parameter.opts}
    if path in ("run", "upgrade"):
        known |= {*PYTEST_OPTIONS, "--on", "--dataset", "--run", "--json"}
    before = rest[: rest.index("--")] if "--" in rest else rest
    assert {word.partition("=")[0] for word in before if word.startswith("--")} <= known, words


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_names_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "ci" / "mkdocs.yml")]
    done = subprocess.run([*command, "-d", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, output(done)
    documents = (tmp_path / "reference" / "documents" / "index.html").read_text()
    assert all(f"{name}/{document.version}" in documents for name, document in DOCUMENTS.items())
    commands = (tmp_path / "reference" / "commands" / "index.html").read_text()
    assert all(f"conformance {name}" in commands for name in conformance.list_commands(CONTEXT))
    options = (tmp_path / "reference" / "options" / "index.html").read_text()
    assert "--changed-since" in options
    assert "assert_survives" in (tmp_path / "reference" / "python" / "index.html").read_text()
    for page in PAGES:
        assert (tmp_path / ("" if page.stem == "index" else page.stem) / "index.html").is_file()
