"""Draw the programs of a pattern: as the pattern gives them, doubled, before another pattern, or with a change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from harness.core.dtypes import is_float
from harness.core.invocation import Input, Invocation, Literal, Recipe, Result, TensorSpec
from harness.core.program import Program, Returned, map_parts, share_inputs, weights_of
from harness.core.tensors import draws_at_random
from harness.generate.any_call import shapes_of
from harness.generate.programs import DTYPES, SEEDS, Pattern, ProgramDraw, load_patterns
from harness.generate.twists import twist_program

#: Of so many programs one holds an extreme number.
_PROGRAMS_PER_EXTREME = 10
#: Numbers at which a formula overflows, divides by zero, or is undefined.
_EXTREMES = (0.0, math.inf, -math.inf, 1e20, -1e20, 1e-20, math.nan)


def draw_program(pattern: Pattern, seed: int, index: int, dtypes: Sequence[str] = DTYPES) -> Invocation:
    """Return the program of a pattern, a seed and an index; the same on every machine."""
    random = Random(f"{pattern.name} {seed} {index}")
    p = ProgramDraw(random, random.choice(dtypes))
    second, is_twisted = p.choose("", "", "", "", "", "same", "same", "other"), p.choose(True, False)
    if second == "same":
        # Two calls of one kind on the same values: an optimiser may name or count them by these.
        p.shared = {}
    returns = [*pattern.draw(p), *(pattern.draw(p) if second == "same" else ())]
    if second == "other":
        returns = _add_other_pattern(p, returns)
    if p.choose(True, False) and not any(map(draws_at_random, p.calls)):
        # Runtimes leave a fusion out if the graph returns its result. Any dtype can be unsqueezed.
        returns = [p.call("aten.unsqueeze.default", self=value, dim=0) for value in dict.fromkeys(returns)]
    returned: list[Returned] = [*dict.fromkeys(returns), *_unchanged(p)]
    if p.below(12) == 0 and not any(map(draws_at_random, p.calls)):
        # A value that no call takes and the program does not return; it may have any dtype.
        p.call("aten.mul.Tensor", self=returns[0], other=returns[0])
    program = share_inputs(Program(pattern.name, tuple(p.calls), tuple(returned)))
    program = _hold_extremes(program, Random(f"{pattern.name} {seed} {index} extremes"))
    return (twist_program(program, random) if is_twisted else program).invocation


def _hold_extremes(program: Program, random: Random) -> Program:
    """Give one weight of some programs a number at which formulas overflow, divide by zero, or are undefined."""
    weights = [w for w in dict.fromkeys(weights_of(program)) if is_float(w.spec.dtype) and w.spec.numel]
    if not weights or random.randrange(_PROGRAMS_PER_EXTREME):
        return program
    weight, number = random.choice(weights), random.choice(_EXTREMES)
    spec = weight.spec
    place = random.randrange(spec.numel)
    values = tuple(number if i == place or spec.numel == 1 else 1.0 for i in range(spec.numel))
    changed = replace(weight, spec=replace(spec, values=Literal(values)))
    return map_parts(program, lambda part: changed if part == weight else part)


def _add_other_pattern(p: ProgramDraw, returns: Sequence[Result]) -> list[Result]:
    """Let another pattern take a result; return what the program then returns."""
    try:
        values = {value.result: value for value in shapes_of(p.calls)}
    except Exception:
        # A shape depends on values, or an operator has no rule for shapes alone.
        return [*returns]
    known = [values[r] for r in returns if r in values and values[r].dtype == p.dtype and 0 not in values[r].shape]
    if not known or any(map(draws_at_random, p.calls)):
        return [*returns]
    value, before = p.choose(*known), len(p.calls)
    p.source = value.result, value.shape
    results = p.choose(*(other for other in load_patterns().values() if not other.dynamic)).draw(p)
    if p.source is not None or any(map(draws_at_random, p.calls)):
        # It takes no such input, or its calls are judged otherwise.
        del p.calls[before:]
        return [*returns]
    return [*(r for r in returns if r != value.result), *results]


def _unchanged(p: ProgramDraw) -> list[Returned]:
    """Sometimes return an input or a weight unchanged, too."""
    program = Program("", tuple(p.calls), ())
    inputs = [Input(place) for place, _ in enumerate(program.invocation.tensors())]
    kept: list[Returned] = [*inputs, *weights_of(program)]
    seldom = p.below(12) == 0
    if not seldom or not kept or program.changes_in_place or any(map(draws_at_random, p.calls)):
        return []
    return [p.choose(*kept)]


def other_values(program: Invocation, seed: int) -> Invocation:
    """Return the program with other values of its inputs."""
    random = Random(f"{program.structure_id} {seed}")

    def another(spec: TensorSpec) -> Recipe | Literal:
        values = spec.values
        return replace(values, seed=random.randrange(SEEDS)) if isinstance(values, Recipe) else values

    return program.with_values(another)
