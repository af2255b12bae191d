"""Digests of what verdicts depend on in addition to versions, for `RunInfo.basis`.

Shards and baselines are compared by them; a change in something that they omit goes unnoticed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import harness
from harness.generate.cases_home import cases_directory
from harness.plan.unit import Unit
from harness.record.run_info import KERNELS, RULES, SOURCE

#: Rooms of the harness that only read records or prepare runs: no verdict depends on them.
VIEWS = frozenset(
    {"app", "cluster", "present", "gate", "support", "explain", "reproduce", "locate", "models", "coverage", "causes"}
)

#: The processor's flags that name instruction sets.
_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|fma|f16c|bmi|amx|gfni|vaes|vpclmul|pclmul|popcnt|neon|asimd|sve|sme|fp|bf16|i8mm|dot)\w*"
)

#: Environment variables that restrict a library's choice of kernels.
_CHOOSING = ("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")


def basis(units: Sequence[Unit], sources: Sequence[str]) -> dict[str, str]:
    """Return the digests of a run.

    Args:
        units: All units of the run, which have the same rules.
        sources: The names of its sources.
    """
    digests = {SOURCE: _digest_source(), KERNELS: _digest_kernels(), "sources": " ".join(sources)}
    if units:
        digests[RULES] = _digest_rules(units[0].route.rules)
    return digests


def _digest(parts: Iterable[bytes | str]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        whole.update(len(data).to_bytes(8))
        whole.update(data)
    return whole.hexdigest()[:12]


def _digest_source() -> str:
    root = Path(harness.__file__).parent
    files = [
        file
        for file in sorted(root.rglob("*"))
        if file.suffix in (".py", ".toml", ".json") and file.relative_to(root).parts[0] not in VIEWS
    ]
    return _digest(part for file in files for part in (str(file.relative_to(root)), file.read_bytes()))


def _digest_rules(files: Sequence[str]) -> str:
    """Digest rule files and the modules next to them that they may have imported; "" without files."""
    if not files:
        return ""
    ours = [Path(harness.__file__).parent, cases_directory()]
    texts: dict[str, bytes] = {}
    for name in files:
        texts[Path(name).name] = Path(name).read_bytes()
        directory = Path(name).resolve().parent
        for module in list(sys.modules.values()):
            origin = getattr(module, "__file__", None)
            path = Path(origin).resolve() if isinstance(origin, str) else None
            if path is None or not path.is_relative_to(directory) or not path.is_file():
                continue
            if not any(path.is_relative_to(root) for root in ours):
                texts[str(path.relative_to(directory))] = path.read_bytes()
    return _digest(part for name in sorted(texts) for part in (name, texts[name]))


def _digest_kernels() -> str:
    """Digest what selects one of several kernels of the same version: instruction sets and restricting variables.

    Another kernel sums in another order, and may flush subnormal numbers to zero.
    """
    return _digest([*sorted(_instructions()), *(f"{name}={os.environ.get(name, '')}" for name in _CHOOSING)])


def _instructions() -> set[str]:
    """Return the processor's instruction sets, as Linux names them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {platform.machine(), platform.processor()}
    lines = (line.partition(":") for line in text.splitlines())
    words = {word for name, _, value in lines if name.strip() in ("flags", "Features") for word in value.split()}
    return {word for word in words if _INSTRUCTIONS.fullmatch(word)}
