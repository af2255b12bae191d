"""The planted defects that need two conditions at once, as `pairs.jsonl` lists them; registers nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.core.dtypes import Array
from planted.pair_conditions import Condition, Conjunction

#: The planted defects, a line each.
FILE = Path(__file__).with_name("pairs.jsonl")
#: Who is wrong.
DYNAMO, TORCHSCRIPT, RUNTIME = "planted-pairs", "planted-pairs-torchscript", "planted-pairs-runtime"


class PlantedPair(NamedTuple):
    """A defect: what is wrong, and when.

    `call` is one that shows it, as JSON, and `drawn` whether the generator drew it or it was made.
    """

    conjunction: Conjunction
    wrong: str
    call: str
    drawn: bool


def read_pairs(file: Path = FILE) -> list[PlantedPair]:
    """The planted defects."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        first, second = (Condition(*condition) for condition in data["conditions"])
        conjunction = Conjunction(data["overload"], first, second, data["facing"])
        found.append(PlantedPair(conjunction, data["wrong"], json.dumps(data["call"]), data["drawn"]))
    return found


def spoiled(right: Array) -> Array:
    """Another number in place of each."""
    if right.dtype == bool:
        return ~right
    numbers = right.astype(np.float64)
    other = np.where(np.isfinite(numbers), np.where(np.abs(numbers) < 1, numbers + 2, 0), 0)
    return other.astype(right.dtype)
