"""Why some overloads of the target set have no operator case: reads and checks `cases/not_covered.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.core.tensors import overload
from harness.generate.cases_home import cases_directory

FILE = cases_directory() / "not_covered.toml"


class ReasonsError(Exception):
    """The file of reasons is invalid; the message says where and why, in one line."""


class Kind(StrEnum):
    """The accepted reasons.

    `STORAGE`: it needs sparse, quantised or nested storage, for which ONNX has no type. `COMPLEX`: it uses complex
    numbers in a way that pairs of reals cannot represent.
    """

    NO_TENSOR = "no tensor result"
    DEVICE = "absent device"
    STORAGE = "storage"
    COMPLEX = "complex without pairs"

    __str__ = str.__str__


@dataclass(frozen=True)
class Reason:
    """Why an overload has no operator case; `because` is for people."""

    family: str
    kind: Kind
    because: str


def read(path: Path = FILE) -> dict[str, Reason]:
    """Return the reasons by overload.

    Raises:
        ReasonsError: The file is not TOML, an entry lacks a field, a reason is not accepted, an overload is named
            twice, or one returns tensors although its reason denies that.
    """
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("not_covered", [])
    except tomllib.TOMLDecodeError as error:
        raise ReasonsError(f"{path.name}: {error}") from None
    reasons: dict[str, Reason] = {}
    for number, entry in enumerate(entries, 1):
        reason = _reason(f"{path.name}, entry {number}", entry)
        for name in entry["overloads"]:
            if name in reasons:
                raise ReasonsError(f"{path.name}: {name} is named twice")
            if reason.kind is Kind.NO_TENSOR and _returns_tensor(name):
                raise ReasonsError(f"{path.name}: {name} returns tensors, its reason says that it does not")
            reasons[name] = reason
    return reasons


def _reason(where: str, entry: Mapping[str, Any]) -> Reason:
    missing = {"family", "reason", "because", "overloads"} - set(entry)
    if missing:
        raise ReasonsError(f"{where}: lacks {', '.join(sorted(missing))}")
    try:
        kind = Kind(entry["reason"])
    except ValueError:
        known = ", ".join(repr(str(kind)) for kind in Kind)
        wrong = f"{entry['reason']!r} is not a reason that counts"
        raise ReasonsError(f"{where}: {wrong}; these do: {known}") from None
    return Reason(entry["family"], kind, entry["because"])


def _returns_tensor(name: str) -> bool:
    try:
        returns = overload(name)._schema.returns
    except LookupError:
        # `measure` reports it as outdated.
        return False
    return any("Tensor" in str(value.type) for value in returns)
