"""Read ONNX Runtime's messages, as normalised by `harness.compare.signatures.normalise`; nothing else reads them.

A new version of the runtime may phrase them differently. Each pattern has an example in
``tests/run/test_ort_messages.py``.
"""

from __future__ import annotations

import re

from harness.compare.faults import Fault

#: A message that no kernel is implemented, with its operator.
_NO_KERNEL = re.compile(r"implementation for (\w+)\(")
_KERNEL = re.compile(r"\brunning (\w+):|^\w+: (\w+) \[\w+Error\]")
#: Prefix of operators that the optimiser makes of two nodes and that run the kernel of one of them: ``FusedMatMul``.
_FUSED = "Fused"
#: A message that a node cannot be loaded or run.
_NODE = re.compile(r"(?:FAIL|INVALID_ARGUMENT): (?:running )?(\w+)[ :]|FAIL: Node \(.*?\) Op \((\w+)\)")
_INSERTED = re.compile(r"(\w+): Mismatched attribute type in 'Inserted")
_RUNNING = re.compile(r"FAIL: running (\w+): .*", re.DOTALL)
_INVALID = re.compile(r"INVALID_ARGUMENT: running (\w+): .*", re.DOTALL)
_OUT_OF_BOUNDS = re.compile(r"running Gather\w*: .*out of (?:data )?bounds")


def missing_kernel(message: str) -> str:
    """Return the ONNX operator that has no kernel for these dtypes; "" if the message does not say so."""
    match = _NO_KERNEL.search(message)
    return match[1] if match else ""


def failing_kernel(message: str) -> str:
    """Return the ONNX operator that was running; "" if the message names none."""
    match = _KERNEL.search(message)
    return (match[1] or match[2]).removeprefix(_FUSED) if match else ""


def inserted_node(message: str) -> str:
    """Return the ONNX operator of an invalid node that the runtime itself has put into the graph; "" for none."""
    match = _INSERTED.search(message)
    return match[1] if match else ""


def refused_node(message: str) -> str:
    """Return the ONNX operator of a node that cannot be loaded or run; "" if the message names none."""
    match = _NODE.match(message)
    return match[1] or match[2] if match else ""


def complaint(message: str) -> tuple[Fault, str] | None:
    """Return the fault of a model that a message reports, and the ONNX operator; None if it reports none."""
    for pattern, fault in ((_INVALID, Fault.UNFIT_INPUTS), (_RUNNING, Fault.ASKS_UNFIT)):
        match = pattern.fullmatch(message)
        if match:
            return fault, match[1]
    return None


def is_out_of_bounds(message: str) -> bool:
    """Whether a message reports an index out of bounds."""
    return _OUT_OF_BOUNDS.search(message) is not None
