"""Goldens on backends, beside what became of them when they were recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.core import IsolatedCalls
from harness.gate.golden.golden import Golden
from harness.gate.golden.golden_running import ending_of
from harness.gate.golden.manifest import Manifest
from harness.gate.golden.outcome import PASSED, Ending, GoldenKey


class GoldenChange(StrEnum):
    """What a check says of one golden with one converter and one backend.

    `NEW` failures passed when they were recorded, or nothing was recorded of that backend; `OTHER` ones
    failed in another way or ended in another outcome; `KNOWN` ones end as they were recorded; `FIXED` ones
    pass now.
    """

    PASS = "pass"
    KNOWN = "known"
    NEW = "new"
    OTHER = "other"
    FIXED = "fixed"

    @property
    def is_failure(self) -> bool:
        """Whether a check fails for it."""
        return self in (GoldenChange.NEW, GoldenChange.OTHER)


@dataclass(frozen=True)
class CheckedGolden:
    """One golden with one converter and one backend.

    Attributes:
        golden: The case.
        converter: Whose model was run.
        backend: Where.
        now: How it ended.
        recorded: How it ended then; None where nothing was recorded of that backend.
        change: What that amounts to.
    """

    golden: Golden
    converter: str
    backend: str
    now: Ending
    recorded: Ending | None
    change: GoldenChange


def check(
    manifest: Manifest,
    goldens: Sequence[Golden],
    endings: Mapping[GoldenKey, Ending],
    *,
    backends: Sequence[str],
    converters: Sequence[str] | None = None,
    timeout: float = 20.0,
) -> Iterator[CheckedGolden]:
    """Run every stored model on every backend.

    Args:
        manifest: Of the set.
        goldens: Those to run.
        endings: The recorded ones.
        backends: Names.
        converters: Whose models; None for all that are stored.
        timeout: Seconds that one model may take.
    """
    for backend in backends:
        with IsolatedCalls(timeout=timeout) as process:
            for golden in goldens:
                for converter in sorted(golden.models):
                    if converters is not None and converter not in converters:
                        continue
                    recorded: Ending | None = None
                    if backend in manifest.backends and converter in manifest.converters:
                        recorded = endings.get((golden.case_id, converter, backend), PASSED)
                    now = ending_of(golden, converter, backend, process)
                    yield CheckedGolden(golden, converter, backend, now, recorded, _change(now, recorded))


def _change(now: Ending, recorded: Ending | None) -> GoldenChange:
    if now.words == PASSED.words:
        return GoldenChange.PASS if recorded is None or recorded.words == PASSED.words else GoldenChange.FIXED
    if recorded is None:
        return GoldenChange.NEW if now.outcome.is_failure else GoldenChange.KNOWN
    if now.words == recorded.words:
        return GoldenChange.KNOWN
    return (
        GoldenChange.NEW if recorded.words == PASSED.words and now.outcome.is_failure else GoldenChange.OTHER
    )
