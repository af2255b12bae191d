"""A changed function in place of a converter's, for a while and in this process alone."""

from __future__ import annotations
import __future__

import ast
import contextlib
import gc
from collections.abc import Collection, Iterator
from types import CodeType, FunctionType
from typing import TypeAlias

from harness.convert import traced_functions


class CannotApply(Exception):
    """The change cannot be put in place of what runs."""


#: A function's file, first line and name → the functions that have its code.
Holders: TypeAlias = "dict[tuple[str, int, str], list[FunctionType]]"


def holders(codes: Collection[CodeType]) -> Holders:
    """The functions that have some codes."""
    # What a process had before it was forked is hidden from a search.
    gc.unfreeze()
    found: Holders = {}
    for thing in gc.get_referrers(*codes):
        if isinstance(thing, FunctionType) and thing.__code__ in codes:
            code = thing.__code__
            found.setdefault((code.co_filename, code.co_firstlineno, code.co_name), []).append(thing)
    return found


@contextlib.contextmanager
def applied_edit(file: str, changed: ast.FunctionDef, known: Holders) -> Iterator[None]:
    """Run `changed` wherever its original is called.

    Whoever holds the function, a registry or a kept table, gets the change, since its code is replaced. One
    that onnxscript has built from its source is run instead.

    Args:
        file: That the function is in.
        changed: It, with the lines of its file.
        known: Functions that run, its original among them.

    Raises:
        CannotApply: it is none of them, or does not compile.
    """
    module = ast.fix_missing_locations(ast.Module([changed], []))
    # Annotations name what modules import for a type checker only.
    flags = __future__.annotations.compiler_flag
    try:
        compiled = compile(module, file, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise CannotApply(str(error)) from None
    functions = [
        (function, code)
        for code in _codes_of(compiled)
        for function in known.get((file, code.co_firstlineno, code.co_name), [])
        if function.__code__.co_freevars == code.co_freevars
    ]
    if not functions:
        raise CannotApply(f"{changed.name} is not a function that is kept")
    before = [(function, function.__code__) for function, _ in functions]
    for function, code in functions:
        function.__code__ = code
    try:
        with traced_functions(lambda function: any(function is one for one, _ in functions)):
            yield
    finally:
        for function, code in before:
            function.__code__ = code


def _codes_of(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions that some code defines, and of those within them: a function that makes
    another one has done so long ago, and it is the other one that runs."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            # What has no name is made anew whenever its function runs.
            if not inner.co_name.startswith("<"):
                yield inner
            yield from _codes_of(inner)
