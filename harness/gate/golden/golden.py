"""One golden: an invocation, its inputs, what PyTorch and float64 said, its models, and how these ended."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from harness.compare import Judge, Outcome, Sensitivity, Stage
from harness.core import Array, Invocation
from harness.generate import judge_of

#: (case id, converter, backend). The backend is "" for an end before any backend took part.
GoldenKey: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True)
class Ending:
    """How a golden ended with one converter and one backend, when it was recorded or now.

    Attributes:
        signature: "" for a pass.
        message: The failure's own words; not stored, and no part of what endings are compared by.
    """

    stage: Stage
    outcome: Outcome
    signature: str = ""
    message: str = ""

    @property
    def words(self) -> tuple[Stage, Outcome, str]:
        """What makes two endings the same."""
        return self.stage, self.outcome, self.signature


PASSED = Ending(Stage.COMPARE, Outcome.PASS)

#: One array per output; None for an output that it says nothing of, or as a whole.
Answers: TypeAlias = "tuple[Array | None, ...] | None"

#: The fields of a golden that are `Answers`, in the order in which they are stored and hashed.
ANSWERS = ("truth", "magnitude", "unscaled", "marked", "condition", "own_error", "flushed")


@dataclass(frozen=True, kw_only=True, eq=False)
class Golden:
    """A stored case, an `harness.compare.nearness.Oracle` that needs no PyTorch.

    What the judge does not ask for is not stored: a magnitude only for operators that accumulate, unscaled
    where their scales are less than one; marked is 1 for a finite number, else NaN.

    Attributes:
        inputs: Its tensors as arrays, before the call; row-major.
        expected: PyTorch's outputs. Zeros where any answer is right (uninitialised memory).
        models: Converter → serialised ``ModelProto`` of this call alone, whose graph inputs are called
            ``input_0`` … by the place of the tensor in `inputs`, and its outputs ``output_0`` …
    """

    invocation: Invocation
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    truth: Answers = None
    magnitude: Answers = None
    unscaled: Answers = None
    marked: Answers = None
    condition: Answers = None
    own_error: Answers = None
    flushed: Any = None
    models: Mapping[str, bytes]

    @property
    def overload(self) -> str:
        """Dotted name."""
        return self.invocation.overload

    @property
    def case_id(self) -> str:
        """Identity of the invocation."""
        return self.invocation.case_id

    @property
    def name(self) -> str:
        """For messages: ``aten.celu.default 82129e6a1b2c``."""
        return f"{self.overload} {self.case_id}"

    @property
    def judge(self) -> Judge:
        """The operator case's, as it is today; the default where none covers the overload."""
        return judge_of(self.invocation).settled

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """Schema name → value, tensors as arrays; for rules."""
        return self.invocation.arguments_with(self.inputs)

    @cached_property
    def sensitivity(self) -> tuple[Sensitivity | None, ...] | None:
        """See `harness.compare.nearness.Oracle`."""
        if self.condition is None or self.own_error is None:
            return None
        return tuple(
            None if c is None or e is None else Sensitivity(c, e)
            for c, e in zip(self.condition, self.own_error, strict=True)
        )

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of everything in it, cut to 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for part in self._content():
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()[:16]

    def _content(self) -> Iterator[bytes]:
        yield self.invocation.json.encode()
        for name in ("inputs", "expected", *ANSWERS):
            for array in getattr(self, name) or ():
                yield name.encode()
                if array is not None:
                    yield f"{array.dtype}{array.shape}".encode()
                    yield np.ascontiguousarray(array).tobytes()
        for converter in sorted(self.models):
            yield converter.encode()
            yield self.models[converter]
