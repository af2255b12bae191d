"""PyTorch on row-major copies of the inputs."""

from __future__ import annotations

from collections.abc import Iterator

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness


@witness("PyTorch on row-major copies", place=90)
def ask_row_major(trial: Trial) -> Iterator[Testimony]:
    """A layout is no part of a value: some kernels of PyTorch read strided or expanded inputs wrongly."""
    if trial.got is None or trial.judge.reads_layout or not trial.reference.has_strided_input:
        return
    if trial.is_equal(trial.reference.on_contiguous_inputs().expected):
        yield Testimony(Role.PYTORCH, Finding.CONTRADICTS, "row-major", {"backend": trial.complaint.backend})
