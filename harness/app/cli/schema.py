"""`conformance schema`: the JSON Schema of what a command prints with --json."""

from __future__ import annotations

import difflib

import click

from harness.app.cli._shared import example, print_json, statuses
from harness.core.documents import json_text

SECTION = "look"


@click.command(
    short_help="Print the JSON Schema of a command's --json.",
    epilog=example("conformance schema", "conformance schema check > check.schema.json", "conformance schema ids")
    + statuses("0"),
)
@click.argument("name", required=False)
@click.option("--schema", "of_ids", is_flag=True, help="With ids: the schema of the list rather than the list.")
def command(name: str | None, of_ids: bool) -> None:
    """Print the JSON Schema of the document NAME, or all names with their versions.

    Each document begins with "schema": "NAME/VERSION". A version stays as long as fields are only added; it becomes the
    next number if a field goes, or if its type or meaning changes.

    `conformance schema ids` prints the stable ids of the record: outcomes, stages, blames, rules of the decision table,
    faults and problems, each with a sentence. An id never changes its meaning.
    """
    from harness.present.evidence import stable_ids
    from harness.present.json_documents import DOCUMENTS, json_schema

    if name is None:
        click.echo("\n".join(f"{known}/{document.version}" for known, document in DOCUMENTS.items()))
        return
    if name not in DOCUMENTS:
        near = " or ".join(difflib.get_close_matches(name, DOCUMENTS, n=2))
        hint = f"did you mean {near}?" if near else "`conformance schema` lists them"
        raise click.UsageError(f"no document is called {name}; {hint}")
    if name == "ids" and not of_ids:
        print_json("ids", stable_ids())
    else:
        click.echo(json_text(json_schema(name)))
