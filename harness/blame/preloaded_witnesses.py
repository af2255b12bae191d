"""What every worker process needs, witnesses included, imported once before they are forked.

What holds of `harness.pipeline.preload` holds of this.
"""

from __future__ import annotations

import gc
import importlib

# First: it prepares the fork server for imports. It is known by name only, as to the fork server.
importlib.import_module("harness.pipeline.preload")

from harness.blame.witnesses import import_witnesses  # noqa: E402

import_witnesses()
gc.freeze()
