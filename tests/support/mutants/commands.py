"""`python -m mutants`: what a person asks of the survey.

PYTHONPATH=.:tests/support python -m mutants reach DIRECTORY --count 200
PYTHONPATH=.:tests/support python -m mutants try DIRECTORY --count 320
PYTHONPATH=.:tests/support python -m mutants table DIRECTORY
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import click

from harness.generate.case_library import load_cases
from mutants.ends import warm_up
from mutants.mutation import MODULES, find_mutation
from mutants.reach import read_reach, survey_reach
from mutants.reasons import reasons
from mutants.survey import Tried, chosen_mutations, read_survey, same_without, survey, try_again


@click.group()
def main() -> None:
    """Mutate conversion functions, and see whether the default budget notices."""
    load_cases()


_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
_SEED = click.option("--seed", default=0, show_default=True, help="Of the draws.")
_CHOICE = click.option("--choice", default=0, show_default=True, help="Which mutations.")
_PER_FUNCTION = click.option("--per-function", default=3, show_default=True)


@main.command()
@_DIRECTORY
@_SEED
@click.option("--op", "operators", multiple=True, help="Globs such as 'max_pool*'; all by default.")
@click.option("--count", type=int, help="Operators and converters; all by default.")
def reach(directory: Path, seed: int, operators: tuple[str, ...], count: int | None) -> None:
    """Find which operators' cases run which expressions; goes on where it was stopped."""
    warm_up()
    directory.mkdir(parents=True, exist_ok=True)
    survey_reach(directory / "reach.jsonl", tuple(MODULES), seed, operators, count)


@main.command("try")
@_DIRECTORY
@_SEED
@_CHOICE
@_PER_FUNCTION
@click.option("--count", default=320, show_default=True, help="Mutations that some case reaches.")
@click.option("--operators", default=4, show_default=True, help="Whose cases are run for one mutation.")
def try_them(directory: Path, seed: int, choice: int, per_function: int, count: int, operators: int) -> None:
    """Try mutations; goes on where it was stopped."""
    found = list(read_reach(directory / "reach.jsonl"))
    warm_up()
    chosen = chosen_mutations(choice, per_function)
    for tried in survey(directory / "tried.jsonl", chosen, found, seed=seed, count=count, operators=operators):
        click.echo(f"{tried.mutation}  {_said(tried)}  {tried.case[2]}")


@main.command()
@_DIRECTORY
@_SEED
@click.option("--operators", default=12, show_default=True, help="Whose cases are run for one mutation.")
def again(directory: Path, seed: int, operators: int) -> None:
    """Try the survivors with operators that were not tried; those with a reason stay out."""
    found = list(read_reach(directory / "reach.jsonl"))
    warm_up()
    for tried in try_again(directory / "tried.jsonl", found, seed, operators, without=reasons()):
        click.echo(f"{tried.mutation}  {_said(tried)}  {tried.case[2]}")


@main.command()
@_DIRECTORY
@_SEED
@click.option("--count", default=20, show_default=True, help="Operators and converters.")
def check(directory: Path, seed: int, count: int) -> None:
    """Run cases again without a mutation: each must end as it did."""
    warm_up()
    for other in same_without(list(read_reach(directory / "reach.jsonl"))[:count], seed):
        click.echo("  ".join(other))


def _said(tried: Tried) -> str:
    return tried.noticed or ("unreached" if tried.unreached else "survives")


@main.command()
@_DIRECTORY
@_CHOICE
@_PER_FUNCTION
def table(directory: Path, choice: int, per_function: int) -> None:
    """Count the mutations by kind, and list the survivors with the reasons that are known."""
    tried = list(read_survey(directory / "tried.jsonl"))
    known = reasons()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in tried:
        reason = known.get(one.mutation)
        end = "noticed" if one.noticed else reason.kind if reason else "survives"
        if one.unreached:
            end = "unreached"
        for row in (one.kind, one.converter, "all"):
            counts[row][end] += 1
    found = list(read_reach(directory / "reach.jsonl"))
    sites = {site for one in found for site in one.sites}
    chosen = chosen_mutations(choice, per_function)
    last = max((i for i, m in enumerate(chosen) if m.id in {one.mutation for one in tried}), default=-1)
    for mutation in chosen[: last + 1]:
        if mutation.site not in sites:
            for row in (mutation.kind, mutation.converter, "all"):
                counts[row]["unreached"] += 1
    for row, ends in counts.items():
        click.echo(f"{row:20} " + ", ".join(f"{end} {number}" for end, number in sorted(ends.items())))
    for one in tried:
        if not one.noticed and not one.unreached:
            mutation = find_mutation(one.mutation)
            reason = known.get(one.mutation)
            click.echo(f"\n{one.mutation}\n    {mutation.was}  →  {mutation.becomes}")
            click.echo(f"    {', '.join(one.operators)}")
            if reason:
                click.echo(f"    {reason.kind}: {reason.why}")
