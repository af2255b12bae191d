"""A model as a case: the inputs that it is run with (its example, other values, other sizes), and its export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import onnx
import torch

from harness.compare.tolerances import Tolerance
from harness.convert.converter import ExportRequest
from harness.convert.transform import Samples
from harness.core.described_tensor import describe_tensor
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.core.route import Route
from harness.core.tensors import build_tensors, graph_input_shape
from harness.core.torch_arrays import to_numpy
from harness.pipeline.case import Case, RunCase
from harness.pipeline.case_run import CaseRun
from harness.pipeline.model_loading import Axis, LoadedModel
from harness.pipeline.model_oracle import ModelOracle, run_model
from harness.pipeline.model_task import ModelInputs
from harness.pipeline.program import convert_stage
from harness.pipeline.stages import StageFailure, named_feeds, shape_ranges
from harness.pipeline.started_route import StartedRoute
from harness.run.artefact import AnyModel, output_names
from harness.run.backend import ShapeRange

#: Storage elements of an example input that are kept as they are: one that is larger is drawn like it.
_EXACT = 4096


def cases_of(model: LoadedModel, dynamic: bool) -> tuple[ModelInputs, ...]:
    """Return the inputs to run a model with, the example first.

    A static export is run with other values, since tracing keeps the path that the example took; a dynamic
    one with the sizes that the model's axes name, one axis at a time and all together.
    """
    named = list(zip(model.inputs, model.input_names, strict=True))
    # Masks, lengths and positions belong together; pixels do not.
    example = tuple(describe_tensor(t, name, exact=None if t.is_floating_point() else _EXACT) for t, name in named)
    drawn = tuple(describe_tensor(t, name, exact=0) for t, name in named)
    others = _other_sizes(model, drawn) if dynamic else _other_values(model, example, drawn)
    seen: dict[str, ModelInputs] = {}
    for case in (ModelInputs(_invocation(model, example)), *others):
        seen.setdefault(case.invocation.case_id, case)
    return tuple(seen.values())


def declared_inputs(model: LoadedModel, *, dynamic: bool) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a model takes as an ONNX graph declares them, open in the dimensions of its axes."""
    declared = []
    for name, tensor in zip(model.input_names, model.inputs, strict=True):
        opened = {dim for axis in model.axes for dim in axis.dims_of(name)} if dynamic else set()
        shape = [None if dim in opened else size for dim, size in enumerate(tensor.shape)]
        kind = onnx.helper.np_dtype_to_tensor_dtype(to_numpy(tensor).dtype)
        declared.append(onnx.helper.make_tensor_value_info(name, kind, shape))
    return declared


def _invocation(model: LoadedModel, specs: tuple[TensorSpec, ...]) -> Invocation:
    return Invocation(model.overload, tuple(zip(model.input_names, specs, strict=True)))


def _other_values(
    model: LoadedModel, example: tuple[TensorSpec, ...], drawn: tuple[TensorSpec, ...]
) -> list[ModelInputs]:
    """Floating inputs drawn again, negated and made small; the others stay, since they may be structure."""
    changes: dict[str, Callable[[Recipe], Recipe]] = {
        "other values": lambda recipe: replace(recipe, seed=recipe.seed + 1),
        "negated values": lambda recipe: replace(_scaled(recipe, -1.0), seed=recipe.seed + 2),
        "small values": lambda recipe: replace(_scaled(recipe, 2.0**-6), seed=recipe.seed + 3),
    }

    def changed(old: TensorSpec, new: TensorSpec, change: Callable[[Recipe], Recipe]) -> TensorSpec:
        drawn_like = isinstance(new.values, Recipe) and new.values.domain[0] == "like"
        return replace(new, values=change(new.values)) if drawn_like else old  # type: ignore[arg-type]

    pairs = list(zip(example, drawn, strict=True))
    return [
        ModelInputs(_invocation(model, tuple(changed(old, new, change) for old, new in pairs)), name)
        for name, change in changes.items()
    ]


def _scaled(recipe: Recipe, factor: float) -> Recipe:
    """Scale values, unless a negative factor would change the sign of values of one sign."""
    name, mean, deviation, low, high, *rest = recipe.domain
    mean, deviation, low, high = (float(n) for n in (mean, deviation, low, high))
    if factor < 0 and not low < 0 < high:
        # The model may need values of one sign.
        return recipe
    ends = sorted((low * factor, high * factor))
    return replace(recipe, domain=(name, mean * factor, deviation * abs(factor), *ends, *rest))


def _other_sizes(model: LoadedModel, drawn: tuple[TensorSpec, ...]) -> list[ModelInputs]:
    axes = [axis for axis in model.axes if axis.others]
    chosen = [[(axis, size)] for axis in axes for size in axis.others]
    if len(axes) > 1:
        most = max(len(axis.others) for axis in axes)
        chosen += [[(a, a.others[i % len(a.others)]) for a in axes] for i in range(most)]
        # A model may depend on which of two inputs is longer.
        ends = (min, max)
        chosen += [[(a, ends[(i + turn) % 2](a.others)) for i, a in enumerate(axes)] for turn in (0, 1)]
    return [_resized(model, drawn, sizes) for sizes in chosen]


def _resized(model: LoadedModel, drawn: tuple[TensorSpec, ...], sizes: Sequence[tuple[Axis, int]]) -> ModelInputs:
    specs = []
    for name, spec in zip(model.input_names, drawn, strict=True):
        shape = list(spec.shape)
        for axis, size in sizes:
            for dim in axis.dims_of(name):
                shape[dim] = axis.size_at(name, dim, size)
        specs.append(_reshape_spec(spec, tuple(shape)))
    change = ", ".join(f"{axis.name} {size}" for axis, size in sizes)
    return ModelInputs(_invocation(model, tuple(specs)), change, resized=True)


def _reshape_spec(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    values = spec.values
    if isinstance(values, Literal) or shape == spec.shape:
        return spec
    if values.domain[0] == "steps":
        values = replace(values, domain=(*values.domain[:3], shape[-1]))
    return TensorSpec(shape, spec.dtype, contiguous_strides(shape), 0, values)


@dataclass(frozen=True, eq=False)
class ModelStructure:
    """A model that is ready for export; see `harness.pipeline.case.Structure`.

    Attributes:
        model: The model; it is exported with its own example.
        outputs: How many tensors it returns.
        index: The index of its group.
        inputs: Example inputs in place of the model's own; None for those.
        tolerance: The user's tolerance; None for the effect of roundings.
        alive: See `ModelOracle`.
        cases: The runs; those of `cases_of` without any.
    """

    model: LoadedModel
    outputs: int = 0
    index: int = 0
    inputs: tuple[torch.Tensor, ...] | None = None
    tolerance: Tolerance | None = None
    alive: Callable[[], None] = lambda: None
    cases: tuple[Invocation, ...] = ()

    has_program = True
    answering_backend = None
    is_checked = True
    is_whole_model = True

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The example inputs."""
        return self.model.inputs if self.inputs is None else self.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the graph's inputs."""
        return self.model.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names that the graph's outputs are asked to have; a converter may give names of its own."""
        return tuple(f"out_{i}" for i in range(self.outputs))

    @property
    def promised_outputs(self) -> int:
        """Return the number of the graph's outputs, which is all that is checked of them."""
        return self.outputs

    def oracle(self, invocation: Invocation) -> ModelOracle:
        """Run the model in PyTorch; raises `CallRejected`."""
        return run_model(self.model, invocation, self.tolerance, self.alive)

    def returning(self, outputs: int) -> Self:
        """Return the structure with its number of outputs."""
        return replace(self, outputs=outputs)

    def outputs_in(self, artefact: AnyModel) -> tuple[str, ...]:
        """Return the names of the outputs in an artefact of the model, in their order."""
        return output_names(artefact)

    def request(self, route: Route, others: Sequence[Self] = ()) -> ExportRequest:
        """Return the export of the model along a route; a model is exported by itself."""
        examples = tuple(t.clone() for t in self.tensors)
        return ExportRequest(
            program=self.model.program,
            call=self.model.call(examples, dynamic=route.dynamic),
            inputs=examples,
            input_names=self.input_names,
            output_names=self.output_names,
            opset=route.opset,
            dynamic_dims=self.model.dynamic_dims if route.dynamic else None,
            equal_dims=self.model.equal_dims if route.dynamic else (),
        )

    def export(self, started: StartedRoute) -> AnyModel | StageFailure:
        """Return the artefact that a route's converter makes of the model."""
        return convert_stage(started, self)

    def feeds(self, artefact: AnyModel, arrays: Sequence[Array]) -> dict[str, Array]:
        """Return the inputs of a run by name, without those that the export left out."""
        return named_feeds(artefact, self.input_names, arrays)

    def samples(self, artefact: AnyModel) -> Samples:
        """Return the inputs of its runs."""
        cases = self.cases or [case.invocation for case in cases_of(self.model, dynamic=False)]
        runs = [build_tensors(case) for case in cases]
        return [self.feeds(artefact, [to_numpy(t) for t in tensors]) for tensors in runs]

    def shape_ranges(self, artefact: AnyModel, cases: Sequence[Invocation]) -> dict[str, ShapeRange]:
        """Return the sizes that a dynamic export will run with; the first case's are typical."""
        shapes = [[graph_input_shape(spec) for spec in case.tensors()] for case in cases]
        return shape_ranges(artefact, self.input_names, shapes)

    def is_right_by_calls(self, case: Case, wrong: CaseRun, started: StartedRoute, run: RunCase) -> bool:
        """Return false: the calls of a model are only known while it runs."""
        return False
