"""The protocol of transforms: an ONNX model in, another ONNX model out, between conversion and the checker.

The stage `harness.compare.verdict.Stage.TRANSFORM` is `harness.pipeline.transforming`.

A transform is one file in `harness.convert.transforms`, or a module under the entry point `harness.transforms`, which
calls `register` at import. Users write it behind a converter: ``--converter dynamo+NAME``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from harness.convert.change import Change
from harness.core.dtypes import Array
from harness.core.plugins import Registry, Unavailable
from harness.core.route import Route


@contextmanager
def muted_advice() -> Iterator[None]:
    """Keep back what tools log about every model below an error: advice, and what they leave alone."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)


#: Inputs that a model will be run with, by name.
Samples: TypeAlias = Sequence[Mapping[str, Array]]


class NotTransformable(Exception):
    """A transform declares that a model is beyond it (as opposed to failing on it)."""


@dataclass(frozen=True, kw_only=True)
class TransformEntry:
    """A registered transform.

    Attributes:
        name: The name after a converter's name and a ``+``.
        probe: Returns None if the transform can run on this machine, otherwise the reason why it cannot.
        apply: Takes a model, which it may change, and returns the transformed one. An exception is an error at the
            stage ``transform``; `NotTransformable` is unsupported there. With `takes_samples` it also takes `Samples`.
        version: Returns the version of the package that transforms.
        precision: The narrowest dtype in which the transformed model stores numbers, ``float16`` or ``int8``: results
            are judged by what its roundings explain. "" for a transform that changes no dtype.
        takes_samples: Whether it is calibrated with inputs.
        stop_after: Applies the transform with at most a number of changes, None for any, and adds them to a list; if it
            raises, the last one is the one that raised. None if it cannot be stopped on its way.
        default: Always False: a run that names no transform has none.
    """

    name: str
    probe: Callable[[], Unavailable | None]
    apply: Callable[..., onnx.ModelProto]
    version: Callable[[], str]
    precision: str = ""
    takes_samples: bool = False
    stop_after: Callable[[onnx.ModelProto, int | None, list[Change]], onnx.ModelProto] | None = None
    default: bool = False

    def transform(self, model: onnx.ModelProto, samples: Samples) -> onnx.ModelProto:
        """Return a model transformed; raises as `apply`."""
        return self.apply(model, samples) if self.takes_samples else self.apply(model)


def _broken(name: str, problem: Unavailable, version: str) -> TransformEntry:
    def apply(model: onnx.ModelProto) -> onnx.ModelProto:
        raise RuntimeError(problem.reason)

    return TransformEntry(name=name, probe=lambda: problem, apply=apply, version=lambda: version)


#: Every transform. A new one is one file in `harness/convert/transforms/` that calls `register` when it is imported.
TRANSFORMS: Registry[TransformEntry] = Registry(
    "transform", package="harness.convert.transforms", group="harness.transforms", broken=_broken
)


register = TRANSFORMS.register


def find_transforms(names: Sequence[str]) -> tuple[TransformEntry, ...]:
    """Return the transforms of a route, in order; raises as `Registry.find` does."""
    return tuple(TRANSFORMS.find(name)[0] for name in names)


def last_precision(route: Route) -> str:
    """Return the last dtype that a route's transforms store numbers in; "" if they change none."""
    dtypes = [transform.precision for transform in find_transforms(route.transforms) if transform.precision]
    return dtypes[-1] if dtypes else ""
