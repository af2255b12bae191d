"""Slips in moving elements about: order, dims, joining, padding."""

from __future__ import annotations

from collections.abc import Sequence

from planted.defect import Value, ints, number, op, plant, positive


@plant("flip", "one dim is flipped")
def flip(slipped: bool, self: Value, dims: Sequence[int]) -> Value:
    chosen = list(dims)[:1] if slipped else list(dims)
    if not chosen or not self.shape:
        return op.Identity(self)
    ones = [-1] * len(chosen)
    return op.Slice(self, ints(*ones), ints(*([-(2**62)] * len(chosen))), ints(*chosen), ints(*ones))


@plant("roll", "shifts go the other way")
def roll(slipped: bool, self: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    result, whole = self, ints(*map(int, self.shape))
    if not dims:
        result = op.Reshape(self, ints(-1))
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        size = int(self.shape[dim]) if dims else _elements(self)
        if size:
            cut = (shift if slipped else -shift) % size
            axis, zero = ints(dim), ints(0)
            head = op.Slice(result, zero, ints(cut), axis)
            tail = op.Slice(result, ints(cut), ints(size), axis)
            result = op.Concat(tail, head, axis=dim)
    return result if dims else op.Reshape(result, whole)


def _elements(value: Value) -> int:
    count = 1
    for size in value.shape:
        count *= int(size)
    return count


@plant("tril", "the diagonal is ignored")
def tril(slipped: bool, self: Value, diagonal: int = 0) -> Value:
    return op.Trilu(self, op.Constant(value_int=0 if slipped else diagonal), upper=0)


@plant("triu", "the diagonal is off by one")
def triu(slipped: bool, self: Value, diagonal: int = 0) -> Value:
    return op.Trilu(self, op.Constant(value_int=diagonal + slipped), upper=1)


@plant("slice.Tensor", "a negative start is cut off at zero")
def slice_tensor(
    slipped: bool, self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    first = start or 0
    last = 2**62 if end is None else end
    return op.Slice(self, ints(max(first, 0) if slipped else first), ints(last), ints(dim), ints(step))


@plant("select.int", "a negative index is cut off at zero")
def select(slipped: bool, self: Value, dim: int, index: int) -> Value:
    return op.Gather(self, op.Constant(value_int=max(index, 0) if slipped else index), axis=dim)


@plant("pixel_shuffle", "channels are split in the other order")
def pixel_shuffle(slipped: bool, self: Value, upscale_factor: int) -> Value:
    sizes = [int(size) for size in self.shape]
    channels, height, width = sizes[-3:]
    flat = op.Reshape(self, ints(-1, channels, height, width))
    done = op.DepthToSpace(flat, blocksize=upscale_factor, mode="DCR" if slipped else "CRD")
    r = upscale_factor
    return op.Reshape(done, ints(*sizes[:-3], channels // r**2, height * r, width * r))


@plant("permute", "the permutation is inverted")
def permute(slipped: bool, self: Value, dims: Sequence[int]) -> Value:
    order = [positive(dim, len(dims)) for dim in dims]
    if not order:
        return op.Identity(self)
    if slipped:
        order = [order.index(i) for i in range(len(order))]
    return op.Transpose(self, perm=order)


@plant("transpose.int", "the last two dims are swapped, whichever were asked for")
def transpose(slipped: bool, self: Value, dim0: int, dim1: int) -> Value:
    rank = len(self.shape)
    if rank < 2:
        return op.Identity(self)
    first, second = (rank - 2, rank - 1) if slipped else (positive(dim0, rank), positive(dim1, rank))
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return op.Transpose(self, perm=order)


@plant("unsqueeze", "a negative dim is counted in the old rank")
def unsqueeze(slipped: bool, self: Value, dim: int) -> Value:
    rank = len(self.shape)
    axis = dim if dim >= 0 else dim + rank + (0 if slipped and rank else 1)
    return op.Unsqueeze(self, ints(max(axis, 0)))


@plant("cat", "the axis is the first")
def cat(slipped: bool, tensors: Sequence[Value], dim: int = 0) -> Value:
    # PyTorch's empty vector goes with anything.
    rank = max(len(tensor.shape) for tensor in tensors)
    joined = [tensor for tensor in tensors if len(tensor.shape) == rank]
    return op.Concat(*joined, axis=0 if slipped else dim)


@plant("stack", "a negative dim is counted in the old rank")
def stack(slipped: bool, tensors: Sequence[Value], dim: int = 0) -> Value:
    rank = len(tensors[0].shape)
    axis = max(dim if dim >= 0 else dim + rank + (0 if slipped and rank else 1), 0)
    return op.Concat(*(op.Unsqueeze(tensor, ints(axis)) for tensor in tensors), axis=axis)


# Padding


@plant("constant_pad_nd", "both ends are swapped")
def constant_pad(slipped: bool, self: Value, pad: Sequence[int], value: float = 0.0) -> Value:
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    if slipped:
        pairs = [(end, begin) for begin, end in pairs]
    return op.Pad(self, _pads(pairs, len(self.shape)), number(value or 0, self))


def _pads(last_first: Sequence[tuple[int, int]], rank: int) -> Value:
    """PyTorch lists the last dimension first, ONNX all beginnings before all ends."""
    pairs = [(0, 0)] * (rank - len(last_first)) + list(last_first)[::-1]
    return ints(*(begin for begin, _ in pairs), *(end for _, end in pairs))


@plant("reflection_pad1d", "the edge is repeated")
def reflection_pad(slipped: bool, self: Value, padding: Sequence[int]) -> Value:
    pads = _pads([(padding[0], padding[1])], len(self.shape))
    return op.Pad(self, pads, mode="edge" if slipped else "reflect")


@plant("replication_pad2d", "height and width are swapped")
def replication_pad(slipped: bool, self: Value, padding: Sequence[int]) -> Value:
    pairs = [(padding[0], padding[1]), (padding[2], padding[3])]
    return op.Pad(self, _pads(pairs[::-1] if slipped else pairs, len(self.shape)), mode="edge")


# Order


@plant("sort", "descending is ignored")
def sort(slipped: bool, self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    size = int(self.shape[dim])
    largest = int(descending and not slipped)
    values, indices = op.TopK(self, ints(size), axis=dim, largest=largest, sorted=1)
    return values, indices


@plant("topk", "largest is ignored")
def topk(
    slipped: bool, self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    values, indices = op.TopK(self, ints(k), axis=dim, largest=int(largest or slipped), sorted=1)
    return values, indices
