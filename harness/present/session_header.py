"""What is said before a run: versions, who takes part, who cannot and why."""

from __future__ import annotations

import harness
from harness.convert import CONVERTERS
from harness.plan import Options, Plan
from harness.record import installed_versions
from harness.run import BACKENDS


def header(plan: Plan, options: Options) -> list[str]:
    """Lines for the top of a session.

    Args:
        plan: What will be run.
        options: What it was made from.
    """
    runtimes = [name for entry in BACKENDS.defaults() for name in entry.distributions or ()]
    installed = installed_versions(runtimes)
    named = ("torch", "onnx", "onnxscript", *runtimes, "hypothesis")
    versions = ", ".join(f"{name} {installed[name]}" for name in named if name in installed)
    lines = [f"conformance: harness {harness.__version__}, {versions}"]
    lines += _participants(plan, "converter", [e.name for e in CONVERTERS.entries()], plan.converters)
    lines += _participants(plan, "backend", [e.name for e in BACKENDS.entries()], plan.backends)
    if plan.models:
        models = len({unit.word for unit in plan.models})
        lines.append(f"plan: {models} whole model{'s' if models > 1 else ''}, {options.shapes} shapes")
        return lines
    operators = len({unit.overload for unit in plan.units})
    if options.replay is None:
        lines.append(f"sources: {', '.join(plan.sources)}")
        what = f"{options.examples} cases each, {options.shapes} shapes, seed {options.seed}"
    else:
        what = f"{len(options.replay)} recorded cases"
    lines.append(f"plan: {operators} operator overload{'' if operators == 1 else 's'}, {what}")
    if plan.shard is not None:
        whole = sum(len(part) for part in plan.whole)
        lines.append(f"shard: {plan.shard}, {operators:,} of {whole:,} operator overloads")
    return lines


def _participants(plan: Plan, kind: str, known: list[str], chosen: tuple[str, ...]) -> list[str]:
    unavailable = {name: why for k, name, why in plan.unavailable if k == kind}
    rest = [name for name in known if name not in chosen and name not in unavailable]
    lines = [f"{kind}s: {', '.join(chosen)}" + (f" (also here: {', '.join(rest)})" if rest else "")]
    for name, why in unavailable.items():
        lines.append(f"  {name} unavailable: {why.reason}; to get it: {why.install}")
    return lines
