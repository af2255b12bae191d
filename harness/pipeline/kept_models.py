"""The models of failing cases, which stay in the worker: witnesses look into the very model that failed."""

from __future__ import annotations

import onnx

from harness.pipeline.batch_export import Accepted, Converted


class KeptModels:
    """The converted models of the failing structures of the latest task.

    A batch's model is cut down to a structure only when it is asked for.
    """

    def __init__(self) -> None:
        self._serial = -1
        self._converted: dict[int, tuple[Converted, Accepted]] = {}

    def begin(self, serial: int) -> None:
        """Forget the models of other tasks; parts of one task have its serial number."""
        if serial != self._serial:
            self._serial = serial
            self._converted.clear()

    def keep(self, converted: Converted, member: Accepted) -> None:
        """Keep the model of a structure."""
        self._converted[member.group.index] = converted, member

    def find(self, serial: int, group: int) -> onnx.ModelProto | None:
        """Return the model of a structure of a task; None if it is not kept, or not an ONNX model."""
        if serial != self._serial or group not in self._converted:
            return None
        converted, member = self._converted[group]
        return None if converted.graph is None else onnx.ModelProto.FromString(converted.alone(member))
