"""Access to PyTorch's dispatcher through names that are private and have no public counterpart.

`harness.convert.torch_private` wraps those of the exporters; lower rooms need these. Attributes of an `OpOverload`
(`_schema`, `py_kernels`) are not wrapped.
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

#: Flattens nested lists, tuples and dictionaries, and restores them.
pytree = _pytree
#: Dispatch keys of kernels composed of other operators, and of kernels that compute only shapes.
COMPOSITE, META = torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Meta


#: Namespace → the module that defines its operators.
DEFINED_IN = {
    "onnx": "torch.onnx.ops",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    FLOW: "harness.core.control_flow_calls",
}


#: Functions without a public name that take functions → the import line of a script.
FLOW_IMPORTS = {
    "while_loop": "from torch._higher_order_ops.while_loop import while_loop",
    "scan": "from torch._higher_order_ops.scan import scan",
}


def flow_function(name: str) -> Callable[..., Any]:
    """Return one of the functions in `FLOW_IMPORTS`."""
    function: Callable[..., Any] = getattr(importlib.import_module(f"torch._higher_order_ops.{name}"), name)
    return function


def register_operators(namespace: str) -> None:
    """Have PyTorch register the operators of a namespace that it does not load at import."""
    if namespace in DEFINED_IN:
        importlib.import_module(DEFINED_IN[namespace])


def register_all_operators() -> None:
    """Have PyTorch register the operators of all namespaces, before an exporter lists them."""
    for namespace in DEFINED_IN:
        register_operators(namespace)


def registered_schemas() -> Iterable[Any]:
    """Return the schemas of all operators, including those of TorchScript's interpreter."""
    return torch._C._jit_get_all_schemas()


def dispatched_names() -> Iterable[str]:
    """Return the names of all operators of the dispatcher: ``aten::add.Tensor``, ``aten::celu``."""
    return torch._C._dispatch_get_all_op_names()


def is_dispatched(name: str) -> bool:
    """Whether the dispatcher has a kernel for ``aten.add.Tensor``; it has none for TorchScript's own operators."""
    return torch._C._dispatch_has_kernel(name.replace(".", "::", 1).removesuffix(".default"))


def is_composite(target: Any) -> bool:
    """Whether the operator's kernel is composed of other operators."""
    if not isinstance(target, OpOverload):
        return False
    name: str = target.name()  # type: ignore[no-untyped-call]
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, COMPOSITE)
    except RuntimeError:
        # TorchScript's own operators are not registered with the dispatcher.
        return False


def decomposition(target: OpOverload) -> Callable[..., Any] | None:
    """Return PyTorch's definition of an operator in terms of simpler ones; None if it has none."""
    # Importing the module registers many.
    from torch._decomp import decomposition_table

    return decomposition_table.get(target)


def python_dispatcher() -> AbstractContextManager[Any]:
    """Return a context in which kernels registered in Python also serve composite operators."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


#: The module with the samples of PyTorch's own tests, which needs packages that PyTorch does not.
OP_DB_MODULE = "torch.testing._internal.common_methods_invocations"


def op_db() -> list[Any]:
    """Return PyTorch's own samples of operators, its ``OpInfo`` entries.

    Raises:
        ImportError: A package that the module needs is missing.
    """
    from torch.testing._internal.common_methods_invocations import op_db as entries

    return list(entries)


def module_db() -> list[Any]:
    """Return PyTorch's own samples of layers, its ``ModuleInfo`` entries; raises as `op_db` does."""
    from torch.testing._internal.common_modules import module_db as entries

    return list(entries)


def fake_tensor_mode() -> Any:
    """Return a mode in which PyTorch computes only shapes and dtypes, for the tensors' own device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True)


def errors_without_rules() -> tuple[type[Exception], ...]:
    """Return the exceptions that the mode raises without a rule, for instance for a size that depends on values."""
    from torch._subclasses import fake_tensor

    return (
        NotImplementedError,
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        fake_tensor.UnsupportedFakeTensorException,
        fake_tensor.UnsupportedOperatorException,
    )
