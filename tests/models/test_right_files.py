"""`conformance check FILE.onnx`: files as people have them survive, and each of their nodes is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from commands import checked
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.float16 import convert_float_to_float16

SHAPE = (2, 3, 8, 8)


class Network(torch.nn.Module):
    """Convolutions, an activation and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 16, 3, stride=2)
        self.last = torch.nn.Linear(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classify images."""
        x = torch.nn.functional.hardswish(self.second(torch.relu(self.first(x))))
        return torch.softmax(self.last(x.mean((2, 3))), -1)


class Images(CalibrationDataReader):  # type: ignore[misc]
    """Eight inputs by which a quantiser chooses its scales."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._images: Iterator[np.ndarray] = (random.standard_normal(SHAPE, np.float32) for _ in range(8))

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next input, or None at the end."""
        image = next(self._images, None)
        return None if image is None else {"x": image}


def exported(path: Path, opset: int) -> Path:
    """Export the network with TorchScript."""
    torch.manual_seed(0)
    torch.onnx.export(
        Network().eval(), (torch.ones(SHAPE),), str(path), dynamo=False, opset_version=opset, input_names=["x"]
    )
    return path


def write_float16(path: Path) -> None:
    """Convert the weights to float16, with ONNX Runtime's tool."""
    onnx.save(convert_float_to_float16(onnx.load(exported(path, 17)), keep_io_types=True), path)


def write_dynamic_int8(path: Path) -> None:
    """Quantise weights, and activations as they come."""
    quantize_dynamic(exported(path, 17), path, weight_type=QuantType.QInt8, reduce_range=True)


def write_static_int8(path: Path) -> None:
    """Quantise weights and activations, with scales that are chosen beforehand."""
    kinds = {"quant_format": QuantFormat.QDQ, "weight_type": QuantType.QInt8}
    quantize_static(exported(path, 17), path, Images(), reduce_range=True, **kinds)


def write_int4(path: Path) -> None:
    """Quantise the weights of products to 4 bits."""
    quantiser = MatMulNBitsQuantizer(onnx.load(exported(path, 17)), block_size=16, is_symmetric=True)
    quantiser.process()
    quantiser.model.save_model_to_file(str(path))


def write_optimised(path: Path) -> None:
    """Keep the graph that ONNX Runtime makes of a file."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(exported(path.with_stem("plain"), 17), options)


def write_with_external_data(path: Path) -> None:
    """Keep the weights in a file next to the model."""
    model = onnx.load(exported(path, 17))
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)


def write_opset_11(path: Path) -> None:
    """Export at an opset of 2019."""
    exported(path, 11)


WRITERS = [
    *(write_float16, write_dynamic_int8, write_static_int8, write_int4),
    *(write_optimised, write_with_external_data, write_opset_11),
]


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.removeprefix("write_"))
def test_a_right_file_survives_and_each_node_is_judged(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write(path)
    (way,) = checked(path)["ways"]
    assert (way["survives"], way["nodes"]["unjudged"], way["nodes"]["wrong"]) == (True, [], 0)
