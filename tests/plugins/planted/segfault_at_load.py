"""Reads address 0 when it loads a model with the guilty size."""

from __future__ import annotations

import ctypes

from planted import _guilty

prepare = _guilty.at_load(lambda: ctypes.string_at(0))
