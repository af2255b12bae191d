"""Reads address 0 when it runs on the guilty value."""

from __future__ import annotations

import ctypes

from planted import _guilty

prepare = _guilty.at_run(lambda: ctypes.string_at(0))
