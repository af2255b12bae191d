"""The runs that a model gets: its example, other values, other sizes; its export, and what is fed to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from harness.convert.converter import ExportRequest
from harness.core.described_tensor import describe_tensor
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.pipeline.models.model_loading import Axis, LoadedModel
from harness.pipeline.models.model_reference import ModelReference
from harness.pipeline.models.model_task import ModelCase
from harness.pipeline.run_steps import named_feeds
from harness.pipeline.torch_call import quiet_call
from harness.run.artefact import AnyModel

#: Storage elements of an example input that are kept as they are: one that is larger is drawn like it.
_EXACT = 4096


def cases_of(model: LoadedModel, dynamic: bool) -> tuple[ModelCase, ...]:
    """What to run, the example first.

    A static export is run with other values, since tracing keeps the path that the example took; a dynamic
    one with the sizes that the model's axes name, one axis at a time and all together.
    """
    named = list(zip(model.inputs, model.input_names, strict=True))
    # Masks, lengths and positions mean something together, and pixels do not.
    example = tuple(describe_tensor(t, name, exact=None if t.is_floating_point() else _EXACT) for t, name in named)
    drawn = tuple(describe_tensor(t, name, exact=0) for t, name in named)
    others = _other_sizes(model, drawn) if dynamic else _other_values(model, example, drawn)
    seen: dict[str, ModelCase] = {}
    for case in (ModelCase(_invocation(model, example)), *others):
        seen.setdefault(case.invocation.case_id, case)
    return tuple(seen.values())


def _invocation(model: LoadedModel, specs: tuple[TensorSpec, ...]) -> Invocation:
    return Invocation(model.overload, tuple(zip(model.input_names, specs, strict=True)))


def _other_values(
    model: LoadedModel, example: tuple[TensorSpec, ...], drawn: tuple[TensorSpec, ...]
) -> list[ModelCase]:
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
        ModelCase(_invocation(model, tuple(changed(old, new, change) for old, new in pairs)), name)
        for name, change in changes.items()
    ]


def _scaled(recipe: Recipe, factor: float) -> Recipe:
    """Values scaled, where that leaves them among values of both signs or of one."""
    name, mean, deviation, low, high, *rest = recipe.domain
    mean, deviation, low, high = (float(n) for n in (mean, deviation, low, high))
    if factor < 0 and not low < 0 < high:
        # What has one sign may need it.
        return recipe
    ends = sorted((low * factor, high * factor))
    return replace(recipe, domain=(name, mean * factor, deviation * abs(factor), *ends, *rest))


def _other_sizes(model: LoadedModel, drawn: tuple[TensorSpec, ...]) -> list[ModelCase]:
    axes = [axis for axis in model.axes if axis.others]
    chosen = [[(axis, size)] for axis in axes for size in axis.others]
    if len(axes) > 1:
        most = max(len(axis.others) for axis in axes)
        chosen += [[(a, a.others[i % len(a.others)]) for a in axes] for i in range(most)]
        # Which of two inputs is longer may decide what a model does.
        ends = (min, max)
        chosen += [[(a, ends[(i + turn) % 2](a.others)) for i, a in enumerate(axes)] for turn in (0, 1)]
    return [_resized(model, drawn, sizes) for sizes in chosen]


def _resized(model: LoadedModel, drawn: tuple[TensorSpec, ...], sizes: Sequence[tuple[Axis, int]]) -> ModelCase:
    specs = []
    for name, spec in zip(model.input_names, drawn, strict=True):
        shape = list(spec.shape)
        for axis, size in sizes:
            for dim in axis.dims_of(name):
                shape[dim] = axis.size_at(name, dim, size)
        specs.append(_with_shape(spec, tuple(shape)))
    change = ", ".join(f"{axis.name} {size}" for axis, size in sizes)
    return ModelCase(_invocation(model, tuple(specs)), change, resized=True)


def _with_shape(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    values = spec.values
    if isinstance(values, Literal) or shape == spec.shape:
        return spec
    if values.domain[0] == "steps":
        values = replace(values, domain=(*values.domain[:3], shape[-1]))
    return TensorSpec(shape, spec.dtype, contiguous_strides(shape), 0, values)


def export_of(
    model: LoadedModel, dynamic: bool, opset: int | None, inputs: Sequence[torch.Tensor] | None = None
) -> ExportRequest:
    """One export of a model; with the sizes of its axes open where `dynamic`, with `inputs` in place of the
    example where they are given."""
    examples = tuple(t.clone() for t in (inputs if inputs is not None else model.inputs))
    with quiet_call():
        outputs = len(model.program(*(t.clone() for t in examples)))
    return ExportRequest(
        program=model.program,
        call=model.call(examples, dynamic=dynamic),
        inputs=examples,
        input_names=model.input_names,
        output_names=tuple(f"out_{i}" for i in range(outputs)),
        opset=opset,
        dynamic_dims=model.dynamic_dims if dynamic else None,
        equal_dims=model.equal_dims if dynamic else (),
    )


def feeds_of(model: LoadedModel, reference: ModelReference, exported: AnyModel) -> dict[str, Array]:
    """The inputs of a run by name, without those that the export left out."""
    return named_feeds(exported, model.input_names, reference.feeds)
