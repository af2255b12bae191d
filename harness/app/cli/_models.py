"""Options and helpers for commands that take a model, MODEL, in place of a case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.core.route import is_onnx_file

if TYPE_CHECKING:
    from harness.pipeline.model_task import Axis, GivenFiles

axes_option = click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="INPUT:DIM=SIZES",
    help="A dynamic dimension: x:0=1..8, x:2=7,12. Repeatable.",
)
inputs_option = click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Inputs to run with: .npz, .npy or .pb, or a folder of them.",
)
also_option = click.option("--also", metavar="DTYPES", default="", help="Dtypes to try in addition: float16,bfloat16.")


@dataclass(frozen=True)
class Limits:
    """Seconds of a step, and bytes of the worker."""

    timeout: float
    memory: int


def given_files(inputs: Path | None, function: str) -> GivenFiles:
    """Return a user's inputs; a file that is missing is reported."""
    from harness.pipeline.model_task import NO_FILES, GivenFiles

    if inputs is None:
        return NO_FILES
    if not inputs.exists():
        raise click.UsageError(f"--inputs {inputs}: no such file or folder")
    return GivenFiles(str(inputs.absolute()), resolved(function) if function else "")


#: Digits of a case's id.
_HEXADECIMAL = frozenset("0123456789abcdef")


def resolved(word: str) -> str:
    """Return a word with an absolute path for its file, if it names one."""
    file, colon, function = word.rpartition(":")
    if colon and Path(file).is_file():
        return f"{Path(file).resolve()}:{function}"
    return str(Path(word).resolve()) if Path(word).is_file() else word


def is_model(word: str) -> bool:
    """Whether a word names a model rather than a case or a file of invocations.

    ``FILE.py:FUNCTION``, ``FILE.pt2`` and ``FILE.onnx`` do, and the name of a model in ``cases/models``.
    """
    from harness.pipeline.model_task import split_word

    if is_onnx_file(word) or split_word(word)[0] is not None:
        return True
    if set(word) <= _HEXADECIMAL or word.endswith((".json", ".jsonl")) or "/" in word:
        return False
    from harness.pipeline.model_loading import load_models

    return word in load_models()


#: Sizes of a range that are tried.
_OF_RANGE = 4


def axis_of(text: str) -> Axis:
    """Parse ``x:0=1..8``: dimension 0 of x has any size from 1 to 8; ``x:0=3,7``: 3 and 7."""
    from harness.pipeline.model_task import Axis

    place, _, words = text.partition("=")
    name, _, dim = place.partition(":")
    first, dots, last = words.partition("..")
    numbers = (first, last) if dots else words.split(",")
    if not name or not all(word.isdecimal() for word in (dim, *numbers)):
        raise click.UsageError(f"--axis {text}: write INPUT:DIM=SIZES, such as x:0=1..8 or x:2=7,12")
    sizes = sorted({int(word) for word in numbers})
    if dots:
        low, high = int(first), int(last)
        if low > high:
            raise click.UsageError(f"--axis {text}: the range is empty")
        step = max((high - low) / (_OF_RANGE - 1), 1)
        sizes = sorted({min(round(low + i * step), high) for i in range(_OF_RANGE)})
    return Axis(f"{name}:{dim}", {name: int(dim)}, tuple(sizes))


def dtypes_of(text: str) -> tuple[str, ...]:
    """Parse ``float16,bfloat16``: further dtypes to try a model in."""
    known = ("float16", "bfloat16", "float32", "float64")
    dtypes = tuple(word for word in text.split(",") if word)
    for dtype in dtypes:
        if dtype not in known:
            raise click.UsageError(f"--also {dtype}: a model can be run in {', '.join(known)}")
    return dtypes
