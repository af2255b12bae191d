"""Every family of points, registered by importing it."""

from __future__ import annotations

from harness.analyse.argument_coverage import (
    accumulation,
    argument_points as arguments,
    dtype_points as dtypes,
    shape_points as shapes,
    value_points as values,
    window_points as windows,
)
from harness.analyse.argument_coverage.point import FAMILIES

__all__ = ["FAMILIES", "accumulation", "arguments", "dtypes", "shapes", "values", "windows"]
