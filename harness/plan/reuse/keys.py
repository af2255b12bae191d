"""What a verdict hangs on, of all that two runs name: where it is the same, running again gives the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from harness.plan.reuse.basis import CASE, DRAWING, GRAPHICS, PLUGIN
from harness.record import RULES, SOURCE, RunInfo
from harness.run import BACKENDS, runtime_distributions

#: Name → (what it was, what it is); None for what is not known.
Differences: TypeAlias = Mapping[str, tuple[str | None, str | None]]

#: Versions that every verdict hangs on.
_COMMON = ("python", "torch", "numpy", "ml-dtypes", "onnx", "onnxscript", "onnx-ir", "harness")

#: What a version is called that nobody knows.
_UNKNOWN = (None, "", "unknown")


@dataclass(frozen=True)
class VerdictScope:
    """What verdicts are of; `rules` says whether the user's take part."""

    overload: str
    converter: str
    backend: str
    rules: bool = False


def differences(then: RunInfo, now: RunInfo, place: VerdictScope, then_rules: str | None = None) -> Differences:
    """All that differs of what a verdict hangs on; whose defect a failure is hangs on `witnesses` too.

    `then_rules` is of the earlier run's rules, where it is not its basis that says which took part.
    """
    backend = BACKENDS.find(place.backend)[0]
    runtimes = runtime_distributions() if backend.distributions is None else backend.distributions
    found = _differing(then.versions, now.versions, [*_COMMON, *runtimes])
    for name in (f"converter {place.converter}", f"backend {place.backend}"):
        a, b = then.versions.get(name), now.versions.get(name)
        if a != b or b in _UNKNOWN:
            found[name] = a, b
    apart = (CASE, PLUGIN)
    unread = {*DRAWING, RULES, *([GRAPHICS] if backend.on_cpu else [])}
    names = [n for n in now.basis if not n.startswith(apart) and n not in unread]
    names += [CASE + place.overload, PLUGIN + place.converter, PLUGIN + place.backend]
    found.update(_differing(then.basis, now.basis, [SOURCE, *names]))
    rules = (then.basis.get(RULES) if then_rules is None else then_rules) or ""
    wanted = now.basis.get(RULES, "") if place.rules else ""
    if rules != wanted:
        found[RULES] = rules, wanted
    return found


def witnesses(then: RunInfo, now: RunInfo) -> Differences:
    """What differs of those that are asked whose defect a failure is."""
    both = [n for n in then.versions if n.startswith(("converter ", "backend ")) and n in now.versions]
    return _differing(then.versions, now.versions, [*runtime_distributions(), *both])


def drawing(then: RunInfo, now: RunInfo) -> Differences:
    """What differs of that which decides on the cases, beside the operator's own."""
    found = _differing(then.versions, now.versions, ["hypothesis"])
    return {**found, **_differing(then.basis, now.basis, DRAWING)}


def _differing(
    then: Mapping[str, str], now: Mapping[str, str], names: Iterable[str]
) -> dict[str, tuple[str | None, str | None]]:
    return {name: (then.get(name), now.get(name)) for name in names if then.get(name) != now.get(name)}


def said(then: RunInfo, now: RunInfo, places: Collection[VerdictScope]) -> list[str]:
    """What keeps verdicts of an earlier run from being reused in `places`, all of this run; a line each."""
    if SOURCE not in then.basis:
        return [f"{then.run_id} is a record of an older harness, which does not say what it rests on"]
    affected: dict[tuple[str, str | None, str | None], set[VerdictScope]] = {}
    cases: dict[str, None] = {}
    rules = False
    for place in places:
        for name, (a, b) in differences(then, now, place).items():
            if name.startswith(CASE):
                if a is not None:
                    cases[place.overload] = None
            elif name == RULES:
                rules = True
            else:
                affected.setdefault((name, a, b), set()).add(place)
    lines = []
    for (name, a, b), some in affected.items():
        who = "nothing reused" if some == set(places) else f"nothing of {_who(name, some)} reused"
        lines.append(f"{_change(then.run_id, name, a, b)}: {who}")
    if cases:
        names = list(cases)
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        lines.append(f"operator cases changed: nothing of {', '.join(names[:4])}{more} reused")
    if rules:
        lines.append("rules changed: nothing that was run with them reused")
    again = "failures are run again, for whose defect they are"
    anew = "cases are drawn anew, and those reused that are the same"
    changes = [(item, again) for item in witnesses(then, now).items() if not affected]
    changes += [(item, anew) for item in drawing(then, now).items()]
    return [*lines, *(f"{_change(then.run_id, name, a, b)}: {what}" for (name, (a, b)), what in changes)]


def _who(name: str, places: Collection[VerdictScope]) -> str:
    if name.startswith("converter ") or name in {PLUGIN + place.converter for place in places}:
        return ", ".join(sorted({place.converter for place in places}))
    return ", ".join(sorted({place.backend for place in places}))


def _change(run_id: str, name: str, a: str | None, b: str | None) -> str:
    if name.startswith(("converter ", "backend ")) and b in _UNKNOWN:
        return f"{name} has no version"
    if name.startswith(("converter ", "backend ")) and a is None:
        return f"{name} took no part in {run_id}"
    if a is not None and b is not None and all(len(word) < 40 for word in (a, b)) and not _is_digest(name):
        return f"{name} {a or 'none'} → {b or 'none'}"
    return f"{name} changed"


def _is_digest(name: str) -> bool:
    digests = (SOURCE, RULES, GRAPHICS, "further packages", "environment variables", "processor")
    return name.startswith(PLUGIN) or name in digests
