"""What the words of ONNX Runtime name, normalised by `harness.compare.signatures.normalise`: the only reader of them.

The texts are the runtime's; a new version may word them in another way. Each pattern has an example in
``tests/run/test_ort_messages.py``.
"""

from __future__ import annotations

import re

#: Words of refusals that name the kernel.
_NO_KERNEL = re.compile(r"implementation for (\w+)\(")
_KERNEL = re.compile(r"\brunning (\w+):|^\w+: (\w+) \[\w+Error\]")
#: What ONNX Runtime's optimiser makes of a node and one beside it runs the node's kernel: ``FusedMatMul``.
_FUSED = "Fused"
#: A node that is not loaded or not run.
_NODE = re.compile(r"(?:FAIL|INVALID_ARGUMENT): (?:running )?(\w+)[ :]|FAIL: Node \(.*?\) Op \((\w+)\)")
_RUNNING = re.compile(r"FAIL: running (\w+): .*", re.DOTALL)
_INVALID = re.compile(r"INVALID_ARGUMENT: running (\w+): .*", re.DOTALL)
_OUT_OF_BOUNDS = re.compile(r"running Gather\w*: .*out of (?:data )?bounds")


def missing_kernel(words: str) -> str:
    """The ONNX operator that the runtime has no kernel of for these dtypes; "" where that is not said."""
    found = _NO_KERNEL.search(words)
    return found[1] if found else ""


def failing_kernel(words: str) -> str:
    """The ONNX operator that the runtime says it was running; "" for none."""
    found = _KERNEL.search(words)
    return (found[1] or found[2]).removeprefix(_FUSED) if found else ""


def refused_node(words: str) -> str:
    """The ONNX operator of a node that is not loaded or not run; "" for none."""
    found = _NODE.match(words)
    return found[1] or found[2] if found else ""


def complaint(words: str) -> tuple[str, str]:
    """A fault of the model that the words tell, and the ONNX operator: ``unfit-inputs`` or ``asks-unfit``."""
    for pattern, fault in ((_INVALID, "unfit-inputs"), (_RUNNING, "asks-unfit")):
        found = pattern.fullmatch(words)
        if found:
            return fault, found[1]
    return "", ""


def is_out_of_bounds(words: str) -> bool:
    """Whether an index is out of bounds."""
    return _OUT_OF_BOUNDS.search(words) is not None
