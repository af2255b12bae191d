"""A cache of loaded models: witnesses load the same small models again and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from harness.pipeline.submodel import all_nodes
from harness.run.artefact import AnyModel, Artefact
from harness.run.backend import Backend, BackendSession, ShapeRange

#: ONNX operators that draw at random.
RANDOM_OPERATORS: frozenset[str] = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"),
        *("Bernoulli", "Dropout"),
    }
)
#: The number of models that are kept on the CPU.
_KEPT = 256
#: The number that is kept on another device, where a model of one node takes tens of megabytes.
_KEPT_ON_DEVICE = 16
#: Bytes of a model above which it is not kept.
_LARGE = 2**20


@dataclass
class LoadedModels:
    """The latest models that backends have loaded.

    A model that draws at random is loaded each time, since its numbers depend on earlier draws. A model that
    the backend fails to load is tried each time.
    """

    _kept: OrderedDict[tuple[int, bytes], tuple[Backend, BackendSession]] = field(default_factory=OrderedDict)

    def caching(self, backend: Backend) -> Backend:
        """Return a backend that takes its loaded models from here."""
        return _CachingBackend(backend, self)

    def load(self, backend: Backend, model: AnyModel) -> BackendSession:
        """Load a static model, or return a session that was loaded lately; raises as `Backend.load`."""
        if isinstance(model, Artefact):
            return backend.load(model, None)
        content = model.SerializeToString(deterministic=True)
        if len(content) > _LARGE or _draws_at_random(model):
            return backend.load(model, None)
        # The backend is kept as well, so that no other one gets its identity.
        key = id(backend), content
        if key not in self._kept:
            self._kept[key] = backend, backend.load(model, None)
        self._kept.move_to_end(key)
        if len(self._kept) > (_KEPT if backend.device == "cpu" else _KEPT_ON_DEVICE):
            self._kept.popitem(last=False)
        return self._kept[key][1]


class _CachingBackend:
    def __init__(self, backend: Backend, models: LoadedModels) -> None:
        self.name, self.device, self.version = backend.name, backend.device, backend.version
        self._backend, self._models = backend, models

    def narrows(self, dtype: str) -> str | None:
        return self._backend.narrows(dtype)

    def load(self, model: AnyModel, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        return self._models.load(self._backend, model) if shapes is None else self._backend.load(model, shapes)


def _draws_at_random(model: onnx.ModelProto) -> bool:
    return any(node.op_type in RANDOM_OPERATORS for node in all_nodes(model))
