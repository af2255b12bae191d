"""Convert tensors to arrays and back.

bfloat16 and float8 are `ml_dtypes` arrays. Complex numbers are pairs of real and imaginary part in an additional last
dimension, as exporters represent them.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes  # noqa: F401 - NumPy knows its dtypes by name then
import numpy as np
import torch

from harness.core.dtypes import Array

#: Dtypes that NumPy lacks → an integer dtype of the same size.
_RAW = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.int8}


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a C-contiguous array with the tensor's shape and values; it may share the tensor's memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype in _RAW:
        bits: Array = tensor.view(_RAW[tensor.dtype]).numpy()
        return bits.view(np.dtype(str(tensor.dtype).removeprefix("torch.")))
    array: Array = tensor.numpy()
    return array


def to_torch(array: Array, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return a tensor with the values of an array, in memory of its own.

    Args:
        array: An array as `to_numpy` makes it.
        like: A tensor whose complex dtype and memory order the result takes; None means real and row-major.
    """
    if array.dtype.isbuiltin == 1:
        # Copied, since PyTorch warns about read-only arrays.
        tensor = torch.from_numpy(np.array(array, order="C"))
    else:
        bits = torch.from_numpy(np.array(array.view(np.dtype(f"i{array.dtype.itemsize}"))))
        tensor = bits.view(getattr(torch, array.dtype.name))
    if like is None:
        return tensor
    if like.is_complex():
        tensor = torch.view_as_complex(_filled(tensor, range(tensor.dim())))
    strides = like.stride()
    # Expanded dimensions go first, so that the rest is repeated as a whole.
    return _filled(tensor, sorted(range(like.dim()), key=lambda dim: (strides[dim] != 0, -strides[dim])))


def _filled(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Return a copy whose memory has the dimensions in `order`; NumPy gives empty arrays other strides."""
    places = [list(order).index(dim) for dim in range(tensor.dim())]
    return torch.empty([tensor.shape[dim] for dim in order], dtype=tensor.dtype).permute(places).copy_(tensor)
