"""Ends the process in good order, as a library that calls exit() does, on the guilty value."""

from __future__ import annotations

import os

from planted import _guilty

prepare = _guilty.at_run(lambda: os._exit(0))
