"""Invocations kept from earlier runs, or in a file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.core.invocation import Invocation
from harness.generate.regressions.corpus_store import Corpus, CorpusContents, read_contents
from harness.generate.sources.source import Notice, Request, SourceFinding, grouped


def create(argument: str) -> FromCorpus | FromFile:
    """Create the source of ``corpus`` or ``corpus:FILE``.

    Raises:
        ResultsError: the file cannot be read.
    """
    if not argument:
        return FromCorpus(Corpus.default().directories)
    path = Path(argument).absolute()
    _file(path)
    return FromFile(path)


@dataclass(frozen=True)
class FromCorpus:
    """Replays the kept entries; a run adds its failures to the last directory.

    Attributes:
        directories: See `harness.generate.regressions.Corpus`.
    """

    directories: tuple[Path, ...]
    name = "corpus"

    @property
    def corpus(self) -> Corpus:
        """Return the corpus that it reads."""
        return Corpus(self.directories)

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return self.corpus.overloads()

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        return _finding(self.corpus.read(request.overload), request)


@dataclass(frozen=True)
class FromFile:
    """Replays the entries of one file, and adds nothing to it.

    Attributes:
        path: File of JSON lines in the format of `harness.generate.regressions`, of any operators.
    """

    path: Path
    name = "corpus"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return {entry.overload for entry in _file(self.path).entries}

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        return _finding(_file(self.path), request)


@cache
def _file(path: Path) -> CorpusContents:
    # Read once: a run has hundreds of units, and they are to agree.
    return read_contents(path)


def _finding(contents: CorpusContents, request: Request) -> SourceFinding:
    """Return the entries of the operator, kind of export and dtypes in question, each case once."""
    found: dict[tuple[str, ...], tuple[Invocation, Invocation | None]] = {}
    for entry in contents.entries:
        if (
            entry.overload == request.overload
            and (entry.exported is not None) == request.dynamic
            and (request.dtypes is None or entry.invocation.dtype in request.dtypes)
        ):
            found.setdefault(entry.key[:2], (entry.invocation, entry.exported))
    notices = tuple(Notice("damaged", line) for line in contents.damaged)
    return SourceFinding(grouped(list(found.values())), notices)
