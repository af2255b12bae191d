"""Which overloads are functional: those whose whole effect is what they return.

An overload is functional if all of this holds:

1. It is an operator of the dispatcher in the namespace ``aten``. TorchScript registers further names there
   for Python's own ints, strings, lists and dicts (``aten::append.t``, ``aten::len.str``); these are
   instructions of its interpreter, no operators.
2. Its schema writes to no argument: no alias annotation with an exclamation mark (``Tensor(a!)``), which is
   what in-place variants (``add_``) and ``out=`` variants have (`FunctionSchema.is_mutable`). A view
   (``Tensor(a)``) reads, and is functional.
3. Its name does not say that it is a formula of automatic differentiation: a backward or double backward
   function, a Jacobian-vector product, the gradient of a sampling function, or what packs and unpacks dual
   tensors (`_AUTOGRAD`).
"""

from __future__ import annotations

import re
from functools import cache

from harness.core import dispatched_names, overload

_AUTOGRAD = re.compile(r"backward|_jvp$|_grad$|^_fw_primal|^_make_dual|^_unpack_dual")


def dotted(name: str) -> str:
    """``aten.add.Tensor`` of ``aten::add.Tensor``, ``aten.celu.default`` of ``aten::celu``."""
    name = name.replace("::", ".", 1)
    return name if name.count(".") == 2 else f"{name}.default"


@cache
def functional_overloads() -> frozenset[str]:
    """Every functional overload of ATen, dotted."""
    names = (dotted(n) for n in dispatched_names() if n.startswith("aten::"))
    return frozenset(
        name for name in names if not _AUTOGRAD.search(name.split(".")[1]) and not overload(name)._schema.is_mutable
    )
