"""Check goldens on backends and compare the endings with the recorded ones.

Only `run_in_pytorch` needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import onnx

from harness.compare.comparison import compare
from harness.compare.drawn import draws
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.core.invocation import TensorSpec
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.route import FILE, Route
from harness.gate.golden.store import PASSED, Golden, GoldenKey, Manifest
from harness.generate.case_library import load_cases
from harness.pipeline.case import Case
from harness.pipeline.case_run import CaseRun
from harness.pipeline.graph_structure import GraphStructure
from harness.pipeline.run_case import run_case
from harness.pipeline.start import start, start_backend
from harness.run.backend import DeviceLost

#: Stands for a backend: runs the call itself in PyTorch, without a model.
PYTORCH = "pytorch"


class GoldenChange(StrEnum):
    """The result of a check of one golden on one route.

    `NEW`: a failure that passed when it was recorded, or that has no recorded ending. `OTHER`: it ends differently than
    recorded. `KNOWN`: it ends as recorded. `FIXED`: it passes now.
    """

    PASS = "pass"
    KNOWN = "known"
    NEW = "new"
    OTHER = "other"
    FIXED = "fixed"

    @property
    def is_failure(self) -> bool:
        """Whether it fails the check."""
        return self in (GoldenChange.NEW, GoldenChange.OTHER)


@dataclass(frozen=True)
class CheckedGolden:
    """The check of one golden on one route.

    Attributes:
        golden: The golden.
        converter: The converter of its model.
        backend: The backend.
        now: Its ending.
        recorded: Its recorded ending; None if the backend was not recorded.
        change: The result.
    """

    golden: Golden
    converter: str
    backend: str
    now: CaseRun
    recorded: CaseRun | None
    change: GoldenChange


def check(
    manifest: Manifest,
    goldens: Sequence[Golden],
    endings: Mapping[GoldenKey, CaseRun],
    *,
    backends: Sequence[str],
    converters: Sequence[str] | None = None,
    timeout: float = 20.0,
) -> Iterator[CheckedGolden]:
    """Run every stored model on every backend.

    Args:
        manifest: The manifest of the set.
        goldens: The goldens.
        endings: Their recorded endings.
        backends: Names of backends; `PYTORCH` runs the calls in PyTorch.
        converters: The converters whose models are run; None means all.
        timeout: Seconds that one model may take.
    """
    for backend in backends:
        with IsolatedCalls(timeout=timeout) as process:
            for golden in goldens:
                for converter in [""] if backend == PYTORCH else sorted(golden.models):
                    if converter and converters is not None and converter not in converters:
                        continue
                    recorded: CaseRun | None = None
                    if backend == PYTORCH or (backend in manifest.backends and converter in manifest.converters):
                        recorded = endings.get((golden.case_id, converter, backend), PASSED)
                    now = ending_of(golden, converter, backend, process)
                    yield CheckedGolden(golden, converter, backend, now, recorded, _change(golden, now, recorded))


def _change(golden: Golden, now: CaseRun, recorded: CaseRun | None) -> GoldenChange:
    if draws(golden.judge) and recorded is not None and now.stage is recorded.stage is Stage.COMPARE:
        # Random numbers may pass or fail a test of their distribution by chance.
        return GoldenChange.PASS if now.ending == PASSED.ending else GoldenChange.KNOWN
    if now.ending == PASSED.ending:
        return GoldenChange.PASS if recorded is None or recorded.ending == PASSED.ending else GoldenChange.FIXED
    if recorded is None:
        return GoldenChange.NEW if now.outcome.is_failure else GoldenChange.KNOWN
    if now.ending == recorded.ending:
        return GoldenChange.KNOWN
    return GoldenChange.NEW if recorded.ending == PASSED.ending and now.outcome.is_failure else GoldenChange.OTHER


def ending_of(golden: Golden, converter: str, backend: str, process: IsolatedCalls) -> CaseRun:
    """Return how a golden's model ends on a backend that is started in `process`, which may die."""
    try:
        if backend == PYTORCH:
            return process.call(run_in_pytorch, golden)
        return process.call(run_here, golden, converter, backend)
    except DeviceLost as error:
        process.close()
        return CaseRun(stage=Stage.RUN, outcome=Outcome.CRASH, message=str(error))
    except ProcessDied as death:
        outcome = Outcome.TIMEOUT if death.hung else Outcome.CRASH
        return CaseRun(stage=Stage.RUN, outcome=outcome, message=str(death))


def run_here(golden: Golden, converter: str, backend: str) -> CaseRun:
    """Return how a golden's model ends in this process; may raise `DeviceLost`."""
    load_cases()
    model = onnx.load_model_from_string(golden.models[converter])
    names = tuple(f"input_{j}" for j in range(len(golden.feeds)))
    case = Case(GraphStructure(model, names=names, is_checked=True), golden)
    # The model is made already, whatever its converter.
    run = run_case(case, start(Route(converter=FILE, backend=backend)))
    if run.passes:
        return PASSED
    if run.failure is not None:
        # Goldens are recorded without the causes of an error.
        run = replace(run, message=f"{type(run.failure.error).__name__}: {run.failure.error}"[:2000])
    # The others stay in the process that has them.
    return replace(run, artefact=None, outputs=None, failure=None)


def run_in_pytorch(golden: Golden) -> CaseRun:
    """Return how the recorded inputs end in this process's PyTorch, independently of what recipes mean today."""
    import torch

    from harness.core.torch_arrays import to_numpy
    from harness.pipeline.torch_call import call_invocation

    torch.set_num_threads(1)
    load_cases()
    tensors = [_to_layout(array, spec) for array, spec in zip(golden.feeds, golden.invocation.tensors(), strict=True)]
    try:
        outputs = [to_numpy(tensor) for tensor in call_invocation(golden.invocation, tensors)]
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return CaseRun(stage=Stage.RUN, outcome=Outcome.ERROR, message=message)
    return _compared(golden, outputs)


def _to_layout(array: Array, spec: TensorSpec) -> Any:
    """Copy an array bit for bit to a tensor with the call's memory layout; copying numbers may change NaN."""
    import torch

    from harness.core.tensors import build_tensor

    dtype = build_tensor(replace(spec, shape=(0,), strides=(1,), offset=0)).dtype
    # A complex number is stored as a pair of reals.
    size = dtype.itemsize
    storage = np.zeros((max(spec.storage_size, 1), size), np.uint8)
    if spec.numel:
        places = torch.arange(len(storage)).as_strided(spec.shape, spec.strides, spec.offset)
        storage[places.flatten().numpy()] = np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size)
    return torch.from_numpy(storage).flatten().view(dtype).as_strided(spec.shape, spec.strides, spec.offset)


def _compared(golden: Golden, outputs: Sequence[Array]) -> CaseRun:
    comparison = compare(golden.judge, golden, outputs)
    if comparison.problem is None:
        return PASSED
    wrong = Outcome.MISMATCH
    return CaseRun(stage=Stage.COMPARE, outcome=wrong, message=comparison.message, comparison=comparison)


def version_of(backend: str) -> str:
    """Return the version of a backend, which is started in this process."""
    return start_backend(backend).version
