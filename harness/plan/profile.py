"""Profiles: what a runtime claims to run, as a TOML file.

opsets = [18, 21]                       # operator sets that it claims; without it, all

[operators]
Add = ["float32", "float16"]            # dtypes of the first input
"Conv.11" = ["float32"]                 # one version
"Reduce*" = "all"                       # every dtype
"com.microsoft.Attention" = ["float32"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.onnx_operators import UnknownOnnxOperator, find_schema, match_onnx
from harness.plan.options import UsageProblem

_ALL = "all"


@dataclass(frozen=True)
class Profile:
    """The operators, dtypes and operator sets that a runtime claims.

    Attributes:
        opsets: The claimed operator sets in order; empty for all.
        dtypes: Overload of a claimed operator → its claimed dtypes; empty for all of them.
    """

    opsets: tuple[int, ...]
    dtypes: Mapping[str, tuple[str, ...]]

    def claims(self, overload: str, dtype: str) -> bool:
        """Whether the runtime claims cases of an operator whose first input has a dtype."""
        claimed = self.dtypes.get(overload)
        return claimed is not None and (not claimed or dtype in claimed)

    def opset(self, overload: str) -> int | None:
        """Return the operator set in which an operator is run: the oldest claimed one that has it; None for its own."""
        return next((opset for opset in self.opsets if find_schema(overload).is_current_at(opset)), None)


def read_profile(path: Path, known: Sequence[str]) -> Profile:
    """Return the profile in a file.

    Args:
        path: The file.
        known: The overloads of ONNX operators that have a case.

    Raises:
        UsageProblem: the file cannot be read, or names something unknown.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageProblem(f"--profile {path}: file not found") from None
    except (OSError, ValueError) as error:
        raise UsageProblem(f"--profile {path}: {error}") from None
    opsets = data.get("opsets", [])
    if not isinstance(opsets, list) or not all(isinstance(opset, int) for opset in opsets):
        raise UsageProblem(f"--profile {path}: opsets: give a list of numbers")
    if not isinstance(data.get("operators"), dict):
        raise UsageProblem(f'--profile {path}: has no table [operators], as in Add = ["float32"]')
    claimed: dict[str, tuple[str, ...]] = {}
    for word, dtypes in data["operators"].items():
        try:
            overloads = match_onnx(word, known)
        except UnknownOnnxOperator as unknown:
            raise UsageProblem(f"--profile {path}: {str(unknown).removeprefix('--op ')}") from None
        for overload in overloads:
            claimed[overload] = _dtypes(path, word, dtypes)
    profile = Profile(tuple(sorted(opsets)), claimed)
    is_known = [name for name in claimed if not opsets or not _is_standard(name) or profile.opset(name) is not None]
    return Profile(profile.opsets, {name: claimed[name] for name in sorted(is_known)})


def _is_standard(overload: str) -> bool:
    return not find_schema(overload).domain


def _dtypes(path: Path, word: str, dtypes: Any) -> tuple[str, ...]:
    if dtypes == _ALL:
        return ()
    if isinstance(dtypes, list) and dtypes and all(isinstance(dtype, str) for dtype in dtypes):
        return tuple(dtypes)
    raise UsageProblem(f'--profile {path}: {word}: give a list of dtypes, or "{_ALL}"')
