"""A kernel that adds products of 8 bits in 16 bits is named as such, and weights within 7 bits clear it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from commands import checked
from harness_runs import PLUGINS  # noqa: F401 - it makes `planted` importable
from onnx import numpy_helper, parser
from planted import saturates

SATURATES = "onnx-api:planted.saturates"
TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[2,8] x) => (float[2,3] y) {
    q, scale, zero = DynamicQuantizeLinear (x)
    sums = MatMulInteger (q, w)
    floats = Cast <to = 1> (sums)
    y = Mul (floats, scale) }"""


def check(directory: Path, largest: int, status: int) -> dict[str, Any]:
    """Check a product with weights up to `largest` on a processor without VNNI."""
    weights = np.random.default_rng(0).integers(-largest, largest + 1, (8, 3)).astype(np.int8)
    weights[:2] = largest
    model = parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, directory / "product.onnx")
    np.savez(directory / "x.npz", x=np.linspace(0, 1, 16, dtype=np.float32).reshape(2, 8))
    inputs = ("--inputs", directory / "x.npz", "--backend", SATURATES)
    (way,) = checked(directory / "product.onnx", *inputs, status=status)["ways"]
    return dict(way)


def test_pairs_of_products_saturate_as_on_such_a_processor() -> None:
    a, b = np.full((1, 4), 255, np.uint8), np.full((4, 2), 127, np.int8)
    header = '<ir_version: 8, opset_import: ["": 17]>'
    text = f"{header} g (uint8[1,4] a, int8[4,2] b) => (int32[1,2] y) {{ y = MatMulInteger (a, b) }}"
    # What ONNX Runtime 1.32 gives on Haswell.
    (got,) = saturates.prepare(parser.parse_model(text), "CPU").run([a, b])
    assert got.tolist() == [[65534, 65534]]


def test_a_saturating_kernel_is_named(tmp_path: Path) -> None:
    way = check(tmp_path, 127, status=1)
    cause = way["cause"]
    assert (cause["component"], cause["place"], cause["fault"]) == (SATURATES, "MatMulInteger", "saturates-in-16-bits")


def test_weights_within_7_bits_are_safe(tmp_path: Path) -> None:
    assert check(tmp_path, 63, status=0)["survives"]
