"""The failing cases, which stay in the worker: witnesses look into the very model that failed, with its oracle."""

from __future__ import annotations

import onnx

from harness.core.case_group import MemberKey
from harness.pipeline.batch_export import Converted, Member
from harness.pipeline.case import CaseOracle


class KeptModels:
    """The converted models of the failing structures of the latest task.

    A batch's model is cut down to a structure only when it is asked for.
    """

    def __init__(self) -> None:
        self._serial = -1
        self._converted: dict[int, tuple[Converted, Member]] = {}

    def begin(self, serial: int) -> None:
        """Forget the models of other tasks; parts of one task have its serial number."""
        if serial != self._serial:
            self._serial = serial
            self._converted.clear()

    def keep(self, converted: Converted, member: Member) -> None:
        """Keep the model of a structure."""
        self._converted[member.group.index] = converted, member

    def find(self, serial: int, key: MemberKey) -> tuple[onnx.ModelProto | None, CaseOracle | None]:
        """Return the model of a case's structure, and its oracle; None for what is not kept, or no ONNX model."""
        group, case = key
        if serial != self._serial or group not in self._converted:
            return None, None
        converted, member = self._converted[group]
        model = None if converted.graph is None else onnx.ModelProto.FromString(converted.alone(member))
        return model, member.oracles.get(case)
