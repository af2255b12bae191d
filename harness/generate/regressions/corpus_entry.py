"""One kept invocation, and the line of JSON that it is in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation, as_data, of_json

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
        origin: Why it is kept: ``failure`` (of a run), ``minimal`` (shrinking left it), ``captured`` (a model
            makes the call).
        note: Of a person or a tool, for people.
        converter: With what a failure failed; "" for what is no failure, as are the next two.
        backend: On what it failed.
        signature: What the failure is known by, as `Verdict` has it.
        stage: Where it ended; None for what is no failure, as is the next.
        outcome: How it ended.
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
        exported = self.exported.to_data() if self.exported is not None else None
        line = _Line(
            **{name: getattr(self, name) for name in _SAME},
            invocation=self.invocation.to_data(),
            exported=exported,
        )
        said = {name: value for name, value in as_data(line).items() if value}
        return json.dumps(said, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> CorpusEntry:
        """Read what `line` wrote.

        Raises:
            InvalidEntry: it is something else.
        """
        try:
            read = of_json(_Line, line)
            return cls(
                **{name: getattr(read, name) for name in _SAME},
                invocation=Invocation.from_data(read.invocation),
                exported=Invocation.from_data(read.exported) if read.exported else None,
            )
        except (InvalidInvocation, ValueError) as error:
            raise InvalidEntry(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class _Line:
    """An entry in a file; an `Invocation` has a JSON form of its own."""

    origin: Literal["failure", "minimal", "captured"]
    note: str = ""
    converter: str = ""
    backend: str = ""
    stage: Stage | None = None
    outcome: Outcome | None = None
    signature: str = ""
    invocation: Any = None
    exported: Any = None


_SAME = ("origin", "note", "converter", "backend", "stage", "outcome", "signature")
