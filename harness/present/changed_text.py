"""The conversion functions that differ from a revision, in words."""

from __future__ import annotations

from collections.abc import Iterator

from harness.convert.changed_functions import ChangedConversions
from harness.core.text import count, listed

#: Names of a line.
_SHOWN = 6


def changed_lines(changed: ChangedConversions) -> Iterator[str]:
    """Yield which conversion functions differ, and which operators are run therefore."""
    since = f"changed since {changed.revision}"
    if changed.affects_all:
        yield f"{since}: {listed(changed.others, _SHOWN)}, which may affect every operator: all are run"
        return
    if not changed.operators:
        idle = f", and {count(len(changed.functions), 'function')} of operators without cases" * bool(changed.functions)
        yield f"{since}: no conversion function of an operator{idle}"
        return
    functions = [f"{function.name} in {function.file}" for function in changed.functions]
    yield f"{since}: {count(len(functions), 'conversion function')}: {listed(functions, _SHOWN)}"
    yield f"{count(len(changed.operators), 'operator')}: {listed(changed.operators, _SHOWN)}"
