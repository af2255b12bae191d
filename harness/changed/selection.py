"""The operators and converters that a change since a git revision concerns."""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import cases
from harness import converters
from harness.changed.definitions import Source
from harness.changed.git import Repository, RevisionProblem
from harness.rules.rule import Rule

_CONVERTERS = Path(converters.__file__).parent
_CASES = Path(cases.__file__).parent


@dataclass(frozen=True)
class Changed:
    """What is to be run again.

    Attributes:
        overloads: Of operator cases that changed → the file that did.
        rules: Converter → overloads whose rule changed → the file.
        converters: Whose code changed → the file.
    """

    overloads: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    converters: Mapping[str, str] = field(default_factory=dict)

    def takes(self, overload: str, converter: str) -> bool:
        """Whether an operator is to be run through a converter."""
        return (
            overload in self.overloads
            or converter in self.converters
            or overload in self.rules.get(converter, {})
        )

    def lines(self, revision: str) -> list[str]:
        """What changed, for a person."""
        found = [
            f"changed since {revision}: {file}, so every operator through {name}"
            for name, file in self.converters.items()
        ]
        by_file: dict[tuple[str, str], list[str]] = {}
        for overload, file in self.overloads.items():
            by_file.setdefault((file, ""), []).append(overload)
        for converter, rules in self.rules.items():
            for overload, file in rules.items():
                by_file.setdefault((file, f"{converter} rules of "), []).append(overload)
        for (file, what), overloads in by_file.items():
            found.append(f"changed since {revision}: {file}, so {what}{_listed(overloads)}")
        return found


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more


def changed_since(revision: str, rules: Sequence[Rule]) -> Changed:
    """Compare the work tree with a revision.

    Args:
        revision: Of the repository that each file lies in.
        rules: Those that are tried.

    Raises:
        RevisionProblem: the harness, or a file of rules, is in no git repository, or that has no such
            revision. Rules alone may be in one: an installed harness does not change.
    """
    by_converter: dict[str, dict[str, str]] = {}
    for rule in rules:
        file, line = Path(rule.declared[0]), rule.declared[1]
        at = Repository.of(file.parent, revision)
        if _differs(at, file, line, rule.overload):
            by_converter.setdefault(rule.converter, {})[rule.overload] = file.name
    try:
        at = Repository.of(_CASES, revision)
    except RevisionProblem:
        if not rules:
            raise
        return Changed(rules=by_converter)
    return Changed(_cases(at), by_converter, _converters(at))


def _cases(at: Repository) -> dict[str, str]:
    """Overloads whose operator case changed, and the file that did."""
    found = {}
    further = _further_dtypes(at)
    for overload, case in cases.load().items():
        file, line = Path(case.declared[0]), case.declared[1]
        if file.name and _differs(at, file, line, overload):
            found[overload] = _shown(at, file)
        elif overload in further:
            found[overload] = _shown(at, cases.FURTHER_DTYPES)
    return found


def _differs(at: Repository, file: Path, line: int, overload: str) -> bool:
    """Whether the definition at a place is new, or another, since the revision."""
    old, new = _versions(at, file)
    if old is None or new is None:
        # A file that is new, or was no Python, is compared as a whole.
        return at.changed(file)
    return all(new.fingerprint(line, name) not in old.fingerprints for name in new.names(line, overload))


@cache
def _versions(at: Repository, file: Path) -> tuple[Source | None, Source | None]:
    return _source(file, at.before), _source(file, lambda path: path.read_text(encoding="utf-8"))


def _source(file: Path, read: Callable[[Path], str | None]) -> Source | None:
    """One version of a file, and of the modules beside it that it imports from."""

    def beside(module: str) -> Source | None:
        sibling = file.with_name(f"{module.rpartition('.')[2]}.py")
        inside = module.rpartition(".")[0] in ("", _package(file))
        return _source(sibling, read) if inside and sibling != file and sibling.is_file() else None

    text = read(file)
    try:
        return None if text is None else Source(text, beside)
    except SyntaxError:
        return None


def _package(file: Path) -> str:
    return file.parent.name if (file.parent / "__init__.py").is_file() else ""


def _further_dtypes(at: Repository) -> set[str]:
    """Overloads whose entries in the table of further dtypes changed."""
    before = at.before(cases.FURTHER_DTYPES)
    old = _entries(before) if before is not None else {}
    new = _entries(cases.FURTHER_DTYPES.read_text(encoding="utf-8"))
    return {overload for overload in old.keys() | new.keys() if old.get(overload) != new.get(overload)}


def _entries(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, entries in tomllib.loads(text).items():
        for entry in entries:
            words = f"{kind}: {[value for key, value in sorted(entry.items()) if key != 'overloads']}"
            for overload in entry["overloads"]:
                found.setdefault(overload, []).append(words)
    return {overload: sorted(words) for overload, words in found.items()}


def _converters(at: Repository) -> dict[str, str]:
    """Converters whose file changed, or one in this package that it imports, and that file."""
    found = {}
    for entry in converters.entries():
        for file in _files_of(entry.create):
            if file.is_relative_to(at.root) and at.changed(file):
                found[entry.name] = _shown(at, file)
                break
    return found


def _files_of(create: Any) -> list[Path]:
    """The file that a converter is written in, then those of the converters' package that it imports."""
    try:
        own = Path(inspect.getsourcefile(inspect.unwrap(create)) or "")
    except TypeError:
        return []
    files, waiting = [], [own.resolve()]
    while waiting:
        file = waiting.pop(0)
        if file in files or not file.is_file():
            continue
        files.append(file)
        waiting += _imported(file)
    return files


def _imported(file: Path) -> Iterable[Path]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harness.converters"):
            if node.module == "harness.converters":
                yield from (_CONVERTERS / f"{alias.name}.py" for alias in node.names)
            else:
                yield _CONVERTERS / f"{node.module.rpartition('.')[2]}.py"


def _shown(at: Repository, file: Path) -> str:
    return file.resolve().relative_to(at.root.resolve()).as_posix()
