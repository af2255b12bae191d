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
import sys
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import torch

from harness.core.plugins import UnknownName
from harness.core.torch_operators import pytree
from harness.execute.models.model_task import AS_MADE, PREFIX, Axis as Axis, Variant, model_name, split_word

#: What a user's function returns: a module and its example inputs, positional; or these with `dynamic_shapes` as
#: `torch.export.export` takes them.
ModelAndInputs: TypeAlias = "tuple[torch.nn.Module, tuple[Any, ...]] | tuple[torch.nn.Module, tuple[Any, ...], Any]"

#: Makes the weights and the example inputs of every model definite.
SEED = 20261121


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


class ModelProblem(Exception):
    """A model that cannot be had; the message is one line for a person."""


class Flat(torch.nn.Module):
    """A model as converters take it: tensors in, a tuple of tensors out.

    Args:
        model: What is called.
        structure: Of its positional arguments.
        constants: Their leaves that are not tensors, by position among all leaves.
    """

    def __init__(self, model: torch.nn.Module, structure: Any, constants: dict[int, Any]) -> None:
        super().__init__()
        self.model = model
        self._structure = structure
        self._constants = constants

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors in the model's result, in order."""
        supply = iter(tensors)
        leaves = [
            self._constants[i] if i in self._constants else next(supply) for i in range(self._structure.num_leaves)
        ]
        result = self.model(*pytree.tree_unflatten(leaves, self._structure))
        return tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))


@dataclass(frozen=True)
class LoadedModel:
    """A model with its example inputs.

    Attributes:
        module: The user's own, in evaluation mode.
        program: The same, flat.
        inputs: The tensors among the example inputs, in order.
        input_names: One each, by the parameters of `forward`.
        exported: The program that a ``.pt2`` file holds; None for a module.
    """

    name: str
    module: torch.nn.Module
    program: Flat
    inputs: tuple[torch.Tensor, ...]
    input_names: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    exported: torch.export.ExportedProgram | None = None

    @property
    def overload(self) -> str:
        """What the record has in the column of operators."""
        return PREFIX + self.name

    @property
    def dynamic_dims(self) -> tuple[frozenset[int], ...]:
        """Per input, the dimensions that `axes` name."""
        return tuple(frozenset(dim for axis in self.axes for dim in axis.dims_of(name)) for name in self.input_names)

    @property
    def equal_dims(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The places (input, dimension) of each of the `axes` that has several."""
        places = (
            tuple((i, dim) for i, name in enumerate(self.input_names) for dim in axis.dims_of(name))
            for axis in self.axes
        )
        return tuple(place for place in places if len(place) > 1)


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
        raise ModelProblem(f"--model {word}: there is no file {file}")
    if file.suffix == ".py" and not function:
        raise ModelProblem(f"--model {word}: say which function makes the model: {file}:make_model")


def load_model(word: str, variant: Variant = AS_MADE) -> LoadedModel:
    """The model that `word` names, with the weights and inputs that `SEED` gives.

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
    if not variant.dtype:
        return model
    if model.exported is not None:
        raise ModelProblem(f"{word} is an exported program, whose dtypes cannot be changed: export the module in them")
    dtype = getattr(torch, variant.dtype)
    model.program.to(dtype)
    inputs = tuple(t.to(dtype) if t.is_floating_point() else t for t in model.inputs)
    return replace(model, inputs=inputs)


def _entry_in(file: Path, function: str) -> ModelEntry:
    name = f"harness_model_{zlib.crc32(str(file.absolute()).encode()):08x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[name] = loaded
        # A model in several files imports those beside it.
        sys.path.insert(0, str(file.absolute().parent))
        try:
            spec.loader.exec_module(loaded)
        except Exception as error:
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
        except Exception as error:
            raise ModelProblem(f"{word} fails: {type(error).__name__}: {error}") from error
    if not (isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module)):
        raise ModelProblem(
            f"{word} must return (module, example inputs) or (module, example inputs, dynamic_shapes), "
            f"not {type(made).__name__}"
        )
    module, arguments, *shapes = made
    arguments = (arguments,) if isinstance(arguments, torch.Tensor) else tuple(arguments)
    names = [p.name for p in inspect.signature(module.forward).parameters.values()]
    model = _flat(entry.name, module, arguments, names, entry.axes)
    if shapes:
        model = replace(model, axes=axes_of_shapes(model, names, arguments, shapes[0], word))
    _check_axes(model, word)
    return model


def axes_of_shapes(
    model: LoadedModel, parameters: Sequence[str], arguments: Sequence[Any], shapes: Any, word: str
) -> tuple[Axis, ...]:
    """The axes that `dynamic_shapes` declare: a dict by parameter, or a sequence in their order.

    Dimensions of one `torch.export.Dim`, or of one name, are one axis. Its range says which sizes are tried.

    Raises:
        ModelProblem: they do not fit the inputs.
    """
    if isinstance(shapes, Mapping):
        unknown = set(shapes) - set(parameters)
        if unknown:
            raise ModelProblem(
                f"{word}: dynamic_shapes name {sorted(unknown)[0]!r}; parameters: {', '.join(parameters)}"
            )
        shapes = [shapes.get(name) for name in parameters[: len(arguments)]]
    if not isinstance(shapes, list | tuple) or len(shapes) != len(arguments):
        raise ModelProblem(f"{word}: dynamic_shapes must have one entry for each of the {len(arguments)} inputs")
    per_tensor = [dims for argument, given in zip(arguments, shapes, strict=True) for dims in _dims_of(argument, given)]
    where: dict[str, dict[str, tuple[int, ...]]] = {}
    ranges: dict[str, tuple[int, int, int]] = {}
    for name, tensor, dims in zip(model.input_names, model.inputs, per_tensor, strict=True):
        for dim, declared in dims.items():
            if declared is None or isinstance(declared, int):
                continue
            label = declared if isinstance(declared, str) else getattr(declared, "__name__", f"{name}:{dim}")
            places = where.setdefault(label, {})
            places[name] = (*places.get(name, ()), dim)
            low, high = getattr(declared, "min", None), getattr(declared, "max", None)
            ranges[label] = int(low or 1), int(min(high or sys.maxsize, sys.maxsize)), tensor.shape[dim]
    return tuple(Axis(label, dims, sizes_in(*ranges[label])) for label, dims in where.items())


def _dims_of(argument: Any, given: Any) -> list[dict[int, Any]]:
    """What is declared of each tensor in an argument, by dimension."""
    if isinstance(argument, torch.Tensor):
        if given is None:
            return [{}]
        return [dict(given) if isinstance(given, Mapping) else dict(enumerate(given))]
    if isinstance(argument, list | tuple):
        parts = given if isinstance(given, list | tuple) else [None] * len(argument)
        return [dims for part, its in zip(argument, parts, strict=True) for dims in _dims_of(part, its)]
    return [{} for leaf in pytree.tree_leaves(argument) if isinstance(leaf, torch.Tensor)]


def sizes_in(low: int, high: int, size: int) -> tuple[int, ...]:
    """Sizes to try of an axis whose exported size is `size`: the least, a neighbour, and about twice as much."""
    wanted = (low, size + 1, size - 1, min(2 * size + 1, high))
    return tuple(dict.fromkeys(n for n in wanted if low <= n <= high and n != size))[:3]


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
    if keywords:
        raise ModelProblem(f"{file} takes keyword arguments ({', '.join(keywords)}); export it without")
    names = [f"input{i}" for i in range(len(arguments))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _flat(file.stem, program.module(), tuple(arguments), names, (), program)
    return replace(model, axes=_axes_of_program(model, program))


def _axes_of_program(model: LoadedModel, program: torch.export.ExportedProgram) -> tuple[Axis, ...]:
    """The axes that an exported program leaves open: its symbols, by their range constraints."""
    given = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]
    values = [value for node in nodes if isinstance(value := node.meta.get("val"), torch.Tensor)]
    where: dict[str, dict[str, tuple[int, ...]]] = {}
    sizes: dict[str, tuple[int, ...]] = {}
    for name, tensor, value in zip(model.input_names, model.inputs, values, strict=True):
        for dim, size in enumerate(value.shape):
            symbol = size.node.expr if isinstance(size, torch.SymInt) else None
            if symbol is None or symbol not in program.range_constraints:
                continue
            limits = program.range_constraints[symbol]
            high = int(limits.upper) if limits.upper.is_finite else sys.maxsize
            places = where.setdefault(str(symbol), {})
            places[name] = (*places.get(name, ()), dim)
            sizes[str(symbol)] = sizes_in(max(int(limits.lower), 1), high, tensor.shape[dim])
    return tuple(Axis(symbol, dims, sizes[symbol]) for symbol, dims in where.items())


def _flat(
    name: str,
    module: torch.nn.Module,
    arguments: tuple[Any, ...],
    parameters: Sequence[str],
    axes: tuple[Axis, ...],
    exported: torch.export.ExportedProgram | None = None,
) -> LoadedModel:
    leaves, structure = pytree.tree_flatten(arguments)
    constants = {i: leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, torch.Tensor)}
    # *args has one name for many.
    heads = [*parameters[: len(arguments)], *(f"input{i}" for i in range(len(parameters), len(arguments)))]
    names = [
        head if len(inner) == 1 else f"{head}_{j}"
        for head, inner in zip(heads, map(pytree.tree_leaves, arguments), strict=True)
        for j, leaf in enumerate(inner)
        if isinstance(leaf, torch.Tensor)
    ]
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    if not tensors:
        raise ModelProblem(f"{name} has no tensor among its example inputs")
    program = Flat(module, structure, constants)
    # An exported program is in the mode that it was exported in, and has no other; PyTorch's refuse to be asked.
    with contextlib.suppress(NotImplementedError):
        program = program.eval() if exported is None else program.requires_grad_(False)
    program.training = False
    return LoadedModel(name, module, program, tensors, tuple(names), axes, exported)


def _check_axes(model: LoadedModel, word: str) -> None:
    ranks = {name: t.dim() for name, t in zip(model.input_names, model.inputs, strict=True)}
    for axis in model.axes:
        for name in axis.where:
            if name not in ranks:
                raise ModelProblem(f"{word}: axis {axis.name} is of input {name!r}; inputs: {', '.join(ranks)}")
            for dim in axis.dims_of(name):
                if not 0 <= dim < ranks[name]:
                    raise ModelProblem(f"{word}: axis {axis.name}: {name} has no dimension {dim}")
