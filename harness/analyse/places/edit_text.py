"""A changed expression as text: the source with it, and the difference."""

from __future__ import annotations

import ast
import copy
import difflib

from harness.analyse.places.edits import Edit, built_by
from harness.analyse.places.source_code import SourceCode, own_expressions, short_path

#: Expressions that need no brackets wherever they stand.
_CLOSED = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant, ast.List, ast.Tuple, ast.Dict)
#: Letters that stand for a part of the source while the rest is written.
_PART = "__part_{}__"


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
    text = source.file(edit.statement.file).text
    old = list(own_expressions(source.node(edit.statement)))[edit.place]
    assert isinstance(old, ast.expr)
    written = _written(edit.new, text)
    wanted = edit.function(source)
    function = source.file(edit.statement.file).function(edit.statement.function, edit.statement.line)
    for one in (written, f"({written})"):
        changed = _replaced(text, old, one)
        # What is above stays where it is.
        for decorator in built_by(function) if function is not None else ():
            call = ast.get_source_segment(text, decorator)
            assert call is not None
            changed = _replaced(changed, decorator, f"{call[:-1].rstrip().rstrip(',')}, trace_only=True)")
        if wanted is not None and _means(changed, wanted):
            return changed
    raise ValueError(f"the change cannot be written down: {ast.unparse(edit.new)}")


def _written(new: ast.expr, text: str) -> str:
    """An expression; what it takes over from the source is written as it is there."""
    parts: list[str] = []

    class Taken(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            # What a rule made has no place.
            segment = ast.get_source_segment(text, node) if getattr(node, "lineno", None) else None
            if segment is None or not isinstance(node, ast.expr) or isinstance(node, ast.Starred):
                return self.generic_visit(node)
            parts.append(segment if isinstance(node, _CLOSED) else f"({segment})")
            return ast.Name(_PART.format(len(parts) - 1), ast.Load())

    written = ast.unparse(Taken().visit(copy.deepcopy(new)))
    if '"' not in written:
        # As converters write their words.
        written = written.replace("'", '"')
    for number, part in reversed(list(enumerate(parts))):
        written = written.replace(_PART.format(number), part)
    return written


def _replaced(text: str, old: ast.expr, new: str) -> str:
    """The text with another expression in place of one."""
    assert old.end_lineno is not None
    assert old.end_col_offset is not None
    # Columns are counted in bytes.
    lines = text.encode().splitlines(keepends=True)
    before = [*lines[: old.lineno - 1], lines[old.lineno - 1][: old.col_offset]]
    after = [lines[old.end_lineno - 1][old.end_col_offset :], *lines[old.end_lineno :]]
    return b"".join([*before, new.encode(), *after]).decode()


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
