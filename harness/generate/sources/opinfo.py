"""PyTorch's own test samples: the calls that `op_db` makes of an operator.

They are captured in a process of their own. Importing PyTorch's testing modules changes the process
(Hypothesis's profile, flags of `torch.backends`, methods of ScriptFunction), and so does capturing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.plugins import Unavailable
from harness.core.torch_operators import OP_DB_MODULE
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.sources import _op_db
from harness.generate.sources.source import SIZES_PER_EXPORT, Notice, Request, SourceFinding, grouped, resized

#: Seconds that one operator may take; with the index of all of `op_db` about ten are usual.
_PATIENCE = 240.0


def probe() -> Unavailable | None:
    """Report which of PyTorch's testing modules is missing; None if all are installed."""
    for module in ("expecttest", OP_DB_MODULE):
        if importlib.util.find_spec(module) is None:
            return Unavailable(
                reason=f"PyTorch's operator samples need {module}, which is not installed",
                install="pip install 'aten-onnx-conformance[opinfo]'",
            )
    return None


@dataclass(frozen=True)
class OpInfo:
    """Captures, for operators that have a case.

    Others are captured too, but nothing says which results of theirs are random or undefined.
    """

    name = "opinfo"

    def overloads(self) -> Collection[str]:
        """See `harness.generate.sources.source.Source`."""
        return OPERATOR_CASES

    def find(self, request: Request) -> SourceFinding:
        """See `harness.generate.sources.source.Source`."""
        if request.overload not in OPERATOR_CASES:
            return SourceFinding()
        dtypes = request.dtypes or OPERATOR_CASES[request.overload].dtypes
        wanted = _op_db.Wanted(
            overload=request.overload,
            dtypes=dtypes,
            only_these=request.dtypes is not None,
            seed=request.seed,
            count=request.examples,
            # Sizes can change only if values follow from a recipe.
            literal=not request.dynamic,
        )
        captured = _captured(wanted)
        if isinstance(captured, str):
            return SourceFinding(notices=(Notice("opinfo", f"opinfo: {captured}"),))
        notices = tuple(Notice("uncovered", name) for name in captured.others if name not in OPERATOR_CASES)
        if not request.dynamic:
            return SourceFinding(grouped([(i, None) for i in captured.invocations]), notices)
        bases = captured.invocations[: -(-request.examples // (1 + SIZES_PER_EXPORT))]
        return SourceFinding(resized(request, bases), notices)


def _captured(wanted: _op_db.Wanted) -> _op_db.Captured | str:
    """Return the capture, or one line about the reason why there is none."""
    try:
        return _process().call(_op_db.capture, wanted)
    except ProcessDied as died:
        if died.hung:
            return f"{wanted.overload}: capturing PyTorch's samples took more than {_PATIENCE:g} s"
        return f"{wanted.overload}: the process that captures PyTorch's samples died: {died}"
    except Exception as error:
        return f"PyTorch's samples cannot be captured: {type(error).__name__}: {error}".splitlines()[0]


@cache
def _process() -> IsolatedCalls:
    return IsolatedCalls(timeout=_PATIENCE, prepare=_op_db.prepare, fork=True)
