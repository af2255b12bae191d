"""A corpus of kept invocations: one file per operator, ``DIRECTORY/aten.celu.default.jsonl``, one line per entry."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.compare.verdict import Outcome, Stage
from harness.core.documents import parse_json, to_data
from harness.core.invocation import InvalidInvocation, Invocation
from harness.generate.cases_home import cases_directory
from harness.record.layout import ResultsError, reason, replacing

#: Two entries with the same key are one: case id, exported case id, converter, backend.
CorpusKey: TypeAlias = tuple[str, str, str, str]


class InvalidEntry(ValueError):
    """A line that is not an entry; the message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """An invocation worth running again.

    Attributes:
        invocation: The invocation to run.
        exported: The invocation to export, if a dynamic export is run at other sizes; None for a static one.
        origin: The reason for keeping it: ``failure`` (of a run), ``minimal`` (shrinking left it), ``captured`` (a
            model makes the call).
        note: A remark by a person or a tool.
        converter: The converter with which a failure failed; "" if the entry is not a failure, as are the next two.
        backend: The backend on which it failed.
        signature: The failure's signature, as in `Verdict`.
        stage: The stage at which it ended; None if the entry is not a failure, as is the next.
        outcome: The outcome of the failure.
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
        """Return the key that distinguishes an entry from others."""
        exported = self.exported.case_id if self.exported is not None else ""
        return self.invocation.case_id, exported, self.converter, self.backend

    @property
    def line(self) -> str:
        """The entry as one line of JSON without its end; empty fields are left out."""
        exported = self.exported.to_data() if self.exported is not None else None
        line = _Line(
            **{name: getattr(self, name) for name in _SAME},
            invocation=self.invocation.to_data(),
            exported=exported,
        )
        data = {name: value for name, value in to_data(line).items() if value}
        return json.dumps(data, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> CorpusEntry:
        """Parse a line that `line` wrote.

        Raises:
            InvalidEntry: the line is anything else.
        """
        try:
            read = parse_json(_Line, line)
            return cls(
                **{name: getattr(read, name) for name in _SAME},
                invocation=Invocation.from_data(read.invocation),
                exported=Invocation.from_data(read.exported) if read.exported else None,
            )
        except (InvalidInvocation, ValueError) as error:
            raise InvalidEntry(str(error)) from None


def failure_entry(row: Mapping[str, Any]) -> CorpusEntry:
    """Return the entry of a failed case, given its row in the record."""
    exported = row["exported_invocation"]
    return CorpusEntry(
        invocation=Invocation.from_json(row["invocation"]),
        exported=Invocation.from_json(exported) if exported else None,
        origin="failure",
        converter=row["converter"],
        backend=row["backend"],
        stage=Stage(row["stage"]),
        outcome=Outcome(row["outcome"]),
        signature=row["signature"],
    )


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


_SUFFIX = ".jsonl"

#: Below the directory in which the harness is started, like Hypothesis's ``.hypothesis``.
LOCAL = Path(".conformance") / "corpus"


@dataclass(frozen=True)
class CorpusContents:
    """The entries of one file, or of all files of one overload.

    Attributes:
        entries: Entries in the order of the lines.
        damaged: A message for each line that is not an entry.
    """

    entries: tuple[CorpusEntry, ...] = ()
    damaged: tuple[str, ...] = ()


def read_contents(path: Path) -> CorpusContents:
    """Return the entries of one file, of any overloads; a `ResultsError` says why it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read the corpus file {path}: {reason(error)}") from None
    entries, damaged = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(CorpusEntry.from_line(line))
        except InvalidEntry as error:
            damaged.append(f"{path}:{number} is not a corpus entry and was skipped ({error}); mend or delete it")
    return CorpusContents(tuple(entries), tuple(damaged))


def write_entries(path: Path, entries: Iterable[CorpusEntry]) -> None:
    """Write a corpus file for ``--source corpus:FILE``.

    Raises:
        ResultsError: The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {reason(error)}") from None
    with replacing(path) as temporary:
        temporary.write_text("".join(f"{entry.line}\n" for entry in entries), encoding="utf-8")


class Corpus:
    """Entries by overload, in one or several directories.

    Args:
        directories: Directories to read if they exist. Updates create the last one and write to it.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        if not directories:
            raise ValueError("a corpus needs a directory")
        self.directories = tuple(directories)

    @classmethod
    def default(cls, cwd: Path | None = None) -> Corpus:
        """Return the committed ``cases/corpus`` with the corpus of the runs in `cwd` (the working directory)."""
        return cls([cases_directory() / "corpus", (cwd or Path.cwd()) / LOCAL])

    @property
    def local(self) -> Path:
        """The directory that is written to."""
        return self.directories[-1]

    def overloads(self) -> tuple[str, ...]:
        """Return the operators that have a file, sorted."""
        files = (file for directory in self.directories for file in directory.glob(f"*{_SUFFIX}"))
        return tuple(sorted({file.name.removesuffix(_SUFFIX) for file in files}))

    def read(self, overload: str) -> CorpusContents:
        """Return the entries of one operator, and of several with one key the last. Raises as `read_contents` does."""
        found = [self._contents(directory, overload) for directory in self.directories]
        by_key = {entry.key: entry for contents in found for entry in contents.entries}
        return CorpusContents(tuple(by_key.values()), tuple(line for contents in found for line in contents.damaged))

    def add(self, entry: CorpusEntry) -> None:
        """Keep one entry, in place of those with its key; safe while other processes add."""
        self.update(entry.overload, lambda kept: (*(e for e in kept if e.key != entry.key), entry))

    def update(self, overload: str, change: Callable[[tuple[CorpusEntry, ...]], Sequence[CorpusEntry]]) -> None:
        """Replace the entries of one operator in the directory that is written to.

        Lines that are not entries stay: someone may want to mend them. An update locks out other updates, and a
        reader sees the file either before or after it.

        Args:
            overload: Dotted name.
            change: Maps the present entries to the wanted ones; if it returns none, the file is removed.

        Raises:
            ResultsError: the file cannot be read or written.
        """
        path = self.local / f"{overload}{_SUFFIX}"
        with self._locked():
            before = self._contents(self.local, overload).entries
            after = tuple(change(before))
            if after == before:
                return
            lines = [entry.line for entry in after] + _damaged_lines(path)
            try:
                if not lines:
                    path.unlink(missing_ok=True)
                    return
                temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
                temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                temporary.replace(path)
            except OSError as error:
                raise ResultsError(f"cannot write the corpus file {path}: {reason(error)}") from None

    def _contents(self, directory: Path, overload: str) -> CorpusContents:
        path = directory / f"{overload}{_SUFFIX}"
        return read_contents(path) if path.exists() else CorpusContents()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.local.mkdir(parents=True, exist_ok=True)
            lock = (self.local / ".lock").open("w")
        except OSError as error:
            raise ResultsError(f"cannot write the corpus {self.local}: {reason(error)}") from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _damaged_lines(path: Path) -> list[str]:
    damaged = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.strip():
            try:
                CorpusEntry.from_line(line)
            except InvalidEntry:
                damaged.append(line)
    return damaged
