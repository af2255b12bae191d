"""What PyTorch's dispatcher knows of operators: names that are private by spelling and have no other face.

`harness.convert.torch_private` holds those of the exporters. These are needed by rooms below it too. What
the holder of an `OpOverload` reads from it (`_schema`, `py_kernels`) is not wrapped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._ops import HigherOrderOperator as HigherOrderOperator, OpOverload as OpOverload
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from harness.core.control_flow import FLOW

#: Nested lists, tuples and dictionaries as flat lists, and back.
pytree = _pytree
#: Of kernels that are made of other operators, and of those that compute shapes alone.
COMPOSITE, META = torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Meta


#: Namespace → the module that defines its operators.
DEFINED_IN = {
    "onnx": "torch.onnx.ops",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    FLOW: "harness.core.control_flow_calls",
}


#: What takes functions and has no public name → how a script imports it.
FLOW_IMPORTS = {
    "while_loop": "from torch._higher_order_ops.while_loop import while_loop",
    "scan": "from torch._higher_order_ops.scan import scan",
}


def flow_function(name: str) -> Callable[..., Any]:
    """One of `FLOW_IMPORTS`."""
    found: Callable[..., Any] = getattr(importlib.import_module(f"torch._higher_order_ops.{name}"), name)
    return found


def register_operators(namespace: str) -> None:
    """Have PyTorch know the operators of a namespace that it does not begin with."""
    if namespace in DEFINED_IN:
        importlib.import_module(DEFINED_IN[namespace])


def register_all_operators() -> None:
    """Have PyTorch know the operators of all namespaces, before an exporter notes which there are."""
    for namespace in DEFINED_IN:
        register_operators(namespace)


def registered_schemas() -> Iterable[Any]:
    """Of every operator, those of TorchScript's interpreter included."""
    return torch._C._jit_get_all_schemas()


def dispatched_names() -> Iterable[str]:
    """Every operator of the dispatcher: ``aten::add.Tensor``, ``aten::celu``."""
    return torch._C._dispatch_get_all_op_names()


def is_dispatched(name: str) -> bool:
    """Whether the dispatcher has a kernel for ``aten.add.Tensor``: TorchScript's own operators have none."""
    return torch._C._dispatch_has_kernel(name.replace(".", "::", 1).removesuffix(".default"))


def is_composite(target: Any) -> bool:
    """Whether the operator's kernel is made of other operators."""
    if not isinstance(target, OpOverload):
        return False
    name: str = target.name()  # type: ignore[no-untyped-call]
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, COMPOSITE)
    except RuntimeError:
        # The dispatcher does not know TorchScript's own operators.
        return False


def own_definition(target: OpOverload) -> Callable[..., Any] | None:
    """PyTorch's definition of an operator by simpler ones; None where it has none."""
    # Registers many on import.
    from torch._decomp import decomposition_table

    return decomposition_table.get(target)


def python_dispatcher() -> AbstractContextManager[Any]:
    """While it is active, kernels that are registered in Python are called for composite operators too."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


#: The module with the samples of PyTorch's own tests. It needs packages that PyTorch does not.
OP_DB_MODULE = "torch.testing._internal.common_methods_invocations"


def op_db() -> list[Any]:
    """PyTorch's own samples of operators, its ``OpInfo`` entries.

    Raises:
        ImportError: a package that the module needs is missing.
    """
    from torch.testing._internal.common_methods_invocations import op_db as entries

    return list(entries)


def module_db() -> list[Any]:
    """PyTorch's own samples of layers, its ``ModuleInfo`` entries; raises as `op_db` does."""
    from torch.testing._internal.common_modules import module_db as entries

    return list(entries)


def fake_tensor_mode() -> Any:
    """Return a mode in which PyTorch computes shapes and dtypes by its rules alone, on the tensors' own device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True)


def errors_without_rules() -> tuple[type[Exception], ...]:
    """Return what such a mode raises where PyTorch has no rules, as where a size depends on values."""
    from torch._subclasses import fake_tensor

    return (
        NotImplementedError,
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedFakeTensorException,
        fake_tensor.UnsupportedOperatorException,
    )
