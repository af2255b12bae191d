"""The overloads that are to have an operator case: computed, never listed by hand.

An operator is in the set if any source names one of its overloads, and it is in with all its functional
overloads: a model that calls ``stft`` calls whichever overload fits its arguments.
"""

from __future__ import annotations

from functools import cache

from harness.analyse.operator_coverage import recorded_lists as recorded, sources
from harness.analyse.operator_coverage.functional import functional_overloads


@cache
def named_by() -> dict[str, frozenset[str]]:
    """Source → the functional overloads that it names.

    Raises:
        harness.analyse.operator_coverage.sources.SourceMissing: a source cannot be asked.
    """
    return {
        "core": sources.core(),
        "torchlib": sources.torchlib(),
        "torchscript": sources.torchscript(),
        "exported": recorded.read("exported"),
        "opinfo": recorded.read("opinfo"),
    }


@cache
def target() -> frozenset[str]:
    """Every functional overload of every operator that a source names.

    Raises:
        harness.analyse.operator_coverage.sources.SourceMissing: a source cannot be asked.
    """
    packets = {name.rpartition(".")[0] for named in named_by().values() for name in named}
    return frozenset(name for name in functional_overloads() if name.rpartition(".")[0] in packets)


def outdated() -> list[str]:
    """One line per recorded source that was made with another PyTorch than this."""
    return [
        f"{path.name} was made with torch {recorded.made_with(name)}, this is torch {recorded.release()}: "
        "python -m harness.analyse.operator_coverage.slow_sources makes it again"
        for name, path in recorded.FILES.items()
        if recorded.made_with(name) != recorded.release()
    ]
