#!/usr/bin/env python3
"""How many distinct failures a budget finds, for several ways to spend it.

    python ci/discovery.py --out DIR [--overloads 100] [--seed 0] [--values 1 2 4] [--structures 128]

A structure is exported once and run with one or more draws of values. Each number of values is run once, with
as many structures as the greatest budget has. Failures are counted among the first structures of each
operator, which are those of a smaller budget. The time is processor time, of all processes together; half of
the structures are taken to cost half of it. DIR gets `discovery.md`, a table, `discovery.svg`, a plot, and
the runs. What was run before is not run again.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.groups import failure_groups
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.record import store

#: Structures of an operator after which the failures are counted, where a run has as many.
MARKS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 320)
#: Linux: orphans become children of this process, which is told how much time they took (prctl(2)).
_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What was found by then.

    Attributes:
        values: Value draws per structure.
        structures: Of each operator.
        seconds: Of processor time, a mean over the seeds.
        groups: Distinct root causes, a mean over the seeds.
    """

    values: int
    structures: int
    seconds: float
    groups: float


def cpu_seconds(command: Sequence[str], log: Path) -> float:
    """Run a command; the processor time that it and all its descendants take."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("w", encoding="utf-8") as out:
        subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(names: Sequence[str], values: int, seed: int, given: argparse.Namespace) -> tuple[Path, float]:
    """The record of one run, and its processor time without the start."""
    directory = given.out / f"{given.converter}-{len(names)}-{values}-{given.structures}-{seed}"
    measured = directory.with_suffix(".json")
    if not measured.is_file():
        command = [sys.executable, "-m", "pytest", "harness", "-q", "-p", "no:cacheprovider"]
        command += ["--converter", given.converter, "--record-only", "--source", "generated"]
        command += ["--seed", str(seed), "--values", str(values)]
        command += list(chain.from_iterable(("--op", name) for name in names))
        start = cpu_seconds([*command, "--examples", "1", "--results-dir", f"{directory}-start"], given.log)
        whole = [*command, "--examples", str(given.structures * values), "--results-dir", str(directory)]
        measured.write_text(json.dumps(cpu_seconds(whole, given.log) - start))
    return directory, json.loads(measured.read_text())


def marks(record: Path, names: Sequence[str], values: int, seed: int, structures: int) -> Iterator[int]:
    """The number of root causes after each of `MARKS`."""
    verdicts = store.read(record)
    ordinal = {
        call.case_id: number
        for name in names
        for number, drawn in enumerate(draw_cases(load_cases()[name], seed=seed, structures=structures, values=values))
        for call in drawn.invocations
    }
    place = pa.array([ordinal.get(case, structures) for case in verdicts["case_id"].to_pylist()])
    for mark in _marks(structures):
        yield len(failure_groups(verdicts.filter(pc.less(place, mark))))


def _marks(structures: int) -> tuple[int, ...]:
    return tuple(mark for mark in MARKS if mark <= structures)


def discovered(names: Sequence[str], values: int, given: argparse.Namespace) -> list[Mark]:
    """What one number of values finds."""
    found: list[list[int]] = []
    seconds = 0.0
    for seed in given.seed:
        record, took = run(names, values, seed, given)
        found.append(list(marks(record, names, values, seed, given.structures)))
        seconds += took / len(given.seed)
    return [
        Mark(
            values=values,
            structures=mark,
            seconds=seconds * mark / given.structures,
            groups=sum(counts) / len(counts),
        )
        for mark, counts in zip(_marks(given.structures), zip(*found, strict=True), strict=True)
    ]


def table(series: Mapping[int, Sequence[Mark]]) -> str:
    """Markdown."""
    lines = ["| values | structures | cases | CPU seconds | root causes |", "| ---: " * 5 + "|"]
    for marked in series.values():
        for one in marked:
            cases = one.structures * one.values
            lines.append(f"| {one.values} | {one.structures} | {cases} | {one.seconds:.0f} | {one.groups:.1f} |")
    return "\n".join(lines) + "\n"


def plot(series: Mapping[int, Sequence[Mark]]) -> str:
    """Root causes over processor time, as SVG."""
    width, height, left, top = 640, 420, 60, 20
    longest = max(one.seconds for marked in series.values() for one in marked)
    most = max(one.groups for marked in series.values() for one in marked)

    def x(seconds: float) -> float:
        return left + (width - left - 30) * seconds / longest

    def y(groups: float) -> float:
        return height - 40 - (height - 40 - top) * groups / most

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{left},{top}V{height - 40}H{width - 30}" fill="none" stroke="#888"/>',
    ]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(
            f'<text x="{x(part * longest):.1f}" y="{height - 24}" text-anchor="middle">'
            f"{part * longest:.0f}</text>"
            f'<text x="{left - 8}" y="{y(part * most) + 4:.1f}" text-anchor="end">{part * most:.0f}</text>'
        )
    parts.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">seconds of CPU</text>')
    parts.append(f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})">root causes</text>')
    colours = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df")
    for (values, marked), colour in zip(series.items(), colours, strict=False):
        points = [(x(one.seconds), y(one.groups)) for one in marked]
        path = "L".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (a, b), one in zip(points, marked, strict=True):
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>')
            if one.structures in (32, 64, 128):
                parts.append(f'<text x="{a:.1f}" y="{b + 16:.1f}" fill="{colour}">{one.structures}×{values}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> int:
    """Run what was not run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--overloads", type=int, default=100, help="drawn at random (%(default)s)")
    parser.add_argument("--converter", default="dynamo", help="(%(default)s)")
    parser.add_argument("--seed", type=int, nargs="+", default=[0], help="of the draws (%(default)s)")
    parser.add_argument("--values", type=int, nargs="+", default=[1, 2, 4], help="per structure (1 2 4)")
    parser.add_argument("--structures", type=int, default=128, help="of the greatest budget (%(default)s)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    given.log = given.out / "log.txt"
    names = sorted(load_cases())
    names = sorted(random.Random(0).sample(names, min(given.overloads, len(names))))
    series = {values: discovered(names, values, given) for values in given.values}
    seeds = f"{len(given.seed)} seed{'s' * (len(given.seed) > 1)}"
    heading = f"# What a budget finds\n\n{len(names)} operators, {given.converter}, {seeds}\n\n"
    (given.out / "discovery.md").write_text(heading + table(series), encoding="utf-8")
    (given.out / "discovery.svg").write_text(plot(series), encoding="utf-8")
    (given.out / "discovery.json").write_text(
        json.dumps([asdict(one) for marked in series.values() for one in marked]), encoding="utf-8"
    )
    print(heading + table(series))
    return 0


if __name__ == "__main__":
    sys.exit(main())
