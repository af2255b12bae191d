"""What the sources of a run's cases have to say once it is over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.core import count, plain


class Afterwords:
    """Collects what the items of a run report, each thing once."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, None]] = {}
        self._added = self._dropped = 0

    def add(self, notices: Iterable[Sequence[str]], remembered: Sequence[int]) -> None:
        """Take what one item reports.

        Args:
            notices: (kind, text) of `harness.generate.sources.source.Notice`.
            remembered: (added, dropped) of `harness.generate.regressions.remember.Remembered`.
        """
        for kind, text in notices:
            self._said.setdefault(kind, {})[text] = None
        self._added += remembered[0]
        self._dropped += remembered[1]

    def lines(self) -> list[str]:
        """A line per thing to say; empty if there is none."""
        lines = []
        if self._added or self._dropped:
            kept = f"{count(self._added, 'failure')} kept to be run first next time"
            lines.append(f"corpus: {kept}, {self._dropped} dropped that no longer fail")
        uncovered = sorted(self._said.get("uncovered", ()))
        if uncovered:
            some = ", ".join(uncovered[:3]) + (", …" if len(uncovered) > 3 else "")
            lines.append(
                f"opinfo: {count(len(uncovered), 'more overload')} captured and not run, "
                f"for want of an operator case: {some}"
            )
        for kind in sorted(self._said.keys() - {"uncovered"}):
            lines += [plain(text) for text in self._said[kind]]
        return lines
