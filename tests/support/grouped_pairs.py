"""Pairs of failing cases to be judged without a look at their groups: one defect, or two.

    PYTHONPATH=tests/support python -m grouped_pairs RUN... --pairs 150 --seed 1 --to FOLDER

writes `pairs.md`, two cases at a time with all that the record says of them and nothing of how they are
grouped (with `--blind` nothing of whom it blames either), and `key.json`, which pairs are of one group and
which of two. Half of the pairs are of one group, of two of its operators where it has several. Half are of
neighbours: two groups that share an operator or the place, or that the same is wrong with. A group is drawn
before a case: large ones do not outweigh small ones.

    PYTHONPATH=tests/support python -m grouped_pairs --to FOLDER --judged FOLDER/judged.txt

counts mistakes; the file has a line for each pair that was judged: its number and `one`, `two` or `?`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.causes.groups import COLUMNS, FAILED, FailureGroup, failure_groups
from harness.causes.known_issues import call
from harness.causes.rows import CodedRows, each_problem
from harness.compare.verdict import Outcome
from harness.present.evidence import fault_text, group_place
from harness.record import store

#: What is shown of a case, in this order. The message of an exporter is long.
_SHOWN = ("converter", "backend", "stage", "outcome", "blame", "signature", "message", "evidence", "rule")
#: What the harness makes of a failure, which a judge who does not trust it must not see.
_ITS_VIEW = ("blame", "evidence", "component", "place", "fault")
_LENGTH = 1500
PAIRS, KEY = "pairs.md", "key.json"
#: Draws until there is taken to be nothing to draw.
_TRIES = 10_000


@dataclass(frozen=True)
class GroupedFailures:
    """Failed rows of runs, a row for each problem, and the group of each; without declared gaps."""

    rows: CodedRows
    groups: tuple[FailureGroup, ...]
    of_group: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, runs: Sequence[Path]) -> GroupedFailures:
        """Group the failures of runs as reports do."""
        table = pa.concat_tables([store.read(run, COLUMNS, FAILED, encoded=True) for run in runs])
        groups = tuple(g for g in failure_groups(table) if g.outcome is not Outcome.UNSUPPORTED)
        rows = CodedRows(each_problem(table)[0])
        causes, cause = rows.causes
        places = defaultdict[Any, list[int]](list)
        for place, number in enumerate(cause.tolist()):
            places[causes[number]].append(place)
        members = tuple(tuple(place for one in group.causes for place in places[one]) for group in groups)
        return cls(rows, groups, members)

    def one_group(self, random_: random.Random) -> tuple[int, int]:
        """Two rows of one group, of two operators where it has several.

        Raises:
            ValueError: no group has two cases that differ.
        """
        for _ in range(_TRIES):
            members = random_.choice(self.of_group)
            first = random_.choice(members)
            overloads, structures = self.rows.numbers("overload"), self.rows.numbers("structure_id")
            others = [m for m in members if overloads[m] != overloads[first]]
            others = others or [m for m in members if structures[m] != structures[first]]
            if others:
                return first, random_.choice(others)
        raise ValueError("no group has two cases that differ: give runs with more failures")

    def neighbours(self, random_: random.Random) -> tuple[int, int]:
        """A row each of two groups that are near: of one operator, of one place, or alike in words.

        Raises:
            ValueError: no two groups are near.
        """
        for _ in range(_TRIES):
            number = random_.randrange(len(self.groups))
            near = random_.choice((_of_one_operator, _of_one_place, _in_like_words))
            group = self.groups[number]
            others = [n for n, other in enumerate(self.groups) if n != number and near(group, other)]
            if others:
                other = random_.choice(others)
                return random_.choice(self.of_group[number]), random_.choice(self.of_group[other])
        raise ValueError("no two groups are near: give runs with more failures")


def _of_one_operator(one: FailureGroup, other: FailureGroup) -> bool:
    return not set(one.overloads).isdisjoint(other.overloads)


def _of_one_place(one: FailureGroup, other: FailureGroup) -> bool:
    return one.cause.where == other.cause.where


def _in_like_words(one: FailureGroup, other: FailureGroup) -> bool:
    return (one.cause.component, one.cause.fault) == (other.cause.component, other.cause.fault)


def write(runs: Sequence[Path], folder: Path, pairs: int, seed: int, *, blind: bool = False) -> None:
    """Draw pairs, and write them and the key; `blind` leaves out whom the harness blames, and why."""
    random_ = random.Random(seed)
    failures = GroupedFailures.read(runs)
    drawn = [(failures.one_group(random_), True) for _ in range(pairs)]
    drawn += [(failures.neighbours(random_), False) for _ in range(pairs)]
    random_.shuffle(drawn)
    group_of = {place: n for n, members in enumerate(failures.of_group) for place in members}
    text, key = list[str](), dict[str, Any]()
    for number, (pair, same) in enumerate(drawn, start=1):
        text += [f"# Pair {number}", ""]
        for letter, row in zip("AB", failures.rows.at(pair, failures.rows.table.column_names), strict=True):
            text += [f"## {letter}: `{call(row['invocation'])[:_LENGTH]}`", "", *_facts(row, blind), ""]
        groups = [failures.groups[group_of[place]] for place in pair]
        key[str(number)] = {
            "same": same,
            "groups": [f"{g.blame} | {group_place(g)} | {fault_text(g.cause)}" for g in groups],
        }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAIRS).write_text("\n".join(text), encoding="utf-8")
    (folder / KEY).write_text(json.dumps(key, indent=1), encoding="utf-8")


def _facts(row: dict[str, Any], blind: bool) -> Iterator[str]:
    for name in _SHOWN:
        if row[name] and not (blind and name in _ITS_VIEW):
            yield f"- {name}: {' '.join(str(row[name]).split())[:_LENGTH]}"


def count_mistakes(folder: Path, judged: Path) -> Iterator[str]:
    """How often a judge says that one group is two defects, and that two groups are one; each such pair."""
    key = json.loads((folder / KEY).read_text(encoding="utf-8"))
    seen, wrong = {True: 0, False: 0}, {True: 0, False: 0}
    for line in judged.read_text(encoding="utf-8").splitlines():
        number, _, said = line.strip().partition(" ")
        said = said.strip().partition(" ")[0].strip(".,:;").lower()
        if number not in key or said not in ("one", "two"):
            continue
        same = key[number]["same"]
        seen[same] += 1
        if (said == "one") != same:
            wrong[same] += 1
            yield f"{number}: said {said}; {' / '.join(dict.fromkeys(key[number]['groups']))}"
    for same, what in ((True, "of one group are two defects"), (False, "of two groups are one defect")):
        share = f" ({100 * wrong[same] / seen[same]:.1f}%)" if seen[same] else ""
        yield f"{wrong[same]} of {seen[same]} pairs {what}{share}"


def main() -> None:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--pairs", type=int, default=150, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blind", action="store_true", help="leave out whom the harness blames, and why")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--judged", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.judged:
        print(*count_mistakes(given.to, given.judged), sep="\n")
    else:
        write(given.runs, given.to, given.pairs, given.seed, blind=given.blind)


if __name__ == "__main__":
    main()
