"""Choose the operators of ``--changed-since``."""

from __future__ import annotations

from typing import Any

from harness.convert.changed_functions import ChangedConversions, changed_conversions
from harness.core.git import GitFailure
from harness.generate.case_library import load_cases
from harness.plan.options import UsageProblem

#: Options that select cases themselves.
_OTHERS = ("op", "programs", "pattern", "onnx", "models", "model", "replay", "coverage", "generator_report")


def choose(given: Any) -> ChangedConversions:
    """Make ``--op`` of the operators whose conversion functions differ; of none if any operator may be affected.

    Raises:
        UsageProblem: Another option selects the cases, or git does not know the revision.
    """
    for name in _OTHERS:
        if getattr(given, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageProblem(f"--changed-since and {option} both select the cases: give one of them")
    try:
        changed = changed_conversions(given.changed_since, given.rules, load_cases())
    except GitFailure as error:
        raise UsageProblem(f"--changed-since {given.changed_since}: {error}") from None
    given.op = [] if changed.affects_all else list(changed.operators)
    return changed
