"""A model that is ready to run, from a user's word: a registered name, ``FILE.py:FUNCTION``, ``FILE.pt2``.

A model is one function under the decorator `model`, in ``cases/models/`` or in any file of a user's:

    @model("perceptron", axes=(Axis("batch", {"x": 0}, (1, 7)),), source="Rosenblatt, 1958")
    def perceptron():
        return nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (torch.randn(2, 4),)
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import torch

from harness.convert.converter import ModelCall, tensor_inputs
from harness.core.invocation import MODEL
from harness.core.plugins import UnknownName, definition_place
from harness.core.torch_operators import pytree
from harness.pipeline.model_task import AS_MADE, Axis as Axis, Variant, model_name, split_word
from harness.pipeline.open_sizes import (
    Declared,
    ShapesMismatch,
    axes_of_dims,
    axes_of_program,
    declared_dims,
    shapes_tree,
)

#: The result of a user's function: a module or function and its example inputs, a tuple of positional ones or a dict
#: of keyword inputs; or these with `dynamic_shapes` as `torch.export.export` takes them; or the module, positional
#: inputs, keyword inputs and `dynamic_shapes`.
ModelAndInputs: TypeAlias = "tuple[Any, Any] | tuple[Any, Any, Any] | tuple[Any, Any, Any, Any]"

#: Makes the weights and the example inputs of every model definite.
SEED = 20261121


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A registered model.

    Attributes:
        name: The name after ``--model``.
        make: Returns the module and its example inputs; called with the generator seeded.
        axes: Sizes that vary in a dynamic export; empty for a model of fixed sizes.
        source: The paper or the program that the architecture is from.
    """

    name: str
    make: Callable[[], ModelAndInputs]
    axes: tuple[Axis, ...] = ()
    source: str = ""


#: Filled at import by `model`.
MODELS: dict[str, ModelEntry] = {}


def model(
    name: str, *, axes: tuple[Axis, ...] = (), source: str = ""
) -> Callable[[Callable[[], ModelAndInputs]], Callable[[], ModelAndInputs]]:
    """Register the decorated function as the model `name`; a file that is imported again does so again.

    Another function of that name raises `ValueError`.
    """

    def register(make: Callable[[], ModelAndInputs]) -> Callable[[], ModelAndInputs]:
        known = MODELS.get(name)
        if known is not None and definition_place(known.make) != definition_place(make):
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


class ModelProblem(Exception):
    """A model that cannot be had; the message is one line for a person."""


class Flat(torch.nn.Module):
    """A model in the form that converters take: tensors in, a tuple of tensors out.

    Args:
        model: The model to call.
        structure: Structure of its arguments: a tuple of the positional ones, and a dict of the keyword arguments.
        constants: Their leaves other than tensors, by position among all leaves.
    """

    def __init__(self, model: torch.nn.Module, structure: Any, constants: dict[int, Any]) -> None:
        super().__init__()
        self.model = model
        self._structure = structure
        self._constants = constants

    def arguments(self, tensors: Iterable[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments that hold `tensors`."""
        supply = iter(tensors)
        leaves = [
            self._constants[i] if i in self._constants else next(supply) for i in range(self._structure.num_leaves)
        ]
        positional, keywords = pytree.tree_unflatten(leaves, self._structure)
        return positional, keywords

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors in the model's result, in order."""
        arguments, keywords = self.arguments(tensors)
        result = self.model(*arguments, **keywords)
        found = tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
        if not found:
            kind = "None" if result is None else f"a {type(result).__name__}"
            raise ValueError(f"the model returns {kind}, in which PyTorch finds no tensor to compare")
        return found


@dataclass(frozen=True)
class LoadedModel:
    """A model with its example inputs.

    Attributes:
        module: The user's own, in evaluation mode.
        program: The same, flat.
        inputs: The tensors among the example inputs, in order.
        input_names: Their names, by the parameters of `forward`.
        exported: The program that a ``.pt2`` file holds; None for a module.
        arguments: The positional example arguments as the user passes them; `keywords` are the keyword arguments.
        declared: The declarations of the user's `dynamic_shapes` for each tensor.
        given_in_training: Whether the user's module was in training mode.
    """

    name: str
    module: torch.nn.Module
    program: Flat
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    exported: torch.export.ExportedProgram | None = None
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    declared: tuple[Declared, ...] = ()
    given_in_training: bool = False

    def call(self, tensors: Iterable[torch.Tensor], *, dynamic: bool) -> ModelCall:
        """Return the model with `tensors` instead of the example's, in the form that its user exports."""
        if self.exported is not None:
            return ModelCall(program=self.exported)
        arguments, keywords = self.program.arguments(tensors)
        return ModelCall(
            program=self.module,
            arguments=arguments,
            keywords=keywords,
            dynamic_shapes=self._dynamic_shapes() if dynamic else None,
        )

    def _dynamic_shapes(self) -> dict[str, Any]:
        """Return `dynamic_shapes` by parameter: the user's declarations, and the axes that were added."""
        dims = [dict(given) for given in self.declared] or [{} for _ in self.inputs]
        for axis in self.axes:
            places = [(i, dim) for i, name in enumerate(self.input_names) for dim in axis.dims_of(name)]
            if all(dims[i].get(dim) is not None for i, dim in places):
                continue
            size = torch.export.Dim(f"{_identifier(axis.name)}") if len(places) > 1 else torch.export.Dim.DYNAMIC
            for i, dim in places:
                dims[i][dim] = size
        supply = iter(dims)
        given = _bind_arguments(self.module, self.arguments, self.keywords)
        return {name: shapes_tree(argument, supply) for name, argument in given.items()}

    @property
    def overload(self) -> str:
        """Return the name for the record's column of operators."""
        return MODEL + self.name

    @property
    def dynamic_dims(self) -> tuple[frozenset[int], ...]:
        """Per input, the dimensions that `axes` name."""
        return tuple(frozenset(dim for axis in self.axes for dim in axis.dims_of(name)) for name in self.input_names)

    @property
    def equal_dims(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return the places (input, dimension) of each of the `axes` that has several."""
        places = (
            tuple((i, dim) for i, name in enumerate(self.input_names) for dim in axis.dims_of(name))
            for axis in self.axes
        )
        return tuple(place for place in places if len(place) > 1)


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def check_word(word: str) -> None:
    """Whether `word` may name a model, found out without loading it.

    Raises:
        UnknownName: no registered model has that name; near ones are named.
        ModelProblem: the file is not there, or the word has no function.
    """
    file, function = split_word(word)
    if file is None:
        if word not in load_models():
            raise UnknownName("model", word, tuple(load_models()))
        return
    if not file.is_file():
        raise ModelProblem(f"--model {word}: file not found: {file}")
    if file.suffix == ".py" and not function:
        raise ModelProblem(f"--model {word}: say which function makes the model: {file}:make_model")


def load_model(word: str, variant: Variant = AS_MADE) -> LoadedModel:
    """Load the model that `word` names, with the weights and inputs that `SEED` gives.

    Raises:
        UnknownName: see `check_word`.
        ModelProblem: there is none, or the file or its function fails or returns something else, or there is no
            such variant of it.
    """
    check_word(word)
    file, function = split_word(word)
    if file is None:
        model = _made(load_models()[word], word)
    elif file.suffix == ".pt2":
        model = _saved(file)
    else:
        model = _made(_entry_in(file, function), word)
    return _varied(model, variant, word)


def _varied(model: LoadedModel, variant: Variant, word: str) -> LoadedModel:
    if variant.axes:
        own = {axis.name: axis for axis in model.axes}
        model = replace(model, axes=tuple({**own, **{axis.name: axis for axis in variant.axes}}.values()))
        _check_axes(model, word)
    for name, size in variant.example_sizes:
        model = _change_example_size(model, name, size)
    if not variant.dtype:
        return model
    if model.exported is not None:
        raise ModelProblem(f"{word} is an exported program, whose dtypes cannot be changed: export the module in them")
    dtype = getattr(torch, variant.dtype)
    model.program.to(dtype)
    inputs = tuple(t.to(dtype) if t.is_floating_point() else t for t in model.inputs)
    return replace(model, inputs=inputs)


def _change_example_size(model: LoadedModel, name: str, size: int) -> LoadedModel:
    """Return the model with another size of an axis in its example, by repeating elements; it runs at the old one."""
    inputs, axes = list(model.inputs), []
    for axis in model.axes:
        if axis.name == name:
            places = [(i, n, dim) for i, n in enumerate(model.input_names) for dim in axis.dims_of(n)]
            first, input_name, dim = places[0]
            factor, offset = axis.lines.get((input_name, dim), (1, 0))
            old = (inputs[first].shape[dim] - offset) // factor
            for i, input_name, dim in places:
                wanted = axis.size_at(input_name, dim, size)
                repeated = torch.arange(wanted) % max(inputs[i].shape[dim], 1)
                inputs[i] = inputs[i].index_select(dim, repeated)
            axis = replace(axis, others=(old, *(other for other in axis.others if other not in (old, size))))
        axes.append(axis)
    return replace(model, inputs=tuple(inputs), axes=tuple(axes))


def _entry_in(file: Path, function: str) -> ModelEntry:
    name = f"harness_model_{zlib.crc32(str(file.absolute()).encode()):08x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        # A model in several files imports the others.
        sys.path.insert(0, str(file.absolute().parent))
        try:
            spec.loader.exec_module(loaded)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise ModelProblem(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(str(file.absolute().parent))
    make = getattr(sys.modules[name], function, None)
    if not callable(make):
        known = [n for n, value in vars(sys.modules[name]).items() if inspect.isfunction(value)]
        raise ModelProblem(f"{file} has no function {function!r}; it has {', '.join(known) or 'none'}")
    registered = [entry for entry in MODELS.values() if entry.make is make]
    entry = registered[0] if registered else ModelEntry(name=function, make=make)
    # The same function in two files makes two models.
    return replace(entry, name=model_name(f"{file}:{function}"))


def _made(entry: ModelEntry, word: str) -> LoadedModel:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        try:
            made = entry.make()
        except (Exception, SystemExit) as error:
            raise ModelProblem(f"{word} fails: {type(error).__name__}: {error}") from error
    if not (isinstance(made, tuple) and len(made) in (2, 3, 4) and callable(made[0])):
        raise ModelProblem(
            f"{word} must return (module, example inputs) or (module, example inputs, dynamic_shapes), "
            f"not {type(made).__name__}"
        )
    module, given, *rest = made
    arguments, keywords = ((), dict(given)) if isinstance(given, Mapping) else (_make_tuple(given), {})
    if len(rest) == 2:
        keywords = {**keywords, **(rest.pop(0) or {})}
    model = _flat(entry.name, _wrap_function(module), arguments, keywords, axes=entry.axes)
    if rest:
        model = _declared(model, rest[0], word)
    _check_axes(model, word)
    return model


def given_model(
    name: str, module: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any], dtype: str = ""
) -> LoadedModel:
    """Return a model of this process, such as a notebook's.

    Raises:
        ModelProblem: its example inputs have no tensor, or it cannot be had in `dtype`.
    """
    model = _flat(name, _wrap_function(module), arguments, keywords)
    return _varied(model, Variant(dtype=dtype), name)


def _make_tuple(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _wrap_function(model: Any) -> torch.nn.Module:
    """Wrap a plain function in the module that its user would have to write for an exporter."""
    if isinstance(model, torch.nn.Module):
        return model
    module = torch.nn.Module()
    module.forward = model
    return module


def _declared(model: LoadedModel, shapes: Any, word: str) -> LoadedModel:
    """Return the model with the dynamic dimensions that its `dynamic_shapes` declare."""
    if isinstance(shapes, torch.export.ShapesCollection | torch.export.AdditionalInputs):
        collected: Any = shapes
        shapes = collected.dynamic_shapes(model.module, model.arguments, dict(model.keywords))
    if shapes is None:
        return model
    try:
        declared = declared_dims(shapes, _bind_arguments(model.module, model.arguments, model.keywords))
    except ShapesMismatch as problem:
        raise ModelProblem(f"{word}: {problem}") from None
    axes = tuple(axes_of_dims(model.input_names, model.inputs, declared))
    return replace(model, axes=axes, declared=declared)


def _bind_arguments(module: torch.nn.Module, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the parameters of `forward`, as `torch.export` binds them."""
    try:
        return dict(inspect.signature(module.forward).bind(*arguments, **keywords).arguments)
    except (TypeError, ValueError):
        # A scripted module has no signature, and PyTorch itself reports arguments that do not fit.
        return {**dict(zip(_parameters(module, arguments), arguments, strict=True)), **keywords}


def _parameters(module: torch.nn.Module, arguments: Sequence[Any]) -> list[str]:
    """Return a name for each positional argument."""
    try:
        known = list(inspect.signature(getattr(module, "_orig_mod", module).forward).parameters)
    except (TypeError, ValueError):
        schema: Any = getattr(module.forward, "schema")  # noqa: B009
        known = [argument.name for argument in schema.arguments[1:]]
    # *args has one name for many.
    return [*known[: len(arguments)], *(f"input{i}" for i in range(len(known), len(arguments)))]


def _saved(file: Path) -> LoadedModel:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(str(file))
    except Exception as error:
        raise ModelProblem(f"{file} is not an exported program: {type(error).__name__}: {error}") from error
    if program.example_inputs is None:
        raise ModelProblem(f"{file} holds no example inputs; export it again with torch.export.save")
    arguments, keywords = program.example_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = program.module()
    # An exporter that traces a module asks for its mode, which a program was captured in.
    for name in ("train", "eval"):
        setattr(module, name, lambda mode=True: module)
    model = _flat(
        file.stem,
        module,
        tuple(arguments),
        keywords,
        names=[name for name, _ in tensor_inputs(program)],
        exported=program,
    )
    return replace(model, axes=tuple(axes_of_program(program, model.input_names, model.inputs)))


def _flat(
    name: str,
    module: torch.nn.Module,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    *,
    axes: tuple[Axis, ...] = (),
    names: Sequence[str] = (),
    exported: torch.export.ExportedProgram | None = None,
) -> LoadedModel:
    leaves, structure = pytree.tree_flatten((arguments, dict(keywords)))
    constants = {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, torch.Tensor)}
    heads = [*_parameters(module, arguments), *keywords]
    names = names or [
        head if len(inner) == 1 else f"{head}_{j}"
        for head, inner in zip(heads, map(pytree.tree_leaves, (*arguments, *keywords.values())), strict=True)
        for j, leaf in enumerate(inner)
        if isinstance(leaf, torch.Tensor)
    ]
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    if not tensors:
        raise ModelProblem(f"{name} has no tensor among its example inputs")
    in_training = exported is None and module.training
    program = Flat(module, structure, constants)
    # An exported program is in the mode that it was exported in, and has no other; PyTorch's refuse to be asked.
    with contextlib.suppress(NotImplementedError):
        program = program.eval() if exported is None else program.requires_grad_(False)
    program.training = False
    return LoadedModel(
        name,
        module,
        program,
        tensors,
        tuple(names),
        axes,
        exported,
        arguments,
        keywords,
        given_in_training=in_training,
    )


def _check_axes(model: LoadedModel, word: str) -> None:
    ranks = {name: t.dim() for name, t in zip(model.input_names, model.inputs, strict=True)}
    for axis in model.axes:
        for name in axis.where:
            if name not in ranks:
                raise ModelProblem(f"{word}: axis {axis.name} is of input {name!r}; inputs: {', '.join(ranks)}")
            for dim in axis.dims_of(name):
                if not 0 <= dim < ranks[name]:
                    raise ModelProblem(f"{word}: axis {axis.name}: {name} has no dimension {dim}")
