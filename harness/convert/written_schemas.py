"""Facts about overloads from PyTorch's list of native functions, read as text.

Reports on a record ask; importing PyTorch for them would take seconds.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

#: A schema in `native_functions.yaml`: name, overload and arguments.
_SCHEMA = re.compile(r"^- func: (\w+)(?:\.(\w+))?\((.*)\) ->", re.MULTILINE)
_NUMBER = re.compile(r"\bScalar\b")


def takes_numbers(overload: str) -> bool:
    """Whether an overload takes numbers of any kind (``Scalar``), of which an exporter makes tensors.

    Args:
        overload: Dotted name.

    Returns:
        False, too, if PyTorch is not installed or does not know the overload.
    """
    return overload in _overloads_taking_numbers()


@cache
def _overloads_taking_numbers() -> frozenset[str]:
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        return frozenset()
    file = Path(spec.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return frozenset(
        f"aten.{name}.{variant or 'default'}"
        for name, variant, arguments in _SCHEMA.findall(text)
        if _NUMBER.search(arguments)
    )
