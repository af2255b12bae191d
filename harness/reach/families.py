"""Every family of points, registered by importing it."""

from __future__ import annotations

from harness.reach import accumulation, arguments, dtypes, shapes, values, windows
from harness.reach.point import FAMILIES

__all__ = ["FAMILIES", "accumulation", "arguments", "dtypes", "shapes", "values", "windows"]
