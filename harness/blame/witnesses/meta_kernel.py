"""PyTorch's own rules for shapes and dtypes, which run no kernel."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from harness.blame.testimony import Finding, Role, Testimony
from harness.blame.trial import Trial
from harness.blame.witness import witness
from harness.core import bind, build_tensors, first_line, output_tensors

#: What PyTorch says, in no class of its own, where a rule asks a tensor without values for a number.
_VALUES_ARE_ASKED = "cannot be called on meta tensors"


@witness("PyTorch's meta kernel", place=40)
def ask_meta_kernel(trial: Trial) -> Iterator[Testimony]:
    """What an exporter believes of shapes and dtypes; no part of the kernel that gave PyTorch's answer."""
    comparison = trial.comparison
    if trial.got is None or comparison is None or comparison.problem not in ("shape", "dtype"):
        return
    with torch.no_grad():
        tensors = [t.to("meta") for t in build_tensors(trial.invocation)]
        try:
            results = output_tensors(bind(trial.invocation)(tensors))
        except (NotImplementedError, RuntimeError) as error:
            # Where the output's size hangs on values, there are no such rules.
            if isinstance(error, NotImplementedError) or _VALUES_ARE_ASKED in str(error):
                return
            yield Testimony(Role.META, Finding.REFUSES, "meta-kernel", {"error": first_line(error)})
            return
    ruled = [(tuple(r.shape), str(r.dtype).removeprefix("torch.")) for r in results]
    if ruled == [(e.shape, str(e.dtype)) for e in trial.reference.expected]:
        yield Testimony(Role.META, Finding.CONFIRMS, "meta-kernel")
    elif ruled == [(g.shape, str(g.dtype)) for g in trial.got]:
        yield Testimony(Role.META, Finding.CONTRADICTS, "meta-kernel", {"backend": trial.complaint.backend})
