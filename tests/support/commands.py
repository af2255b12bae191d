"""`conformance` as a user types it, in this process, which has PyTorch already."""

from __future__ import annotations

import json
from collections.abc import Container
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from harness.app.cli._group import conformance
from harness.present.json_documents import DOCUMENTS, json_schema


def entered(*words: str | Path) -> Result:
    """Return what a command prints and how it ends."""
    done = CliRunner().invoke(conformance, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def typed(*words: str | Path, status: int | Container[int] = 0) -> Result:
    """Return what a command prints, which must end with this exit status, or with one of these."""
    done = entered(*words)
    allowed = (status,) if isinstance(status, int) else status
    assert done.exit_code in allowed, done.output
    return done


def answered(*words: str | Path, status: int | Container[int] = 0) -> Any:
    """Return what a command prints with ``--json``, which must be as its schema says and have nothing else."""
    data = json.loads(typed(*words, "--json", status=status).stdout)
    name, _, version = data["schema"].partition("/")
    assert int(version) == DOCUMENTS[name].version
    closed_validator(name).validate(data)
    return data


@cache
def closed_validator(name: str) -> Draft202012Validator:
    """Return a validator of a document that takes no field that its schema does not name."""
    schema = json_schema(name)
    for definition in schema["$defs"].values():
        definition["additionalProperties"] = False
    return Draft202012Validator(schema)


def checked(*words: str | Path, status: int = 0) -> dict[str, Any]:
    """Return the answer of `conformance check` on a model; the model survives if `status` is 0."""
    answer: dict[str, Any] = answered("check", *words, status=status)
    assert answer["survives"] is (status == 0)
    return answer
