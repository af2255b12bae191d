"""The files of a corpus: ``DIRECTORY/aten.celu.default.jsonl``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.generate.cases_home import cases_directory
from harness.generate.regressions.corpus_entry import CorpusEntry, InvalidEntry
from harness.record import ResultsError, reason

_SUFFIX = ".jsonl"

#: Below the directory in which the harness is started, like Hypothesis's ``.hypothesis``.
LOCAL = Path(".conformance") / "corpus"


@dataclass(frozen=True)
class CorpusContents:
    """What a file, or the files of one overload, hold.

    Attributes:
        entries: In the order of the lines.
        damaged: One line for a person per line that is no entry.
    """

    entries: tuple[CorpusEntry, ...] = ()
    damaged: tuple[str, ...] = ()


def read_contents(path: Path) -> CorpusContents:
    """The entries of one file, of any overloads; a `ResultsError` says why it cannot be read."""
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
            damaged.append(f"{path}:{number} is no corpus entry and was skipped ({error}); mend or delete it")
    return CorpusContents(tuple(entries), tuple(damaged))


class Corpus:
    """Entries by overload, in one or several directories.

    Args:
        directories: To read, those that exist. The last is the one that is written to, and made for it.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        if not directories:
            raise ValueError("a corpus needs a directory")
        self.directories = tuple(directories)

    @classmethod
    def default(cls, cwd: Path | None = None) -> Corpus:
        """What is committed under ``cases/corpus``, and what runs in `cwd`, by default here, have left."""
        return cls([cases_directory() / "corpus", (cwd or Path.cwd()) / LOCAL])

    @property
    def local(self) -> Path:
        """The directory that is written to."""
        return self.directories[-1]

    def overloads(self) -> tuple[str, ...]:
        """The operators that have a file, sorted."""
        files = (file for directory in self.directories for file in directory.glob(f"*{_SUFFIX}"))
        return tuple(sorted({file.name.removesuffix(_SUFFIX) for file in files}))

    def read(self, overload: str) -> CorpusContents:
        """The entries of one operator; of several with one key, the last. Raises as `read_contents` does."""
        found = [self._contents(directory, overload) for directory in self.directories]
        by_key = {entry.key: entry for contents in found for entry in contents.entries}
        return CorpusContents(tuple(by_key.values()), tuple(line for contents in found for line in contents.damaged))

    def add(self, entry: CorpusEntry) -> None:
        """Keep one entry, in place of those with its key; safe while other processes add."""
        self.update(entry.overload, lambda kept: (*(e for e in kept if e.key != entry.key), entry))

    def update(self, overload: str, change: Callable[[tuple[CorpusEntry, ...]], Sequence[CorpusEntry]]) -> None:
        """Replace the entries of one operator in the directory that is written to.

        Lines that are no entries stay: someone may want to mend them. Others who update wait meanwhile, and
        who reads has either what was or what is.

        Args:
            overload: Dotted name.
            change: From the entries there to those wanted; without any, there is no file.

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
