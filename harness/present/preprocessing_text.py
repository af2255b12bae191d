"""Describe how two preprocessing functions differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

from harness.models.preprocessing import PreprocessingDifference, PreprocessingFound


def preprocessing_lines(found: PreprocessingFound) -> Iterator[str]:
    """Yield a line for each kind of difference, with the number of files that have it and the first of them."""
    if not found.differences:
        yield f"the two functions give the same tensors for all {found.files} files"
    for kind, group in groupby(sorted(found.differences, key=lambda d: d.kind), key=lambda d: d.kind):
        differences = list(group)
        files = len({difference.file for difference in differences})
        yield f"{files} of {found.files} files, {differences[0].file} first: {_WORDS[kind](differences[0])}"


def _numbers(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers)


def _affine(d: PreprocessingDifference) -> str:
    each = " in each channel" if d.kind == "scale-per-channel" else ""
    return f"the second function's numbers are the first's times {_numbers(d.scale)} plus {_numbers(d.offset)}{each}"


_WORDS: Mapping[str, Callable[[PreprocessingDifference], str]] = {
    "names": lambda d: f"the first function gives {d.first}, the second {d.second}",
    "dtype": lambda d: f"the first function gives {d.first}, the second {d.second}",
    "shape": lambda d: f"the first function gives the shape {d.first}, the second {d.second}",
    "layout": lambda d: f"the second function orders the dimensions otherwise: {d.first} becomes {d.second}",
    "channels": lambda d: "the second function has the channels in reverse, as BGR in place of RGB",
    "scale": _affine,
    "scale-per-channel": _affine,
    "values": lambda d: (
        f"the numbers differ by up to {d.largest:.2g} of the largest (correlation {d.correlation:.4f}), "
        "as by another interpolation or another crop"
    ),
}
