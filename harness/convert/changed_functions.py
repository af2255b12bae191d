"""Find the operators whose conversion functions differ from another revision of a git repository.

Git names the changed lines. A definition (a function, or a name that a module assigns or imports) that has one of them
is changed, and so is every definition that uses a changed one, in the same file or through an import. The decorators of
a changed function name its operators. Functions that are gone are read from the other revision.

An import is followed by the name of its module, without running anything. Operators that PyTorch decomposes into a
changed one are not named.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from harness.convert.conversion_sources import DOTTED_NAME, QUOTED_NAME, SOURCES, found_folder
from harness.convert.function_families import registered_names
from harness.core.git import GitFailure, git_output
from harness.core.overloads import packet

#: ``@@ -12,3 +14,0 @@``: lines of the other revision, and lines now.
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
#: The parts of onnxscript that take part in an export.
_EXPORTING = ("function_libs", "optimizer", "rewriter", "_internal", "ir", "version_converter")


@dataclass(frozen=True)
class ChangedFunction:
    """A conversion function that differs.

    Attributes:
        name: Its name.
        file: Its file, relative to the repository, or absolute.
        operators: The operators that it is registered for, as its decorators write them: ``aten.add.Tensor``,
            or ``aten.celu`` for all overloads.
    """

    name: str
    file: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class ChangedConversions:
    """The conversions that differ from a revision.

    Attributes:
        revision: The revision, as the user named it.
        functions: The functions that are registered for operators.
        operators: The overloads among the known ones that they convert.
        others: Changed Python files of a converter that no operator can be told from, such as an exporter's passes:
            any operator may be affected.
    """

    revision: str
    functions: tuple[ChangedFunction, ...]
    operators: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def affects_all(self) -> bool:
        """Whether any operator may be affected."""
        return bool(self.others)


def changed_conversions(revision: str, rules: Sequence[str | Path], known: Iterable[str]) -> ChangedConversions:
    """Return the conversions that differ between a revision and the working tree.

    Args:
        revision: A revision or branch. The changes are those since the last commit that it has in common with HEAD.
        rules: Files of the user's conversion functions.
        known: The overloads to choose from.

    Raises:
        GitFailure: The working directory is in no git repository, or there is no such revision.
    """
    top = Path(git_output("rev-parse", "--show-toplevel").strip()).resolve()
    base = git_output("merge-base", revision, "HEAD").strip()
    changes = {file: lines for file, lines in _changed_lines(base, top).items() if file.endswith(".py")}
    given = {Path(rule).resolve() for rule in rules}
    homes = _converter_homes()
    files = {path for home in homes for path in home.rglob("*.py")} | _rule_sources(given, top)
    files |= {top / file for file in changes}
    modules = {path: _Module.read(path) for path in sorted(files)}
    places: set[_Place] = set()
    functions: list[ChangedFunction] = []
    others: list[str] = []
    for file, lines in changes.items():
        path = top / file
        before = _Module.parse(path, _text_at(base, file))
        definitions = [*modules[path].at(lines.now), *_gone(before.at(lines.before), modules[path])]
        places.update((path, definition.name) for definition in definitions)
        if _may_convert(path, given, homes):
            functions += [_function(d, path, top) for d in definitions if d.operators]
        elif any(root in path.parents for root in _package_roots()):
            others.append(file)
    for path, name in sorted(_Uses(modules.values()).dependents(places) - places):
        if _may_convert(path, given, homes):
            functions += [_function(d, path, top) for d in modules[path].definitions if d.name == name and d.operators]
    unique = tuple(dict.fromkeys(functions))
    return ChangedConversions(revision, unique, tuple(_overloads(unique, known)), tuple(others))


def _rule_sources(rules: Collection[Path], top: Path) -> set[Path]:
    """Return files of rules with the files of the repository that they import, directly or through others."""
    reached, new = set[Path](), {path for path in rules if path.is_file()}
    while new:
        reached |= new
        sources = [(path, d.source) for path in new for d in _Module.read(path).definitions if d.source is not None]
        new = {
            place
            for path, (module, name) in sources
            for place in _import_places(path, module, name, top)
            if place.is_file()
        } - reached
    return reached


def _import_places(importer: Path, module: str, name: str, top: Path) -> Iterator[Path]:
    """Yield where the module of an import may be: beside the importer, or below the repository's top."""
    level = len(module) - len(module.lstrip("."))
    parts = [part for part in module.split(".") if part]
    bases = [importer.parents[level - 1]] if level else [importer.parent, top, top / "src"]
    for base in bases:
        # What is imported from a package may be a module.
        for place in (base.joinpath(*parts), base.joinpath(*parts, name)):
            yield place.with_suffix(".py")
            yield place / "__init__.py"


def _may_convert(path: Path, given: Collection[Path], homes: Collection[Path]) -> bool:
    return path in given or any(home in path.parents for home in homes)


@dataclass(frozen=True)
class _Definition:
    """A name that a module defines.

    Attributes:
        name: The name.
        first: Its first line, with decorators.
        last: Its last line.
        operators: The operators that its decorators name.
        names: The names that it uses.
        attributes: The attributes that it uses of them, as (name, attribute).
        source: For an import the module, with a dot for each level up, and the name in it; "" for a whole module.
    """

    name: str
    first: int
    last: int
    operators: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    attributes: frozenset[tuple[str, str]] = frozenset()
    source: tuple[str, str] | None = None


@dataclass(frozen=True)
class _Module:
    """The definitions of a Python file."""

    path: Path
    definitions: tuple[_Definition, ...]

    @classmethod
    def read(cls, path: Path) -> _Module:
        """Read a file; one that is gone has no definitions."""
        return _parsed(path, path.stat().st_mtime_ns) if path.is_file() else cls(path, ())

    @classmethod
    def parse(cls, path: Path, text: str) -> _Module:
        """Return the definitions of a text; none if it is not Python."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return cls(path, ())
        return cls(path, tuple(chain.from_iterable(map(_definitions, tree.body))))

    def at(self, lines: Collection[int]) -> list[_Definition]:
        """Return the definitions that have one of the lines."""
        return [d for d in self.definitions if any(d.first <= line <= d.last for line in lines)]


@cache
def _parsed(path: Path, modified: int) -> _Module:
    """Return the definitions of a file as it was modified at a time."""
    return _Module.parse(path, path.read_text(encoding="utf-8", errors="replace"))


def _definitions(node: ast.stmt) -> Iterator[_Definition]:
    first, last = node.lineno, node.end_lineno or node.lineno
    inner = list(ast.walk(node))
    names = frozenset(n.id for n in inner if isinstance(n, ast.Name))
    attributes = frozenset(
        (n.value.id, n.attr) for n in inner if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    )
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        first = min((decorator.lineno for decorator in node.decorator_list), default=first)
        decorators = map(ast.unparse, node.decorator_list)
        operators = tuple(dict.fromkeys(chain.from_iterable(map(_operators, decorators))))
        yield _Definition(node.name, first, last, operators, names, attributes)
    elif isinstance(node, ast.Import):
        for alias in node.names:
            # `import a.b` defines `a`, and is used as `a.b.name`, which is not followed.
            yield _Definition(alias.asname or alias.name.partition(".")[0], first, last, source=(alias.name, ""))
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            yield _Definition(alias.asname or alias.name, first, last, source=(module, alias.name))
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for name in (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)):
            yield _Definition(name, first, last, (), names - {name}, attributes)
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for part in ("body", "handlers", "orelse", "finalbody"):
            for inner_node in getattr(node, part, ()):
                body = inner_node.body if isinstance(inner_node, ast.ExceptHandler) else [inner_node]
                yield from chain.from_iterable(map(_definitions, body))


def _operators(decorator: str) -> Iterator[str]:
    """Yield the operators that a decorator names; none for a decorator that registers nothing."""
    for namespace, name, overload in [*QUOTED_NAME.findall(decorator), *DOTTED_NAME.findall(decorator)]:
        yield f"{namespace}.{name}" + (f".{overload}" if overload else "")


def _gone(before: Sequence[_Definition], now: _Module) -> list[_Definition]:
    """Return definitions of the other revision that are there no longer, or register less than they did."""
    left = {d.name: set(d.operators) for d in now.definitions}
    return [d for d in before if d.name not in left or not left[d.name].issuperset(d.operators)]


#: A definition: the file, and the name.
_Place: TypeAlias = "tuple[Path, str]"


class _Uses:
    """The uses of definitions in some modules."""

    def __init__(self, modules: Iterable[_Module]) -> None:
        self._files: defaultdict[str, list[Path]] = defaultdict(list)
        modules = list(modules)
        for module in modules:
            name = module.path.parent.name if module.path.stem == "__init__" else module.path.stem
            self._files[name].append(module.path)
        self.places = {
            (module.path, definition.name): frozenset(self._used(module, definition))
            for module in modules
            for definition in module.definitions
        }

    def _used(self, module: _Module, definition: _Definition) -> Iterator[_Place]:
        imported = {d.name: d.source for d in module.definitions if d.source is not None}
        if definition.source is not None:
            source, name = definition.source
            yield from ((path, name) for path in self._paths(module.path, source))
        yield from ((module.path, name) for name in definition.names)
        for alias, attribute in definition.attributes:
            if alias in imported:
                source, name = imported[alias]
                # What is imported from a package may be a module.
                dotted = f"{source}{'' if source.endswith('.') or not name else '.'}{name}"
                yield from ((path, attribute) for path in self._paths(module.path, dotted))

    def _paths(self, importer: Path, module: str) -> Iterator[Path]:
        """Yield the files that a module's name may mean."""
        parts = [part for part in module.split(".") if part]
        level = len(module) - len(module.lstrip("."))
        if not parts:
            return
        for path in self._files[parts[-1]]:
            folders = path.parent.parts[: -1 if path.stem == "__init__" else None]
            if level:
                base = importer.parents[level - 1].joinpath(*parts[:-1])
                if Path(*folders) == base:
                    yield path
            elif not parts[:-1] or list(folders[-len(parts[:-1]) :]) == parts[:-1]:
                yield path

    def dependents(self, changed: Collection[_Place]) -> set[_Place]:
        """Return the places that use changed ones, directly or through others, with these."""
        reached, size = set(changed), -1
        while len(reached) > size:
            size = len(reached)
            reached |= {place for place, used in self.places.items() if place not in reached and used & reached}
        return reached


def _function(definition: _Definition, path: Path, top: Path) -> ChangedFunction:
    file = str(path.relative_to(top)) if top in path.parents else str(path)
    return ChangedFunction(definition.name, file, definition.operators)


def _overloads(functions: Iterable[ChangedFunction], known: Iterable[str]) -> Iterator[str]:
    changed = {name for function in functions for name in function.operators}
    # A name without an overload means all of them.
    yield from (name for name in sorted(known) if changed & {*registered_names(name), packet(name)})


@dataclass
class _Lines:
    """Changed lines of a file: in the other revision, and now."""

    before: set[int] = field(default_factory=set)
    now: set[int] = field(default_factory=set)


def _changed_lines(base: str, top: Path) -> Mapping[str, _Lines]:
    """Return file → changed lines, for files that differ from a commit; all lines of files that git does not know."""
    changed: dict[str, _Lines] = {}
    before, file = "", ""
    for line in git_output(
        "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", base, "--"
    ).splitlines():
        if line.startswith("--- "):
            before = line.removeprefix("--- ").removeprefix("a/")
        elif line.startswith("+++ "):
            file = line.removeprefix("+++ ").removeprefix("b/")
            file = before if file == "/dev/null" else file
            changed[file] = _Lines()
        elif hunk := _HUNK.match(line):
            old, removed, new, added = (int(part) if part else 1 for part in hunk.groups())
            changed[file].before.update(range(old, old + removed))
            # Of lines that are only removed, the definition around the place has changed.
            changed[file].now.update(range(new, new + added) if added else (new,) if removed else ())
    for name in git_output("ls-files", "--others", "--exclude-standard", "--full-name", ":/*.py").splitlines():
        text = (top / name).read_text(encoding="utf-8", errors="replace")
        changed[name] = _Lines(now=set(range(1, text.count("\n") + 2)))
    return changed


def _text_at(base: str, file: str) -> str:
    """Return a file's text in a commit; "" if it is not there."""
    try:
        return git_output("show", f"{base}:{file}")
    except GitFailure:
        return ""


def _converter_homes() -> list[Path]:
    """Return the folders of conversion functions of the installed exporters."""
    folders = [found_folder(folder) for sources in SOURCES.values() for _, folder in sources]
    return [folder.resolve() for folder in folders if folder is not None]


def _package_roots() -> list[Path]:
    """Return the folders of the installed exporters."""
    folders = map(found_folder, ("torch/onnx", *(f"onnxscript/{part}" for part in _EXPORTING)))
    return [folder.resolve() for folder in folders if folder is not None]
