"""The report of `pytest harness --coverage`: the share of the target set that has operator cases, by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.core.overloads import packet
from harness.coverage import target as targets
from harness.coverage.not_covered import Reason, ReasonsError, read
from harness.generate.operator_case import OperatorCase


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The target set compared with the operator cases.

    Attributes:
        covered: Family → number of overloads of the target set with a case.
        not_covered: Overload → its family, and the reason for having no case; None if no reason is given.
        stale: Overload with a reason → why the reason is outdated.
        beyond: Number of overloads with a case that no source names.
    """

    covered: Mapping[str, int]
    not_covered: Mapping[str, tuple[str, Reason | None]]
    stale: Mapping[str, str]
    beyond: int

    @property
    def total(self) -> int:
        """Number of overloads in the target set."""
        return sum(self.covered.values()) + len(self.not_covered)

    @property
    def share(self) -> float:
        """The covered share of the target set, in [0, 1]."""
        return sum(self.covered.values()) / max(self.total, 1)

    @property
    def unexplained(self) -> list[str]:
        """Overloads that have neither a case nor a reason."""
        return [name for name, (_, reason) in self.not_covered.items() if reason is None]


def measure(wanted: Collection[str], registry: Mapping[str, OperatorCase], reasons: Mapping[str, Reason]) -> Coverage:
    """Compare the target set with the cases and the reasons, both by overload."""
    families = {packet(name): case.family for name, case in registry.items()}
    not_covered: dict[str, tuple[str, Reason | None]] = {}
    for name in sorted(set(wanted) - set(registry)):
        reason = reasons.get(name)
        # Without a reason, the family is that of another overload, if one has a case.
        family = reason.family if reason else families.get(packet(name), "(unknown)")
        not_covered[name] = (family, reason)
    return Coverage(
        covered=Counter(registry[name].family for name in wanted if name in registry),
        not_covered=not_covered,
        stale={
            name: "has an operator case" if name in registry else "is not in the target set"
            for name in sorted(reasons)
            if name in registry or name not in wanted
        },
        beyond=len(set(registry) - set(wanted)),
    )


def coverage_report(registry: Mapping[str, OperatorCase]) -> tuple[str, int]:
    """Return the text and the exit status, 1 if an overload has neither case nor reason or a reason is outdated."""
    try:
        coverage = measure(targets.target(), registry, read())
        named = targets.named_by()
    except (targets.SourceMissing, ReasonsError) as error:
        return str(error), 1
    lines = _table(coverage, {source: len(names) for source, names in named.items()})
    lines += [f"WARNING: {warning}" for warning in targets.outdated()]
    return "\n".join(lines), 1 if coverage.unexplained or coverage.stale else 0


def _table(coverage: Coverage, named: Mapping[str, int]) -> list[str]:
    total = sum(coverage.covered.values())
    lines = [
        f"{total} of {coverage.total} overloads ({coverage.share:.1%}) have an operator case, "
        f"{coverage.beyond} more that no source names; torch {targets.release()}",
        "named by: " + ", ".join(f"{source} {count}" for source, count in named.items()),
        "",
        f"{'family':<16} {'covered':>7} {'of':>5}",
    ]
    missing = Counter(family for family, _ in coverage.not_covered.values())
    for family in sorted({*coverage.covered, *missing}):
        covered = coverage.covered.get(family, 0)
        lines.append(f"{family:<16} {covered:>7} {covered + missing[family]:>5}")
    if coverage.not_covered:
        lines += ["", "not covered:"]
    rows = [(family, name, reason) for name, (family, reason) in coverage.not_covered.items()]
    for family, name, reason in sorted(rows, key=lambda row: row[:2]):
        why = "NO REASON: add a case, or a reason to the file"
        lines.append(f"  {family}: {name}: {f'{reason.kind}: {reason.because}' if reason else why}")
    if coverage.stale:
        lines += ["", "stale reasons in cases/not_covered.toml:"]
        lines += [f"  {name} {why}" for name, why in coverage.stale.items()]
    return lines
