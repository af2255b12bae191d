"""A pytest plug-in: a Python without `expecttest`, which PyTorch's operator samples need."""

from __future__ import annotations

import sys

sys.modules["expecttest"] = None  # type: ignore[assignment]
