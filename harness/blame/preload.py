"""What every worker process needs, witnesses included, imported once before they are forked.

See `harness.execute.preload`: what holds of that holds of this.
"""

from __future__ import annotations

import gc

import harness.execute.preload  # noqa: F401 - first, since it prepares the fork server for imports
from harness.blame.witnesses import import_witnesses

import_witnesses()
gc.freeze()
