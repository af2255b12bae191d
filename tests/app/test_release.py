"""A release: what the tag, the changelog and the README of its sources must be."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import typed
from harness_runs import ROOT, output

import harness

REPOSITORY = "https://github.com/somebody/something"
CHANGES = f"# Changelog\n\n## [Unreleased]\n\n## [{harness.__version__}] - 2026-12-01\n\n### Added\n\n- A thing.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "README.md", "harness/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    return tmp_path


def release(checkout: Path, tag: str = f"v{harness.__version__}") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, ROOT / "ci" / "release.py", "--tag", tag, "--repository", REPOSITORY, "--root", checkout]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60, check=False)


def test_a_release_has_its_repositorys_addresses_and_a_readme_that_stands_alone(checkout: Path) -> None:
    done = release(checkout)
    assert done.returncode == 0, output(done)
    assert done.stdout.strip().endswith("- A thing.")
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    assert all(url.startswith(REPOSITORY) for url in project["urls"].values())
    links = re.findall(r"\]\(([^)\s]+)\)", (checkout / "README.md").read_text())
    assert len(links) > 8
    assert all(link.startswith(("https://", "#")) for link in links)


@pytest.mark.parametrize(
    ("changes", "tag", "named"),
    [
        pytest.param(CHANGES, "v9.9.9", "v9.9.9", id="another tag"),
        pytest.param(CHANGES.replace(" - 2026-12-01", ""), None, "no date", id="no date"),
        pytest.param(
            CHANGES.replace("[Unreleased]\n", "[Unreleased]\n\n- New.\n"), None, "Unreleased", id="unreleased"
        ),
        pytest.param(CHANGES.replace(harness.__version__, "0.0.1"), None, "0.0.1", id="another version"),
    ],
)
def test_a_release_that_does_not_agree_with_itself_is_refused(
    checkout: Path, changes: str, tag: str | None, named: str
) -> None:
    (checkout / "CHANGELOG.md").write_text(changes)
    before = (checkout / "pyproject.toml").read_text()
    done = release(checkout, *([tag] if tag else []))
    assert done.returncode == 2, output(done)
    assert named in done.stderr
    assert (checkout / "pyproject.toml").read_text() == before


def test_the_example_has_the_files_that_init_writes(tmp_path: Path) -> None:
    example = ROOT / "ci" / "example"
    shutil.copytree(example, tmp_path / "example", ignore=shutil.ignore_patterns(".github"))
    typed("init", "github", "--to", tmp_path / "example", "--rules", "my_rules.py", "--waivers", "waivers.toml")
    made = {path.relative_to(tmp_path / "example") for path in (tmp_path / "example" / ".github").rglob("*.yml")}
    assert made == {path.relative_to(example) for path in (example / ".github").rglob("*.yml")}
    assert all((tmp_path / "example" / path).read_text() == (example / path).read_text() for path in made)
