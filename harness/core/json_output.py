"""What reports print and write as JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(data: Any, indent: int = 2) -> str:
    """A JSON document; keys keep their order, and NaN and infinities, which JSON lacks, are null."""
    return json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
