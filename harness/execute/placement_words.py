"""How the record says that a case ran on the CPU although the backend's device is another."""

from __future__ import annotations

from collections.abc import Iterable

#: How the words begin of a case of which nodes ran on the CPU.
FELL_BACK = "fell back to CPU: "
_WHOLLY = " (nothing ran on the device)"
#: The runtime computed the whole case when it loaded the model, as nothing in it depends on an input.
FOLDED = "computed on the CPU while it was loaded"
NOT_TOLD = "not known: the runtime does not tell"


def fell_back(operators: Iterable[str], *, wholly: bool) -> str:
    """The words for a case whose nodes of those ONNX operators ran on the CPU, or all of its nodes."""
    return f"{FELL_BACK}{', '.join(sorted(set(operators)))}{_WHOLLY if wholly else ''}"


def operators_on_cpu(placement: str) -> list[str]:
    """The ONNX operators that such words name."""
    if not placement.startswith(FELL_BACK):
        return []
    return placement.removeprefix(FELL_BACK).removesuffix(_WHOLLY).split(", ")
