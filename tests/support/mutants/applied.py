"""Changes functions where they are: whoever holds one, a registry or a kept table, gets the change.

A function that is built at import (onnxscript compiles some) keeps what it was built from; no mutation of it
counts as reached.
"""

from __future__ import annotations
import __future__

import contextlib
import gc
import importlib
from collections.abc import Iterator
from functools import cache, lru_cache
from types import CodeType, FunctionType

from mutants.mutation import MODULES, Mutation, mutated, source_file

#: A function's file, first line and qualified name.
_Home = tuple[str, int, str]


@contextlib.contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """The mutation in this process."""
    with _replaced(mutation.module, _changed(mutation)):
        yield


@lru_cache(maxsize=4)
def _changed(mutation: Mutation) -> CodeType:
    # Annotations name what modules import for a type checker only.
    flags = __future__.annotations.compiler_flag
    file = str(source_file(mutation.module))
    code: CodeType = compile(mutated(mutation), file, "exec", flags=flags, dont_inherit=True)
    return code


@contextlib.contextmanager
def _replaced(module: str, changed: CodeType) -> Iterator[None]:
    importlib.import_module(module)
    file = str(source_file(module))
    functions = _functions()
    before: list[tuple[FunctionType, CodeType]] = []
    try:
        for code in _codes(changed):
            for function in functions.get((file, code.co_firstlineno, code.co_qualname), ()):
                # A variable of an enclosing function that is not used any more cannot be left out.
                if function.__code__.co_freevars == code.co_freevars:
                    before.append((function, function.__code__))
                    function.__code__ = code
        yield
    finally:
        for function, code in reversed(before):
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


@cache
def _functions() -> dict[_Home, list[FunctionType]]:
    """The functions of all conversion modules, wherever they are kept; found once, before any is replaced."""
    files = set()
    for modules in MODULES.values():
        for module in modules:
            importlib.import_module(module)
            files.add(str(source_file(module)))
    # What a process had before it was forked is hidden from a search.
    gc.unfreeze()
    found: dict[_Home, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename in files:
            code = thing.__code__
            found.setdefault((code.co_filename, code.co_firstlineno, code.co_qualname), []).append(thing)
    gc.freeze()
    return found
