"""Import the modules that every worker process needs, witnesses included, once before the processes are forked.

The rules of `harness.pipeline.preload` apply.
"""

from __future__ import annotations

import gc
import importlib

# First: it prepares the fork server for imports. It is known by name only, as to the fork server.
importlib.import_module("harness.pipeline.preload")

from harness.blame.witnesses import import_witnesses  # noqa: E402

import_witnesses()
gc.freeze()
