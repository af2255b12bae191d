"""What programs read: the schemas of documents, and the ids of the record, change only with their version.

`schemas.json` holds every schema that was released, by NAME/VERSION. A field may be added to one; whatever else changes
needs the next version. `python tests/app/test_schemas.py` writes those that are new.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import answered, closed_validator, typed
from harness_runs import ROOT, recorded, row_of, unary

from harness.compare.verdict import Outcome, Stage
from harness.present.evidence import RULES, stable_ids
from harness.present.json_documents import DOCUMENTS, json_schema

RELEASED = Path(__file__).with_name("schemas.json")


def released() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(RELEASED.read_text())
    return data


def broken_promises(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what a reader of the earlier schema would miss in a document of the later one."""
    broken = []
    for name, definition in before["$defs"].items():
        later = now["$defs"].get(name)
        if later is None:
            broken.append(name)
            continue
        for field, kind in definition.get("properties", {}).items():
            if later["properties"].get(field) != kind:
                broken.append(f"{name}.{field}")
            elif field in definition.get("required", ()) and field not in later.get("required", ()):
                broken.append(f"{name}.{field} may lack")
    return broken


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_keeps_what_its_version_promises(name: str) -> None:
    identity = f"{name}/{DOCUMENTS[name].version}"
    assert identity in released(), "a new version: run this file as a script"
    assert broken_promises(released()[identity], json_schema(name)) == []


def test_a_broken_promise_is_seen() -> None:
    before = json_schema("corpus")
    now = json.loads(json.dumps(before))
    now["$defs"]["Corpus"]["properties"]["cases"] = {"type": "string"}
    now["$defs"]["Corpus"]["required"].remove("out")
    now["$defs"]["Corpus"]["properties"]["added"] = {"type": "string"}
    assert broken_promises(before, now) == ["Corpus.cases", "Corpus.out may lack"]


def test_every_command_with_json_has_a_document() -> None:
    printed = {
        name
        for file in (ROOT / "harness" / "app" / "cli").glob("*.py")
        for name in re.findall(r'(?:print_json|label_document)\(\s*"([\w-]+)"', file.read_text(encoding="utf-8"))
    }
    assert printed | {"check", "headroom"} == {*DOCUMENTS}


def test_the_ids_of_the_record_stay() -> None:
    ids = answered_ids()
    for kind, known in released()["ids"].items():
        assert set(known) <= set(ids[kind]), kind
    assert {*RULES} == {*ids["rules"]}


def answered_ids() -> dict[str, dict[str, str]]:
    data = json.loads(typed("schema", "ids").stdout)
    closed_validator("ids").validate(data)
    return {kind: data[kind] for kind in stable_ids()}


def test_the_command_prints_schemas_and_names() -> None:
    assert typed("schema").output.split() == [f"{name}/{document.version}" for name, document in DOCUMENTS.items()]
    assert json.loads(typed("schema", "check").stdout)["$id"] == "check/1"
    assert "failures" in typed("schema", "failure", status=2).output


def test_a_document_says_what_it_is_and_nothing_else(tmp_path: Path) -> None:
    call = unary("aten.celu.default", [1.0])
    run = recorded(tmp_path / "run", [row_of(call, stage=Stage.COMPARE, outcome=Outcome.MISMATCH, signature="values")])
    for words in (("failures", run), ("show", call.case_id, "--run", run), ("tolerance", run), ("summary", run)):
        assert answered(*words, status=(0, 1))["schema"].startswith(f"{words[0]}/")
    typed("dataset", "add", run, "--to", tmp_path / "runs")
    for name, *options in (("list",), ("check",), ("keep", "--last", "1")):
        assert answered("dataset", name, tmp_path / "runs", *options)["schema"] == f"dataset-{name}/1"


def write_new() -> None:
    """Add the schemas and ids that `schemas.json` lacks."""
    data = released() if RELEASED.is_file() else {"ids": {}}
    for name, document in DOCUMENTS.items():
        data[f"{name}/{document.version}"] = json_schema(name)
    data["ids"] = {kind: sorted({*data["ids"].get(kind, ()), *known}) for kind, known in stable_ids().items()}
    RELEASED.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write_new()
