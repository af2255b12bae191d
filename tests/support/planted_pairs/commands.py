"""`python -m planted_pairs`: choose defects, and measure how many of them the draws meet.

PYTHONPATH=.:tests/support:tests/plugins python -m planted_pairs choose 180
PYTHONPATH=.:tests/support:tests/plugins python -m planted_pairs measure --seed 0
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import click
from planted.pair_list import FILE, PlantedPair, read_pairs

from harness.generate.case_library import load_cases
from harness.plan.options import Options
from planted_pairs.choice import chosen_pairs, passing
from planted_pairs.meeting import meeting

#: Drawn calls of one pair that are exported at once, to see whether one gets through.
_EXPORTED = 12


@click.group()
def main() -> None:
    """Defects that need two conditions at once."""
    load_cases()


@main.command()
@click.argument("count", type=int)
@click.option("--seed", default=0, show_default=True)
@click.option("--to", "file", default=FILE, show_default=False, type=click.Path(path_type=Path))
def choose(count: int, seed: int, file: Path) -> None:
    """Choose COUNT pairs of conditions at random; adds to the file, whose operators have theirs."""
    have = read_pairs(file) if file.exists() else []
    done = {pair.conjunction.overload for pair in have}
    with file.open("a", encoding="utf-8") as out:
        for pair in chosen_pairs(seed, done):
            if len(done) >= count:
                break
            done.add(pair.conjunction.overload)
            out.write(json.dumps(_line(pair)) + "\n")
            out.flush()


def _line(pair: PlantedPair) -> dict[str, object]:
    conjunction = pair.conjunction
    return {
        "overload": conjunction.overload,
        "conditions": [[c.argument, c.word] for c in (conjunction.first, conjunction.second)],
        "facing": conjunction.facing,
        "wrong": pair.wrong,
        "drawn": pair.drawn,
        "call": json.loads(pair.call),
    }


@main.command()
@click.option("--examples", default=Options().examples, show_default=True, help="Cases of each operator.")
@click.option("--more", default=0, help="As many of the operators of those that are not found, too: 2560.")
@click.option("--seed", "seeds", multiple=True, default=(0,), show_default=True, type=int)
@click.option("--from", "file", default=FILE, show_default=False, type=click.Path(path_type=Path))
@click.option("--drawn-only", is_flag=True, help="Do not ask whether a case gets through; costs no export.")
@click.option("--part", default="0/1", show_default=True, help="Every Nth pair, from the first: 0/4.")
def measure(examples: int, more: int, seeds: Sequence[int], file: Path, drawn_only: bool, part: str) -> None:
    """Say which share of the pairs a run's draws meet, in a case that would pass."""
    start, step = map(int, part.split("/"))
    totals: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for seed in seeds:
        for pair in read_pairs(file)[start::step]:
            state = _state(pair, seed, examples, drawn_only)
            origin = "in a long draw" if pair.drawn else "made"
            kinds = (_kind(pair), pair.wrong, origin, f"seed {seed}", "all")
            for kind in kinds:
                totals[examples, kind][state] += 1
            if state != "found":
                click.echo(f"seed {seed}, {examples}: {state}: {pair.conjunction}")
                if more:
                    # The first draws are the same ones.
                    state = _state(pair, seed, more, drawn_only)
                    if state != "found":
                        click.echo(f"seed {seed}, {more}: {state}: {pair.conjunction}")
            for kind in kinds if more else ():
                totals[more, kind][state] += 1
    for (count, kind), states in sorted(totals.items()):
        total = states.total()
        others = ", ".join(f"{n} {state}" for state, n in states.most_common() if state != "found")
        share = states["found"] / total
        click.echo(f"{count:4} {kind:32} {states['found']:4} of {total:4}  {share:6.1%}  {others}")


def _state(pair: PlantedPair, seed: int, examples: int, drawn_only: bool) -> str:
    met = list(meeting(pair.conjunction, seed, examples))
    if not met:
        return "not drawn"
    # A run exports them all. Few at once from the whole of the draws: neighbours fail alike.
    turns = -(-len(met) // _EXPORTED)
    some = (met[turn::turns] for turn in range(turns))
    through = drawn_only or any(passing(calls, pair.wrong, _EXPORTED) for calls in some)
    return "found" if through else "drawn, not through"


def _kind(pair: PlantedPair) -> str:
    return f"{pair.conjunction.kind}{' facing' * pair.conjunction.facing}"
