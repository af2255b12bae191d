"""Failures whose culprit was judged by hand, and what the harness says of them.

`tests/blame/labelled.jsonl` holds 560 failing cases of random sweeps of both converters on ONNX Runtime,
onnx's reference evaluator and OpenVINO, each of a random failure group. They were judged from the text of the
specification, the sources and high precision, without a look at the harness's verdicts: 100 *before* the
nodes of a graph were judged one by one, 100 *after*, 60 *later*, 100 *last*, and as many *fifth* and *sixth*,
each from a seed of its own. What a set showed was mended before the next was drawn.

    PYTHONPATH=tests/support python -m labelled_failures --judged after --wrong

prints the confusion matrix, and with `--wrong` what speaks for either side where they differ.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.compare.verdict import Outcome, Verdict
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.generate.sources.recorded import FromRecord
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit
from harness.present.evidence import evidence_of_row

FILE = Path(__file__).parents[1] / "blame" / "labelled.jsonl"
#: A case that passes when it is run again says nothing of blame: it draws at random, or depends on its batch.
PASSES = "passes"
#: In the order in which they were judged.
SETS = ("before", "after", "later", "last", "fifth", "sixth")


@dataclass(frozen=True)
class Label:
    """A failing case, and whose it is.

    Attributes:
        judged: one of `SETS`.
        culprit: ``converter``, ``backend``, ``pytorch``, ``spec``, ``false_alarm``.
        acceptable: Others that an expert might name as well.
        contestable: Whether it is a matter of opinion.
        where: The node, line or argument that is wrong.
        exported: What was exported, where that had other values.
    """

    judged: str
    converter: str
    backend: str
    stage: str
    culprit: str
    acceptable: tuple[str, ...]
    contestable: bool
    where: str
    reason: str
    invocation: Invocation
    exported: Invocation

    def allows(self, blame: str) -> bool:
        """Whether `blame` is right."""
        return blame == self.culprit or blame in self.acceptable


def read_labels() -> list[Label]:
    """Return all labels, in the file's order."""
    return [_label(json.loads(line)) for line in FILE.read_text(encoding="utf-8").splitlines()]


def _label(data: dict[str, Any]) -> Label:
    invocation = Invocation.from_data(data.pop("invocation"))
    exported = Invocation.from_data(data.pop("exported")) if "exported" in data else invocation
    return Label(**{**data, "acceptable": tuple(data["acceptable"])}, invocation=invocation, exported=exported)


def judged_by_harness(labels: Iterable[Label]) -> Iterator[tuple[Label, str, Verdict]]:
    """Each label with whom the harness blames, or `PASSES`, and its verdict."""
    load_cases()
    with Supervisor(timeout=60) as supervisor:
        for label in labels:
            unit = Unit(
                overload=label.invocation.overload,
                route=Route.parse(label.converter),
                backends=(label.backend,),
                sources=(FromRecord.of_calls(dict.fromkeys([label.exported, label.invocation])),),
            )
            (verdict,) = [
                verdict
                for verdicts in run_unit(unit, supervisor)
                for verdict in verdicts
                if verdict.case_id == label.invocation.case_id
            ]
            yield label, PASSES if verdict.outcome is Outcome.PASS else verdict.blame, verdict


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Compare blame with labels that were given by hand.")
    parser.add_argument("--judged", choices=SETS, help="of these only")
    parser.add_argument("--wrong", action="store_true", help="show what speaks for either side")
    options = parser.parse_args()
    matrix: Counter[tuple[str, str]] = Counter()
    right = 0
    chosen = [label for label in read_labels() if options.judged in (None, label.judged)]
    for label, blame, verdict in judged_by_harness(chosen):
        matrix[label.culprit, blame] += 1
        right += label.allows(blame)
        if options.wrong and blame != PASSES and not label.allows(blame):
            contestable = ", contestable" if label.contestable else ""
            print(f"{label.invocation} with {label.converter} on {label.backend}")
            print(f"  by hand {label.culprit}{contestable}: {label.where}: {label.reason}")
            print(f"  harness {blame}: {evidence_of_row(vars(verdict))}\n")
    again = sum(number for (_, blame), number in matrix.items() if blame != PASSES)
    for (culprit, blame), number in sorted(matrix.items()):
        print(f"{culprit:12} {blame:10} {number:4}")
    print(f"right: {right} of {again} that fail again; {sum(matrix.values()) - again} pass")


if __name__ == "__main__":
    main()
