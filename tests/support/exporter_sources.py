"""PyTorch's public exporter, called many times in one process.

At each call it parses the source of torchlib's five hundred functions, works out their signatures, and looks
for composite operators: two thirds of the time of a small export. None of that depends on what is exported.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch


@contextmanager
def read_once() -> Iterator[None]:
    """Let the exporter remember what it reads in Python's source, for as long as the block lasts.

    All else that it builds at each call, the registry and the decompositions too, it builds as ever.
    """
    schemas = importlib.import_module("torch.onnx._internal.exporter._schemas")
    operators = importlib.import_module("torch._export.utils")
    function = importlib.import_module("onnxscript._internal.values").TracedOnnxFunction
    with (
        patch.object(schemas, "op_signature_from_function", cache(schemas.op_signature_from_function)),
        patch.object(
            operators,
            "_collect_all_valid_cia_ops_for_namespace",
            cache(operators._collect_all_valid_cia_ops_for_namespace),
        ),
        patch.object(function, "function_ir", property(cache(function.function_ir.fget))),
    ):
        yield
