"""What a model is to the harness: a function that makes it, and what may vary of its inputs.

A model is one function under the decorator `model`, in ``cases/models/`` or in any file of a user's:

    @model("perceptron", axes=(Axis("batch", {"x": 0}, (1, 7)),), source="Rosenblatt, 1958")
    def perceptron():
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (torch.randn(2, 4),)
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch

#: What a user's function returns: a module and its example inputs, positional.
ModelAndInputs: TypeAlias = "tuple[torch.nn.Module, tuple[Any, ...]]"

#: Makes the weights and the example inputs of every model definite.
SEED = 20261121


@dataclass(frozen=True)
class Axis:
    """A size that may differ from one run of an exported model to the next.

    Attributes:
        name: For people: ``batch``, ``height``.
        where: Input name → the dimension that has it.
        others: Sizes to run a dynamic export at, beside the exported one.
    """

    name: str
    where: Mapping[str, int]
    others: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A registered model.

    Attributes:
        name: As written after ``--model``.
        make: Returns the module and its example inputs; called with the generator seeded.
        axes: What varies in a dynamic export; none for a model whose sizes are fixed.
        source: The paper or the program that the architecture is from.
    """

    name: str
    make: Callable[[], ModelAndInputs]
    axes: tuple[Axis, ...] = ()
    source: str = ""


#: Filled at import by `model`.
MODELS: dict[str, ModelEntry] = {}


def _place(make: Callable[[], ModelAndInputs]) -> tuple[str, str]:
    return inspect.getfile(make), make.__qualname__


def model(
    name: str, *, axes: tuple[Axis, ...] = (), source: str = ""
) -> Callable[[Callable[[], ModelAndInputs]], Callable[[], ModelAndInputs]]:
    """Register the decorated function as the model `name`; a file that is imported again does so again.

    Another function of that name raises `ValueError`.
    """

    def register(make: Callable[[], ModelAndInputs]) -> Callable[[], ModelAndInputs]:
        known = MODELS.get(name)
        if known is not None and _place(known.make) != _place(make):
            raise ValueError(f"model {name!r} is registered twice")
        MODELS[name] = ModelEntry(name=name, make=make, axes=axes, source=source)
        return make

    return register


#: The package of models that is released with the harness, found by its name.
HOME = "cases.models"


@cache
def load_models() -> Mapping[str, ModelEntry]:
    """Import every family of whole models; name → model, sorted by name."""
    package = importlib.import_module(HOME)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{HOME}.{module.name}")
    return dict(sorted(MODELS.items()))
