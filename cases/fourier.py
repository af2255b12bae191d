"""Fourier transforms. Complex numbers reach an exported model as pairs of reals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.compare.judge import EXACT, Judge
from harness.core.dtypes import ALL, BOOL, COMPLEX, FULL_FLOATS, INTS, Array, is_float
from harness.core.invocation import TensorSpec
from harness.generate.draw import ANY, OMIT, Domain, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("fourier")

REAL = (*FULL_FLOATS, *INTS, *BOOL)
NORMS = ("backward", "ortho", "forward")

#: The arguments → the dims transformed, the signal's size in each, and the factor of the sum.
Plan = Callable[[Mapping[str, Any], Array], tuple[list[int], list[int], float]]


def _bounded(kind: str, plan: Plan) -> Judge:
    """A transform sums its input times factors of magnitude 1.

    The sum of the terms' magnitudes is that of the input's, whatever the frequency.

    Args:
        kind: ``c2c``; ``r2c``, of which half is returned; ``full``, all of a real one's spectrum; ``c2r``, to
            which each term but the first contributes twice.
        plan: How the overload's arguments say what is transformed.
    """

    def terms(arguments: Mapping[str, Any]) -> Array:
        data = np.abs(arguments["self"])
        dims, sizes, factor = plan(arguments, data)
        result = list(data.shape)
        for i, (dim, size) in enumerate(zip(dims, sizes, strict=True)):
            half = i == len(dims) - 1
            kept = size // 2 + 1 if kind == "c2r" and half else size
            data = data.take(range(min(kept, data.shape[dim])), dim).sum(dim, keepdims=True)
            result[dim] = size // 2 + 1 if kind == "r2c" and half else size
        magnitude = np.broadcast_to(data * factor * (2 if kind == "c2r" else 1), result)
        return magnitude if kind == "c2r" else _pairs(magnitude)

    return Judge(terms=terms)


def _pairs(magnitude: Array) -> Array:
    """Return the magnitude for the real and for the imaginary part."""
    return np.stack([magnitude, magnitude], -1)


def _factor(norm: str | None, size: int, *, forward: bool) -> float:
    if norm == "ortho":
        return 1.0 / math.sqrt(size)
    return 1.0 / size if (norm == "forward") == forward else 1.0


def _values(d: Draw) -> Domain:
    """Far enough from the largest number that no order of summing and scaling overflows."""
    if not is_float(d.dtype) and d.dtype not in COMPLEX:
        return ANY
    return d.choose(between(-4.0, 4.0), between(-4.0, 4.0), between(-1e4, 1e4), between(-1e30, 1e30))


# The transforms that PyTorch's composite ones call


def _kernel_plan(arguments: Mapping[str, Any], data: Array) -> tuple[list[int], list[int], float]:
    dims = list(arguments["dim"])
    sizes = [data.shape[d] for d in dims]
    if "last_dim_size" in arguments:
        sizes[-1] = arguments["last_dim_size"]
    factor = (1.0, 1.0 / math.sqrt(math.prod(sizes)), 1.0 / math.prod(sizes))[arguments["normalization"]]
    return dims, sizes, factor


def _kernel(d: Draw) -> tuple[tuple[int, ...], list[int]]:
    """A shape with elements and dims of it, none negative: the composite operators see to that."""
    shape = d.shape(1, min_size=1)
    return shape, [dim % len(shape) for dim in d.dims(len(shape), min_count=1)]


@ops.case("_fft_c2c", dtypes=COMPLEX, judge=_bounded("c2c", _kernel_plan))
def complex_kernel(d: Draw) -> Arguments:
    shape, dims = _kernel(d)
    return {
        "self": d.tensor(shape, domain=_values(d)),
        "dim": dims,
        "normalization": d.choose(0, 1, 2),
        "forward": d.boolean(),
    }


def _real_kernel_terms(arguments: Mapping[str, Any]) -> Array:
    judge = _bounded("r2c" if arguments["onesided"] else "full", _kernel_plan)
    assert judge.terms is not None
    return np.asarray(judge.terms(arguments))


@ops.case("_fft_r2c", dtypes=FULL_FLOATS, judge=Judge(terms=_real_kernel_terms))
def real_kernel(d: Draw) -> Arguments:
    shape, dims = _kernel(d)
    return {
        "self": d.tensor(shape, domain=_values(d)),
        "dim": dims,
        "normalization": d.choose(0, 1, 2),
        "onesided": d.choose(True, True, False),
    }


@ops.case("_fft_c2r", dtypes=COMPLEX, judge=_bounded("c2r", _kernel_plan))
def inverse_real_kernel(d: Draw) -> Arguments:
    shape, dims = _kernel(d)
    half = shape[dims[-1]]
    return {
        "self": d.tensor(shape, domain=_values(d)),
        "dim": dims,
        "normalization": d.choose(0, 1, 2),
        "last_dim_size": max(2 * (half - 1) + d.choose(0, 1), 1),
    }


# One dim


def _norm(d: Draw) -> Any:
    return d.maybe(lambda: d.choose(*NORMS), none=True)


def _half(kind: str, size: int) -> int:
    """Return the default length of the signal with a spectrum of `size`."""
    return 2 * (size - 1) if kind == "c2r" else size


def _one_dim(kind: str, *, forward: bool) -> Judge:
    def plan(arguments: Mapping[str, Any], data: Array) -> tuple[list[int], list[int], float]:
        dim = arguments.get("dim", -1) % data.ndim
        size = arguments.get("n") or _half(kind, data.shape[dim])
        return [dim], [size], _factor(arguments.get("norm"), size, forward=forward)

    return _bounded(kind, plan)


def _perhaps_nothing(d: Draw, shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """Now and then of no length along `dim`: a signal of nothing, filled up with zeros to what is asked."""
    if d.integer(0, 11) < 11:
        return shape
    return tuple(0 if i == dim % len(shape) else size for i, size in enumerate(shape))


def _line(d: Draw, kind: str) -> Arguments:
    shape = d.shape(1, min_size=1)
    dim = d.maybe(lambda: d.dim(len(shape)))
    axis = -1 if dim is OMIT else dim
    shape = _perhaps_nothing(d, shape, axis)
    # A spectrum of one frequency says too little of how long its signal was.
    tiny = shape[axis] < (2 if kind == "c2r" else 1)
    sizes = (1, 2, 4, 5, 8, 9, 16, 17, shape[axis] or 33)
    n = d.choose(*sizes) if tiny else d.maybe(lambda: d.choose(*sizes), none=True)
    return {"self": d.tensor(shape, domain=_values(d)), "n": n, "dim": dim, "norm": _norm(d)}


@ops.case("fft_fft", dtypes=(*REAL, *COMPLEX), judge=_one_dim("c2c", forward=True))
@ops.case("fft_ifft", dtypes=(*REAL, *COMPLEX), judge=_one_dim("c2c", forward=False))
@ops.case("fft_rfft", dtypes=REAL, judge=_one_dim("r2c", forward=True))
@ops.case("fft_ihfft", dtypes=REAL, judge=_one_dim("r2c", forward=False))
def line(d: Draw) -> Arguments:
    return _line(d, "c2c")


@ops.case("fft_irfft", dtypes=(*REAL, *COMPLEX), judge=_one_dim("c2r", forward=False))
@ops.case("fft_hfft", dtypes=(*REAL, *COMPLEX), judge=_one_dim("c2r", forward=True))
def line_to_real(d: Draw) -> Arguments:
    return _line(d, "c2r")


# Several dims


def _many_dims(kind: str, *, forward: bool, two: bool) -> Judge:
    def plan(arguments: Mapping[str, Any], data: Array) -> tuple[list[int], list[int], float]:
        given, dim = arguments.get("s"), arguments.get("dim", (-2, -1) if two else None)
        if dim is None:
            dim = range(data.ndim - len(given), data.ndim) if given else range(data.ndim)
        dims = [axis % data.ndim for axis in dim]
        sizes = list(given) if given else [data.shape[axis] for axis in dims]
        if not given and sizes:
            sizes[-1] = _half(kind, sizes[-1])
        for i, (axis, size) in enumerate(zip(dims, sizes, strict=True)):
            if size == -1:
                last = i == len(dims) - 1
                sizes[i] = _half(kind, data.shape[axis]) if last else data.shape[axis]
        return dims, sizes, _factor(arguments.get("norm"), math.prod(sizes), forward=forward)

    return _bounded(kind, plan)


def _block(d: Draw, kind: str, *, two: bool) -> Arguments:
    # `dim` may name fewer than two in functions of two, too.
    least_rank = 2 if two else 1 if kind != "c2c" else 0
    shape = d.shape(1 if two and kind == "c2c" and d.integer(0, 9) == 9 else least_rank, min_size=1)
    rank = len(shape)
    if not rank:
        return {"self": d.tensor(shape, domain=_values(d)), "dim": d.choose(OMIT, None, []), "norm": _norm(d)}
    least = min(rank, 2) if two else 1
    if kind == "c2c" and d.integer(0, 9) == 9:
        least = 0
    dims: Any = d.dims(rank, min_count=least, max_count=2 if two else None)
    dim = d.choose(dims, *((OMIT,) if rank > 1 or not two else ()), *(() if two else (None,)))
    over = dims if dim is dims else range(-2, 0) if two else range(rank)
    shape = _perhaps_nothing(d, shape, over[-1]) if over else shape
    # A spectrum of one frequency says too little of how long its signal was.
    tiny = any(shape[i] < 1 for i in over) or (kind == "c2r" and shape[over[-1]] == 1)
    sizes = [d.choose(2, 4, 5, 8, 9, *(() if tiny else (-1,))) for _ in over]
    return {
        "self": d.tensor(shape, domain=_values(d)),
        "s": sizes if tiny else d.maybe(lambda: sizes, none=True),
        "dim": dim,
        "norm": _norm(d),
    }


for two, suffix in ((True, "2"), (False, "n")):

    @ops.case(f"fft_fft{suffix}", dtypes=(*REAL, *COMPLEX), judge=_many_dims("c2c", forward=True, two=two))
    @ops.case(f"fft_ifft{suffix}", dtypes=(*REAL, *COMPLEX), judge=_many_dims("c2c", forward=False, two=two))
    def block(d: Draw, two: bool = two) -> Arguments:
        return _block(d, "c2c", two=two)

    @ops.case(f"fft_rfft{suffix}", dtypes=REAL, judge=_many_dims("r2c", forward=True, two=two))
    @ops.case(f"fft_ihfft{suffix}", dtypes=REAL, judge=_many_dims("r2c", forward=False, two=two))
    def block_of_real(d: Draw, two: bool = two) -> Arguments:
        return _block(d, "r2c", two=two)

    @ops.case(f"fft_irfft{suffix}", dtypes=(*REAL, *COMPLEX), judge=_many_dims("c2r", forward=False, two=two))
    @ops.case(f"fft_hfft{suffix}", dtypes=(*REAL, *COMPLEX), judge=_many_dims("c2r", forward=True, two=two))
    def block_to_real(d: Draw, two: bool = two) -> Arguments:
        return _block(d, "c2r", two=two)


@ops.case("fft_fftshift", "fft_ifftshift", dtypes=(*ALL, *COMPLEX), judge=EXACT)
def shift(d: Draw) -> Arguments:
    shape = d.shape(1)
    return {"self": d.tensor(shape), "dim": d.maybe(lambda: d.dims(len(shape), min_count=1), none=True)}


# Short-time transforms


def _frames(arguments: Mapping[str, Any]) -> tuple[int, int, Array]:
    """Size of a frame, hop, and the window's magnitude centred in a frame."""
    n_fft = arguments["n_fft"]
    hop, length = arguments.get("hop_length") or n_fft // 4, arguments.get("win_length") or n_fft
    window = arguments.get("window")
    ones = np.ones(length) if window is None else np.abs(window).astype(np.float64)
    left = (n_fft - length) // 2
    return n_fft, hop, np.pad(ones, (left, n_fft - length - left))


def _stft_terms(arguments: Mapping[str, Any]) -> Array:
    n_fft, hop, window = _frames(arguments)
    data = np.abs(arguments["self"]).astype(np.float64)
    if arguments.get("center", False):
        around = [(0, 0)] * (data.ndim - 1) + [(n_fft // 2, n_fft // 2)]
        modes: Any = {"reflect": "reflect", "replicate": "edge", "constant": "constant"}
        data = np.pad(data, around, mode=modes[arguments.get("pad_mode", "reflect")])
    starts = range(0, data.shape[-1] - n_fft + 1, hop)
    sums = np.stack([(data[..., s : s + n_fft] * window).sum(-1) for s in starts], -1)
    onesided = arguments.get("onesided")
    if onesided is None:
        onesided = arguments["self"].dtype.kind != "c"
    frequencies = n_fft // 2 + 1 if onesided else n_fft
    factor = 1.0 / math.sqrt(n_fft) if arguments.get("normalized", False) else 1.0
    return _pairs(np.repeat(sums[..., None, :], frequencies, -2) * factor)


def _window(d: Draw, n_fft: int) -> dict[str, Any]:
    length = d.choose(n_fft, n_fft, max(n_fft // 2, 1), 1 + n_fft // 3)
    dtype = d.dtype if is_float(d.dtype) else {"complex64": "float32"}.get(d.dtype, "float64")
    if is_float(d.dtype):
        dtype = d.choose(*[dtype] * 6, *FULL_FLOATS, "int64")
    window = d.maybe(lambda: d.tensor((length,), dtype, between(0.5, 2.0)), none=True)
    given = OMIT if length == n_fft and d.boolean() else length
    return {"win_length": given, "window": window, "hop_length": d.maybe(lambda: d.choose(1, 2, 3, 4))}


def _stft(d: Draw) -> tuple[dict[str, Any], int]:
    n_fft = d.choose(4, 5, 8, 7, 16)
    signal = d.tensor((*d.choose((), (2,), (3,), (1,)), n_fft + d.choose(0, 1, 5, 17, 111, 239)), domain=_values(d))
    sided = OMIT if d.dtype in COMPLEX else d.maybe(d.boolean, none=True)
    return {
        "self": signal,
        "n_fft": n_fft,
        **_window(d, n_fft),
        "normalized": d.maybe(d.boolean),
        "onesided": sided,
        "return_complex": d.choose(True, True, OMIT) if d.dtype in COMPLEX else d.choose(True, True, False),
    }, n_fft


@ops.case("stft", dtypes=(*FULL_FLOATS, *COMPLEX), judge=Judge(terms=_stft_terms))
def stft(d: Draw) -> Arguments:
    arguments, n_fft = _stft(d)
    return {**arguments, "align_to_window": _alignment(d, arguments, n_fft)}


def _alignment(d: Draw, arguments: Mapping[str, Any], n_fft: int) -> Any:
    """Whether frames follow the window: where it is as long as they are, that is not a question."""
    whole = arguments["win_length"] in (OMIT, n_fft)
    return d.maybe(lambda: d.choose(False, True) if whole else False, none=True)


def _centred_terms(arguments: Mapping[str, Any]) -> Array:
    return _stft_terms({"center": True, **arguments})


@ops.case("stft.center", dtypes=(*FULL_FLOATS, *COMPLEX), judge=Judge(terms=_centred_terms))
def stft_centred(d: Draw) -> Arguments:
    arguments, n_fft = _stft(d)
    modes = ("reflect", "constant") if d.dtype in COMPLEX else ("reflect", "constant", "replicate")
    centred = d.maybe(d.boolean)
    return {
        **arguments,
        "center": centred,
        "pad_mode": d.maybe(lambda: d.choose(*modes)),
        "align_to_window": _alignment(d, arguments, n_fft) if centred is False else d.choose(OMIT, None),
    }


def _istft_terms(arguments: Mapping[str, Any]) -> Array:
    n_fft, hop, window = _frames(arguments)
    spectrum = np.abs(arguments["self"])
    # A frame is a sum over all frequencies, for a real signal over half of them, which count twice; frames
    # are added and divided by the sum of the windows' squares.
    real = not arguments.get("return_complex", False)
    sums = 2.0 * spectrum[..., : n_fft // 2 + 1, :].sum(-2) if real else spectrum.sum(-2)
    sums = sums * (1.0 / math.sqrt(n_fft) if arguments.get("normalized", False) else 1.0 / n_fft)
    count = sums.shape[-1]
    total = np.zeros((*sums.shape[:-1], n_fft + hop * (count - 1)))
    weight = np.zeros(total.shape[-1])
    for frame in range(count):
        at = slice(frame * hop, frame * hop + n_fft)
        total[..., at] += sums[..., frame, None] * window
        weight[at] += window**2
    start = n_fft // 2 if arguments.get("center", True) else 0
    length = arguments.get("length")
    stop = start + length if length is not None else total.shape[-1] - start
    with np.errstate(all="ignore"):
        signal = (total / weight)[..., start:stop]
    missing = (length or signal.shape[-1]) - signal.shape[-1]
    signal = np.pad(signal, [(0, 0)] * (signal.ndim - 1) + [(0, missing)])
    return signal if real else _pairs(signal)


@ops.case("istft", dtypes=COMPLEX, judge=Judge(terms=_istft_terms))
def istft(d: Draw) -> Arguments:
    n_fft, count = d.choose(4, 5, 8, 7), d.choose(3, 4, 5, 8)
    whole = d.choose(False, False, True)
    spectrum = _spectrum(d, n_fft if whole else n_fft // 2 + 1, count)
    real = d.dtype == "complex64"
    # Windows as wide as a frame and hops not wider: no sample is left without weight.
    window = d.tensor((n_fft,), "float32" if real else "float64", between(0.5, 2.0))
    return {
        "self": spectrum,
        "n_fft": n_fft,
        "hop_length": d.choose(OMIT, 1, 2, None),
        "win_length": d.choose(OMIT, None, n_fft),
        "window": d.choose(window, OMIT, None),
        "center": d.maybe(d.boolean),
        "normalized": d.maybe(d.boolean),
        "onesided": False if whole else d.choose(OMIT, None, True),
        "length": d.choose(OMIT, None, OMIT, 3),
        "return_complex": d.choose(OMIT, True) if whole else OMIT,
    }


def _spectrum(d: Draw, frequencies: int, count: int) -> TensorSpec:
    return d.tensor((*d.choose((), (2,), (1,)), frequencies, count), domain=between(-4.0, 4.0))
