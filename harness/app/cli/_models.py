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
    from harness.pipeline.model_task import NO_FILES, GivenFiles, absolute_word

    if inputs is None:
        return NO_FILES
    if not inputs.exists():
        raise click.UsageError(f"--inputs {inputs}: no such file or folder")
    return GivenFiles(str(inputs.absolute()), absolute_word(function) if function else "")


#: Digits of a case's id.
_HEXADECIMAL = frozenset("0123456789abcdef")


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


def axis_of(text: str) -> Axis:
    """Parse ``x:0=1..8``."""
    from harness.pipeline.model_task import Axis

    try:
        return Axis.parse(text)
    except ValueError as error:
        raise click.UsageError(f"--axis {error}") from None


def dtypes_of(text: str) -> tuple[str, ...]:
    """Parse ``float16,bfloat16``: further dtypes to try a model in."""
    known = ("float16", "bfloat16", "float32", "float64")
    dtypes = tuple(word for word in text.split(",") if word)
    for dtype in dtypes:
        if dtype not in known:
            raise click.UsageError(f"--also {dtype}: a model can be run in {', '.join(known)}")
    return dtypes
