"""What every worker process needs, imported once before they are forked.

The fork server imports this module by name. It must not run anything that starts threads or touches a
device: a forked child inherits neither.
"""

from __future__ import annotations

import contextlib

import torch

from harness.convert import CONVERTERS
from harness.execute import case_runner, worker
from harness.generate import load_cases
from harness.run import BACKENDS

torch.set_num_threads(1)
load_cases()
CONVERTERS.entries()
BACKENDS.entries()


def _warm_up() -> None:
    """Fill what converters keep between exports, so that a worker that replaces a dead one starts warm."""
    from harness.core import Invocation, Recipe, TensorSpec, bind, build_tensors
    from harness.execute.program import Exportable, export_request

    spec = TensorSpec((2,), "float32", (1,), 0, Recipe(("any",), "plain", 0))
    invocation = Invocation("aten.relu.default", (("self", spec),))
    member = Exportable(0, bind(invocation), build_tensors(invocation), 1, (frozenset(),))
    for entry in CONVERTERS.entries():
        # A converter that fails does so again where it is recorded.
        with contextlib.suppress(Exception):
            if entry.default and entry.probe() is None:
                entry.create(False).convert(export_request([member], opset=None, dynamic=False))


_warm_up()

__all__ = ["case_runner", "worker"]
