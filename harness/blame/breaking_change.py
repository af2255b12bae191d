"""Find the change of an optimiser after which a model is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

from harness.convert.change import Change
from harness.run.artefact import AnyModel


def find_breaking_change(
    build: Callable[[int | None, list[Change]], AnyModel],
    is_valid: Callable[[AnyModel], bool],
    is_right: Callable[[AnyModel], bool],
) -> str | None:
    """Return the name of the change after which a model is wrong, by bisection; None if the optimiser changes nothing.

    The model is right before the first change and wrong after the last. If the optimiser stops on its way the model may
    be invalid, which says nothing: such numbers of changes are passed over, as by ``git bisect skip``.

    Args:
        build: Returns the model after a number of changes, None for all, and adds the changes to the list.
        is_valid: Tells whether a model may be judged.
        is_right: Tells whether a valid model is right.
    """
    changes: list[Change] = []

    @cache
    def is_right_after(limit: int) -> bool | None:
        try:
            model = build(limit, [])
            return is_right(model) if is_valid(model) else None
        except Exception:
            return None

    with suppress(Exception):
        build(None, changes)
    before, after = 0, len(changes)
    while after - before > 1:
        middle = (before + after) // 2
        between = sorted(range(before + 1, after), key=lambda limit: abs(limit - middle))
        limit = next((limit for limit in between if is_right_after(limit) is not None), None)
        if limit is None:
            break
        before, after = (limit, after) if is_right_after(limit) else (before, limit)
    return changes[before].name if changes else None
