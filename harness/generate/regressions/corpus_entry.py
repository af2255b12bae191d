"""One kept invocation, and the line of JSON that it is in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation

#: Why an invocation is kept: a run found that it fails, shrinking left it, a model makes the call.
ORIGINS = ("failure", "minimal", "captured")

#: Two entries with the same key are one: case id, exported case id, converter, backend.
CorpusKey: TypeAlias = tuple[str, str, str, str]


class InvalidEntry(ValueError):
    """A line that is no entry; the message says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """An invocation worth running again.

    Attributes:
        invocation: What to run.
        exported: What to export, where a dynamic export is to be run at other sizes; None for a static one.
        origin: One of `ORIGINS`.
        note: Of a person or a tool, for people.
        converter: For a failure: with what it failed; "" otherwise, as for the next two.
        backend: Likewise.
        signature: How it failed, as `Verdict` has it.
        stage: Likewise; None otherwise.
        outcome: Likewise.
    """

    invocation: Invocation
    exported: Invocation | None = None
    origin: str = "captured"
    note: str = ""
    converter: str = ""
    backend: str = ""
    stage: Stage | None = None
    outcome: Outcome | None = None
    signature: str = ""

    @property
    def overload(self) -> str:
        """The operator's dotted name."""
        return self.invocation.overload

    @property
    def key(self) -> CorpusKey:
        """What makes an entry another one."""
        exported = self.exported.case_id if self.exported is not None else ""
        return self.invocation.case_id, exported, self.converter, self.backend

    @property
    def line(self) -> str:
        """The entry as one line of JSON without its end; what says nothing is left out."""
        data: dict[str, Any] = {
            "origin": self.origin,
            "note": self.note,
            "converter": self.converter,
            "backend": self.backend,
            "stage": self.stage and str(self.stage),
            "outcome": self.outcome and str(self.outcome),
            "signature": self.signature,
            "invocation": self.invocation.to_data(),
            "exported": self.exported and self.exported.to_data(),
        }
        said = {name: value for name, value in data.items() if value}
        return json.dumps(said, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> CorpusEntry:
        """Read what `line` wrote.

        Raises:
            InvalidEntry: it is something else.
        """
        try:
            data = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidEntry(f"not JSON: {error}") from None
        if not isinstance(data, Mapping):
            raise InvalidEntry("not a JSON object")
        if data.get("origin") not in ORIGINS:
            raise InvalidEntry(f"`origin` is {data.get('origin')!r}, not one of {', '.join(ORIGINS)}")
        try:
            return cls(
                invocation=Invocation.from_data(data.get("invocation")),
                exported=Invocation.from_data(data["exported"]) if data.get("exported") else None,
                origin=data["origin"],
                stage=Stage(data["stage"]) if data.get("stage") else None,
                outcome=Outcome(data["outcome"]) if data.get("outcome") else None,
                **{name: str(data.get(name) or "") for name in ("note", "converter", "backend", "signature")},
            )
        except (InvalidInvocation, ValueError) as error:
            raise InvalidEntry(str(error)) from None
