"""Every family of points, registered by importing it."""

from __future__ import annotations

from harness.analyse.argument_coverage import accumulation, arguments, dtypes, shapes, values, windows
from harness.analyse.argument_coverage.point import FAMILIES

__all__ = ["FAMILIES", "accumulation", "arguments", "dtypes", "shapes", "values", "windows"]
