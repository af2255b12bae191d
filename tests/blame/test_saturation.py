"""A kernel that adds products of 8 bits in 16 bits is named as such, and weights within 7 bits clear it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from commands import checked
from harness_runs import PLUGINS  # noqa: F401 - it makes `planted` importable
from onnx_texts import onnx_model, saved
from planted import saturates

SATURATES = "onnx-api:planted.saturates"
NODES = """q, scale, zero = DynamicQuantizeLinear (x) sums = MatMulInteger (q, w)
    floats = Cast <to = 1> (sums) y = Mul (floats, scale)"""


def check(directory: Path, largest: int, status: int) -> dict[str, Any]:
    """Check a product with weights up to `largest` on a processor without VNNI."""
    weights = np.random.default_rng(0).integers(-largest, largest + 1, (8, 3)).astype(np.int8)
    weights[:2] = largest
    path = saved(directory / "product.onnx", "float[2,8] x", "float[2,3] y", NODES, w=weights)
    np.savez(directory / "x.npz", x=np.linspace(0, 1, 16, dtype=np.float32).reshape(2, 8))
    inputs = ("--inputs", directory / "x.npz", "--backend", SATURATES)
    (way,) = checked(path, *inputs, status=status)["ways"]
    return dict(way)


def test_pairs_of_products_saturate_as_on_such_a_processor() -> None:
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 2), 127, np.int8)
    model = onnx_model("uint8[1,4] a, int8[4,2] b", "int32[1,2] y", "y = MatMulInteger (a, b)")
    # What ONNX Runtime 1.32 gives on Haswell.
    (got,) = saturates.prepare(model, "CPU").run([a, b])
    assert got.tolist() == [[65534, 65534]]


def test_a_saturating_kernel_is_named(tmp_path: Path) -> None:
    way = check(tmp_path, 127, status=1)
    cause = way["cause"]
    assert (cause["component"], cause["place"], cause["fault"]) == (SATURATES, "MatMulInteger", "saturates-in-16-bits")


def test_weights_within_7_bits_are_safe(tmp_path: Path) -> None:
    assert check(tmp_path, 63, status=0)["survives"]
