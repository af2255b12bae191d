"""Models that witnesses load again, loaded once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from harness.blame.nodes.operator_kinds import RANDOM
from harness.execute import all_nodes
from harness.run import Backend, BackendSession, ShapeRange

#: Loaded models that are kept: of what a witness loads, most is loaded again soon or never.
_KEPT = 256
#: Bytes of a model above which it is not kept.
_LARGE = 2**20

_Key = tuple[int, bytes]


@dataclass
class LoadedModels:
    """The latest models that backends have loaded.

    A model that draws at random is loaded each time: what it draws hangs on what was drawn before. So is one
    that the backend fails to load.
    """

    _kept: OrderedDict[_Key, tuple[Backend, BackendSession]] = field(default_factory=OrderedDict)

    def of(self, backend: Backend) -> Backend:
        """`backend`, which loads a model that it has loaded lately no more."""
        return _LoadingOnce(backend, self)

    def load(self, backend: Backend, model: onnx.ModelProto) -> BackendSession:
        """See `Backend.load`."""
        content = model.SerializeToString(deterministic=True)
        if len(content) > _LARGE or any(node.op_type in RANDOM for node in all_nodes(model)):
            return backend.load(model, None)
        # The backend is kept, too, so that its identity is not another's.
        key = id(backend), content
        if key not in self._kept:
            self._kept[key] = backend, backend.load(model, None)
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[key][1]


class _LoadingOnce:
    def __init__(self, backend: Backend, models: LoadedModels) -> None:
        self.name, self.device, self.version = backend.name, backend.device, backend.version
        self._backend, self._models = backend, models

    def narrows(self, dtype: str) -> str | None:
        return self._backend.narrows(dtype)

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        return self._models.load(self._backend, model) if shapes is None else self._backend.load(model, shapes)
