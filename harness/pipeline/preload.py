"""Import the modules that every worker process needs, once before the processes are forked.

The fork server imports this module by name. It must not run anything that leaves threads or touches a
device: a forked child inherits neither.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import os
import signal
import sys

#: Whether this process is the fork server; others may import this module.
_SERVES = any("multiprocessing.forkserver" in word for word in sys.orig_argv)
#: Seconds after which the fork server counts as hanging and is ended, so that processes waiting for it get an error.
_PATIENCE = 300.0
_SESSION = os.getppid()

# Imports leave hardly any garbage, and looking for it takes a fifth of their time.
gc.disable()
if _SERVES:
    # Ctrl-C is for the session, which ends this process; the fork server itself ignores it once it serves.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.dump_traceback_later(_PATIENCE, exit=True)


def _stop_if_left() -> None:
    """End a fork server whose session has ended already: it notices that itself only once it serves."""
    if _SERVES and os.getppid() != _SESSION:
        os._exit(0)


import pytest  # noqa: E402, F401 - a session's main module, which each of its workers imports once more
import torch  # noqa: E402

_stop_if_left()

from harness.convert.converter import CONVERTERS  # noqa: E402
from harness.convert.torch_private import hide_gpus  # noqa: E402
from harness.generate.case_library import load_cases  # noqa: E402
from harness.pipeline import run_batch, worker  # noqa: E402
from harness.run.backend import BACKENDS  # noqa: E402

torch.set_num_threads(1)
load_cases()
CONVERTERS.entries()
BACKENDS.entries()
_stop_if_left()


# With tqdm the exporter shows its progress, for which that starts a thread, which no forked process has.
with contextlib.suppress(ImportError):
    from tqdm import tqdm

    tqdm.monitor_interval = 0


def _warm_up() -> None:
    """Fill the caches that converters keep between exports, so that a worker that replaces a dead one starts warm."""
    from harness.core.invocation import Invocation, Recipe, TensorSpec
    from harness.core.route import Route
    from harness.pipeline.program import CallStructure, export_request
    from harness.pipeline.start import Starter

    spec = TensorSpec((2,), "float32", (1,), 0, Recipe(("any",), "plain", 0))
    invocation = Invocation("aten.relu.default", (("self", spec),))
    member = CallStructure(invocation, outputs=1)
    for entry in CONVERTERS.entries():
        # A converter that fails here fails again in a recorded step.
        with contextlib.suppress(Exception):
            if entry.default and entry.probe() is None:
                route = Route(converter=entry.name)
                Starter().converter(route)[0].convert(export_request([member], route))


# The exporter asks PyTorch for GPUs, time and again. To answer, CUDA's driver is started, which then is of no
# use to any process that is forked from this one.
with hide_gpus():
    _warm_up()
# All of this lives as long as the process: collecting it again and again takes a tenth of an export's time.
gc.freeze()
gc.enable()
if _SERVES:
    faulthandler.cancel_dump_traceback_later()
    # Taking all of it down in good order takes a second, for which readers of this process's output would wait.
    atexit.register(os._exit, 0)

__all__ = ["run_batch", "worker"]
