"""Tensors as arrays and back.

bfloat16 and float8 are as `ml_dtypes` has them; complex numbers are pairs of real and imaginary part in one more
dimension, which is how exporters represent them.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes  # noqa: F401 - NumPy knows its dtypes by name then
import numpy as np
import torch

from harness.core.dtypes import Array

#: What NumPy lacks.
_RAW = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.int8}


def to_numpy(tensor: torch.Tensor) -> Array:
    """A C-contiguous array of the tensor's shape and values, which may share its memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype in _RAW:
        bits: Array = tensor.view(_RAW[tensor.dtype]).numpy()
        return bits.view(np.dtype(str(tensor.dtype).removeprefix("torch.")))
    found: Array = tensor.numpy()
    return found


def to_torch(array: Array, like: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor of its own memory with the values of an array.

    Args:
        array: As `to_numpy` makes it.
        like: A tensor that says whether pairs are complex numbers, and in which order memory has the dimensions; None
            for real numbers, row by row.
    """
    if array.dtype.isbuiltin == 1:
        # A copy: PyTorch warns of arrays that must not be written to.
        tensor = torch.from_numpy(np.array(array, order="C"))
    else:
        bits = torch.from_numpy(np.array(array.view(np.dtype(f"i{array.dtype.itemsize}"))))
        tensor = bits.view(getattr(torch, array.dtype.name))
    if like is None:
        return tensor
    if like.is_complex():
        tensor = torch.view_as_complex(_filled(tensor, range(tensor.dim())))
    strides = like.stride()
    # What is expanded is repeated as a whole.
    return _filled(tensor, sorted(range(like.dim()), key=lambda dim: (strides[dim] != 0, -strides[dim])))


def _filled(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """A copy whose memory has the dimensions in an order. NumPy gives arrays without elements strides of its own."""
    places = [list(order).index(dim) for dim in range(tensor.dim())]
    return torch.empty([tensor.shape[dim] for dim in order], dtype=tensor.dtype).permute(places).copy_(tensor)
