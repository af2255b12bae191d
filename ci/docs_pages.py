"""Pages of the site that are not in harness/docs: the READMEs, and the reference, which is made from the code."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any

import click
import pytest
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import harness
from harness.app import command_options
from harness.app.cli._group import conformance
from harness.core.documents import json_text
from harness.present.evidence import stable_ids
from harness.present.json_documents import DOCUMENTS, json_schema

ROOT = Path(__file__).resolve().parents[1]
#: README → page.
READMES = {
    "README.md": "index.md",
    "harness/app/README.md": "guide.md",
    "harness/README.md": "architecture.md",
    "cases/README.md": "operators.md",
    "golden/README.md": "goldens.md",
    "ci/README.md": "ci.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, page in READMES.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=readme_page(source)))
    for page, content in reference_pages().items():
        files.append(File.generated(config, f"reference/{page}", content=content))
    return files


def readme_page(source: str) -> str:
    """Return a README as a page: links to other READMEs lead to their pages, others become names of files."""

    def link(match: re.Match[str]) -> str:
        target = os.path.normpath(Path(source).parent / match[2])
        page = READMES.get(target)
        return f"[{match[1]}]({page}{match[3] or ''})" if page is not None else f"{match[1]} (`{target}`)"

    return _LINK.sub(link, (ROOT / source).read_text(encoding="utf-8"))


def reference_pages() -> dict[str, str]:
    """Return name → text of the pages that are made from the code."""
    return {
        "commands.md": commands_page(),
        "options.md": options_page(),
        "python.md": python_page(),
        "documents.md": documents_page(),
        "ids.md": ids_page(),
    }


def commands_page() -> str:
    """Return the help of every command."""
    parts = ["# Commands", "What `conformance COMMAND --help` prints."]

    def add(command: click.Command, path: str, parent: click.Context | None) -> None:
        context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, max_content_width=100)
        parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                if child is not None:
                    add(child, f"{path} {name}", context)

    add(conformance, "conformance", None)
    return "\n\n".join(parts) + "\n"


def options_page() -> str:
    """Return the options of `pytest harness`."""
    rows = ["| option | |", "| --- | --- |"]

    def take(*flags: str, **given: Any) -> None:
        name = f"{flags[0]} {given['metavar']}" if given.get("metavar") else flags[0]
        words = str(given.get("help", "")).replace("%(default)s", str(given.get("default"))).replace("|", "\\|")
        rows.append(f"| `{name}` | {words} |")

    command_options.add(take, has_timeout=False)
    head = "# Options of pytest harness\n\n`conformance run` takes the same ones, and all of pytest's.\n\n"
    return head + "\n".join(rows) + f"\n\nThis page was made with pytest {pytest.__version__}.\n"


def python_page() -> str:
    """Return the public names with their signatures and docstrings."""
    parts = ["# Python", inspect.getdoc(harness) or ""]
    for name in sorted(vars(harness)["__all__"]):
        value = getattr(harness, name)
        if not callable(value):
            continue
        kind = "class" if inspect.isclass(value) else "function"
        text = inspect.getdoc(value) or ""
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = "(...)"
        parts.append(f"## {name}\n\n```python\n{kind} {name}{signature}\n```\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def documents_page() -> str:
    """Return the JSON documents with their schemas."""
    parts = ["# JSON documents", inspect.getdoc(importlib.import_module("harness.present.json_documents")) or ""]
    for name, document in DOCUMENTS.items():
        words = inspect.getdoc(document.type) or ""
        parts.append(f"## {name}/{document.version}\n\n{words}\n\n```json\n{json_text(json_schema(name))}\n```")
    return "\n\n".join(parts) + "\n"


def ids_page() -> str:
    """Return the stable ids of the record."""
    parts = ["# Ids", "An id keeps its meaning. The sentences may change; they have placeholders in braces."]
    for kind, ids in stable_ids().items():
        rows = [f"| `{name}` | {words.replace('|', '&#124;')} |" for name, words in ids.items()]
        parts.append("\n".join([f"## {kind}", "", "| id | |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"
