"""What cannot be read off names: which ONNX operator does what an ATen operator does, and which of its inputs
and attributes mean what which argument means. The table itself is `cases/onnx_counterparts.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from harness.analyse.explain import onnx_operator
from harness.generate import cases_directory

#: In the directory of the operator cases.
_TABLE = "onnx_counterparts.toml"


class TableError(Exception):
    """`cases/onnx_counterparts.toml` is wrong; the message says where."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The ONNX input or attribute that one argument stands for ("" for none), and why, in words."""

    onnx: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An ONNX operator that may stand for an ATen operator.

    Attributes:
        why: How it was found.
        arguments: ATen argument → meaning, where the table says so for this operator.
        others: ONNX input or attribute that no argument stands for → what to give it, and why.
    """

    onnx: str
    why: str
    arguments: Mapping[str, Meaning] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads((cases_directory() / _TABLE).read_text(encoding="utf-8"))


def candidate(packet: str) -> Candidate | None:
    """The ONNX operator for an ATen operator such as ``aten::celu``, from the table or by its name.

    Raises:
        TableError: the table names an ONNX operator that the installed specification lacks.
    """
    name = packet.partition("::")[2]
    for entry in _table()["operator"]:
        if name in entry["aten"]:
            if not entry["onnx"]:
                return None
            if entry["onnx"] not in onnx_operator.names():
                raise TableError(f"{_TABLE}: {entry['onnx']} of {name} is no operator of this ONNX")
            meanings = {name: Meaning(**said) for name, said in entry.get("arguments", {}).items()}
            others = entry.get("others", {})
            return Candidate(onnx=entry["onnx"], why=entry["why"], arguments=meanings, others=others)
    by_name = {_normalised(known): known for known in onnx_operator.names()}
    found = by_name.get(_normalised(name)) or by_name.get(_normalised(_general(name)))
    return Candidate(onnx=found, why="the same name") if found else None


def synonyms(argument: str) -> list[Meaning]:
    """ONNX names that the table gives for an argument of any operator, likeliest first."""
    return [
        Meaning(onnx=name, why=entry["why"])
        for entry in _table()["synonym"]
        if argument in entry["aten"]
        for name in entry["onnx"]
    ]


def same_name(one: str, other: str) -> bool:
    """Whether two names differ in case, underscores or a plural only."""
    return _normalised(one).removesuffix("s") == _normalised(other).removesuffix("s")


def _normalised(name: str) -> str:
    return name.replace("_", "").lower()


def _general(name: str) -> str:
    """Without what PyTorch adds to a name: ``max_unpool2d``, ``_log_softmax``, ``special_erf``."""
    name = re.sub(r"^(special|linalg|fft|native)_", "", name.lstrip("_"))
    return re.sub(r"_?\d?d$", "", name)
