"""A model of this process, written to files that a worker process can load.

The check of a model runs the user's code in a process of its own, which may crash. A module and its inputs reach it as
a Python file beside a pickle, so the same word, ``FILE.py:FUNCTION``, also reruns the check and makes a script.
"""

from __future__ import annotations

import pickle
import re
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import onnx
import torch

from harness.core.torch_operators import pytree
from harness.pipeline.model_loading import ModelProblem

#: Where models that fail stay, below the working directory; the corpus of failures is a neighbour.
KEPT = Path(".conformance") / "models"
_LOADER = '''\
"""{name}, as it was checked. `conformance check {file}:make_model` checks it again."""

import pickle
import sys
from pathlib import Path

sys.path += [place for place in {path!r} if place not in sys.path]


def make_model():
    return pickle.loads(Path(__file__).with_name("model.pkl").read_bytes())
'''


@dataclass(frozen=True)
class StoredModel:
    """A model in files.

    Attributes:
        word: The name that a check takes: ``FILE.py:FUNCTION``, ``FILE.pt2`` or ``FILE.onnx``.
        inputs: The file of the user's inputs of an ONNX graph; "" if they are drawn, or stored with the model.
        folder: The folder that was written for the model; None for a user's own file.
        place: The folder in which the model stays if it fails: the same for the same structure, whatever the weights.
    """

    word: str
    inputs: str = ""
    folder: Path | None = None
    place: Path = KEPT

    @property
    def shown_word(self) -> str:
        """The name of the model where it stays."""
        return self.word if self.folder is None else str(self.place / Path(self.word).relative_to(self.folder))

    def keep(self) -> None:
        """Copy the files to where they stay. Two tests may do so at once: either's model reproduces the failure."""
        if self.folder is not None:
            shutil.copytree(self.folder, self.place, dirs_exist_ok=True)


def store_model(model: Any, inputs: Any, dynamic: Any, folder: Path) -> StoredModel:
    """Write a model to a folder.

    Args:
        model: A `torch.nn.Module` or function, a `torch.export.ExportedProgram`, or an `onnx.ModelProto`.
        inputs: Example inputs: a tensor, a tuple, or a dict of keyword inputs. Of an ONNX graph, a dict of arrays by
            the names of its inputs; empty to draw them. An exported program has its own.
        dynamic: `dynamic_shapes` as `torch.export.export` takes them; None for static shapes.
        folder: The folder, which exists.

    Raises:
        ModelProblem: The model cannot be written, or inputs are given that it does not take.
    """
    place = KEPT / f"{model_title(model)}-{_digest(model, inputs):08x}"
    if isinstance(model, onnx.ModelProto):
        onnx.save(model, folder / "model.onnx")
        return StoredModel(str(folder / "model.onnx"), _store_arrays(inputs, folder), folder, place)
    if isinstance(model, torch.export.ExportedProgram):
        if not is_empty(inputs):
            raise ModelProblem("an exported program has example inputs of its own: leave out inputs")
        torch.export.save(model, folder / "model.pt2")
        return StoredModel(str(folder / "model.pt2"), folder=folder, place=place)
    if not callable(model):
        kinds = "a module, a function, an exported program, an onnx.ModelProto, or the name of a file"
        raise ModelProblem(f"{type(model).__name__} is not a model: give {kinds}")
    if dynamic is not None and isinstance(inputs, Mapping):
        made: tuple[Any, ...] = (model, (), dict(inputs), dynamic)
    else:
        made = (model, inputs) if dynamic is None else (model, inputs, dynamic)
    _write_pickle(made, folder, place)
    return StoredModel(f"{folder / 'model.py'}:make_model", folder=folder, place=place)


def _write_pickle(made: tuple[Any, ...], folder: Path, place: Path) -> None:
    name = model_title(made[0])
    with _pickled_by_value(made[0]):
        try:
            text = cloudpickle.dumps(made)
        except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
            raise ModelProblem(
                f"{name} cannot be sent to a worker process ({type(error).__name__}: {error}): "
                "give FILE.py:FUNCTION, where the function returns (module, inputs)"
            ) from None
    (folder / "model.pkl").write_bytes(text)
    loader = _LOADER.format(name=name, file=place / "model.py", path=[str(Path(p).absolute()) for p in sys.path])
    (folder / "model.py").write_text(loader, encoding="utf-8")


def _store_arrays(inputs: Any, folder: Path) -> str:
    if is_empty(inputs):
        return ""
    if not isinstance(inputs, Mapping):
        raise ModelProblem("inputs of an ONNX graph are a dict: name of an input → array")
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    np.savez(folder / "inputs.npz", **arrays)  # type: ignore[arg-type]
    return str(folder / "inputs.npz")


@contextmanager
def _pickled_by_value(model: Any) -> Iterator[None]:
    """Pickle classes and functions of a user's own files with their code: a worker need not be able to import them."""
    parts = list(model.modules()) if isinstance(model, torch.nn.Module) else [model]
    names = {getattr(part, "__module__", "") or type(part).__module__ for part in parts}
    modules = [sys.modules[name] for name in sorted(names - {"__main__"}) if _is_users(sys.modules.get(name))]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: ModuleType | None) -> bool:
    """Whether a module is a file of a user's rather than part of an installed package."""
    file = getattr(module, "__file__", None)
    return file is not None and not {"site-packages", "dist-packages"} & set(Path(file).parts)


def is_empty(inputs: Any) -> bool:
    """Whether no inputs are given."""
    return inputs is None or (isinstance(inputs, tuple | list | dict) and not inputs)


def model_title(model: Any) -> str:
    """Return a model's name for people: its class, its function, or its graph."""
    name = model.graph.name if isinstance(model, onnx.ModelProto) else getattr(model, "__name__", "")
    return re.sub(r"\W+", "_", name).strip("_") or type(model).__name__


def _digest(model: Any, inputs: Any) -> int:
    """Return a number of the structure of a model and the forms of its inputs."""
    if isinstance(model, onnx.ModelProto):
        return zlib.crc32(" ".join(node.op_type for node in model.graph.node).encode())
    structure = repr(model) if isinstance(model, torch.nn.Module) else getattr(model, "__qualname__", "")
    tensors = (leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
    return zlib.crc32(f"{structure} {[(str(t.dtype), tuple(t.shape)) for t in tensors]}".encode())
