"""Prepare a checkout for the build of a release, and refuse one that does not agree with itself.

    python ci/release.py --tag v0.2.0 --repository https://github.com/OWNER/NAME

The tag, `harness.__version__` and the newest heading of CHANGELOG.md must name the same version. Then pyproject.toml
gets the project's addresses, and the README's links and pictures are made absolute: the package index shows the README,
and has none of the other files. The text of the release's notes is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
#: A link or picture of Markdown that is neither an address nor a place in the same file.
_LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)")


def release_notes(changelog: str, version: str) -> str:
    """Return the section of a version in a changelog.

    Raises:
        ValueError: The newest released section is another one's, has no date, or there are changes without a version.
    """
    headings = list(_HEADING.finditer(changelog))
    ends = [*(heading.start() for heading in headings[1:]), len(changelog)]
    sections = [(heading, changelog[heading.end() : end].strip()) for heading, end in zip(headings, ends, strict=True)]
    if sections and sections[0][0][1] == "Unreleased":
        if sections[0][1]:
            raise ValueError("CHANGELOG.md has changes under [Unreleased]: give them the version and its date")
        sections = sections[1:]
    if not sections or sections[0][0][1] != version:
        newest = sections[0][0][1] if sections else "none"
        raise ValueError(f"the newest version in CHANGELOG.md is {newest}, not {version}")
    if sections[0][0][2] is None:
        raise ValueError(f"CHANGELOG.md has no date for {version}: write ## [{version}] - YYYY-MM-DD")
    return sections[0][1]


def add_addresses(project: str, repository: str) -> str:
    """Return the text of pyproject.toml with the addresses of a repository."""
    pages = {"Repository": "", "Documentation": "#readme", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
    lines = [f'{name} = "{repository}{end}"' for name, end in pages.items()]
    return project.replace(
        "\n[project.scripts]\n", "\n[project.urls]\n" + "\n".join(lines) + "\n\n[project.scripts]\n", 1
    )


def make_links_absolute(readme: str, repository: str, tag: str) -> str:
    """Return a README whose links and pictures lead to a tag of a repository."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}({repository}/{kind}/{tag}/{match[2]})"

    return _LINK.sub(absolute, readme)


def main() -> int:
    """Prepare the checkout; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", required=True, metavar="vX.Y.Z", help="the tag of the release")
    parser.add_argument("--repository", required=True, metavar="URL", help="the repository's address")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="DIR", help="the checkout")
    given = parser.parse_args()
    root: Path = given.root
    stated = _VERSION.search((root / "harness" / "__init__.py").read_text(encoding="utf-8"))
    version = stated[1] if stated else ""
    if given.tag != f"v{version}":
        parser.error(f"the tag is {given.tag}, and harness.__version__ is {version}")
    try:
        notes = release_notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ValueError as error:
        parser.error(str(error))
    project, readme = root / "pyproject.toml", root / "README.md"
    project.write_text(add_addresses(project.read_text(encoding="utf-8"), given.repository), encoding="utf-8")
    absolute = make_links_absolute(readme.read_text(encoding="utf-8"), given.repository, given.tag)
    readme.write_text(absolute, encoding="utf-8")
    print(notes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
