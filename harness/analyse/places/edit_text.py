"""An edit as text: the source with it, and the difference."""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Sequence
from typing import TypeAlias

from harness.analyse.places.edit import Edit, Spot, built_by, first_statement, innermost, spot_of
from harness.analyse.places.source_code import SourceCode, short_path

#: Expressions that need no brackets wherever they stand.
_CLOSED = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant, ast.List, ast.Tuple, ast.Dict)
#: Letters that stand for a part of the source while the rest is written.
_PART = "__part_{}__"
#: Where expressions are, and what takes their place.
_Changes: TypeAlias = Sequence[tuple[Spot, ast.expr]]


def edit_difference(edit: Edit, source: SourceCode) -> str:
    """What an edit changes, as ``diff -u`` says it; the file's path begins with its package.

    Args:
        source: With the file as it is on disk.
    """
    file = source.file(edit.statement.file)
    name = short_path(edit.statement.file)
    before = file.text.splitlines(keepends=True)
    after = changed_text(edit, source).splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))


def changed_text(edit: Edit, source: SourceCode) -> str:
    """The file with the edit; everything else in it stays as it is written."""
    file = source.file(edit.statement.file)
    function = file.function(edit.statement.function, edit.statement.line)
    wanted = edit.function(source)
    changes = []
    for change in edit.changes:
        spot = spot_of(change.old(source))
        assert spot is not None
        changes.append((spot, change.new))
    for brackets in (False, True):
        text = _Writer(file.text, brackets=brackets).changed(edit, changes, function)
        if wanted is not None and _means(text, wanted):
            return text
    raise ValueError(f"the change cannot be written down: {edit.rule}")


class _Writer:
    """Writes a file with changes.

    Args:
        brackets: Whether all that takes an expression's place is put in brackets.
    """

    def __init__(self, text: str, *, brackets: bool) -> None:
        self._text = text.encode()
        self._brackets = brackets
        # Columns are counted in bytes.
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def changed(self, edit: Edit, changes: _Changes, function: ast.FunctionDef | None) -> str:
        """The whole file with an edit of a function."""
        pieces = self._outermost(0, len(self._text), changes)
        for decorator in built_by(function) if function is not None else ():
            start, end = self._span(spot_of(decorator))
            call = self._text[start:end].decode()
            pieces.append((start, end, f"{call[:-1].rstrip().rstrip(',')}, trace_only=True)"))
        if function is not None and edit.begin:
            own = innermost(function, edit.statement.line)
            first = own.body[first_statement(own)]
            start = self._starts[first.lineno - 1] + first.col_offset
            indent = " " * first.col_offset
            written = "".join(self._indented(statement, indent) for statement in edit.begin)
            pieces.append((start, start, written))
        return self._joined(0, len(self._text), pieces)

    def _indented(self, statement: ast.stmt, indent: str) -> str:
        placed = ast.fix_missing_locations(copy.deepcopy(statement))
        return _quoted(ast.unparse(placed)).replace("\n", f"\n{indent}") + f"\n{indent}"

    def _outermost(self, start: int, end: int, changes: _Changes) -> list[tuple[int, int, str]]:
        """What is to be written in place of parts of the text that are not within each other."""
        spans = [(*self._span(spot), place) for place, (spot, _) in enumerate(changes)]
        inside = [one for one in spans if start <= one[0] and one[1] <= end]
        pieces: list[tuple[int, int, str]] = []
        for first, last, place in sorted(inside, key=lambda one: (one[0], -one[1], one[2])):
            if not pieces or first >= pieces[-1][1]:
                rest = [*changes[:place], *changes[place + 1 :]]
                pieces.append((first, last, self._written(changes[place][1], rest)))
        return pieces

    def _joined(self, start: int, end: int, pieces: Sequence[tuple[int, int, str]]) -> str:
        found, at = [], start
        for first, last, text in sorted(pieces):
            found += [self._text[at:first], text.encode()]
            at = last
        return b"".join([*found, self._text[at:end]]).decode()

    def _written(self, new: ast.expr, changes: _Changes) -> str:
        """An expression; what it takes over from the source is written as it is there, with the changes."""
        parts: list[str] = []
        whole = self

        class Taken(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> ast.AST:
                # What a rule made has no place.
                spot = spot_of(node)
                if spot is None or isinstance(node, ast.Starred):
                    return self.generic_visit(node)
                start, end = whole._span(spot)
                segment = whole._joined(start, end, whole._outermost(start, end, changes))
                own = next((new for where, new in changes if where == spot), node)
                parts.append(segment if isinstance(own, _CLOSED) else f"({segment})")
                return ast.Name(_PART.format(len(parts) - 1), ast.Load())

        written = _quoted(ast.unparse(Taken().visit(copy.deepcopy(new))))
        for number, part in reversed(list(enumerate(parts))):
            written = written.replace(_PART.format(number), part)
        return f"({written})" if self._brackets else written

    def _span(self, spot: Spot | None) -> tuple[int, int]:
        assert spot is not None
        _, first, column, last, end = spot
        return self._starts[first - 1] + column, self._starts[last - 1] + end


def _quoted(written: str) -> str:
    """As converters write their words."""
    return written if '"' in written else written.replace("'", '"')


def _means(text: str, wanted: ast.FunctionDef) -> bool:
    """Whether a file has a function."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.FunctionDef) and node.name == wanted.name and ast.dump(node) == ast.dump(wanted)
        for node in tree.body
    )
