"""Every family of points, registered by importing it."""

from __future__ import annotations

from harness.reach import arguments, dtypes, shapes, values, windows
from harness.reach.point import FAMILIES

__all__ = ["FAMILIES", "arguments", "dtypes", "shapes", "values", "windows"]
