"""The runs that a model gets: its example, other values, other sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.core import Invocation, Literal, Recipe, TensorSpec, contiguous_strides, describe_tensor
from harness.execute.models.model_entry import Axis
from harness.execute.models.model_loading import LoadedModel
from harness.execute.models.model_task import ModelCase

#: Storage elements of an example input that are kept as they are: one that is larger is drawn like it.
_EXACT = 4096


def cases_of(model: LoadedModel, dynamic: bool) -> tuple[ModelCase, ...]:
    """What to run, the example first.

    A static export is run with other values, since tracing keeps the path that the example took; a dynamic
    one with the sizes that the model's axes name, one axis at a time and all together.
    """
    example = tuple(
        describe_tensor(t, name, exact=_EXACT if _is_structure(t) else None)
        for name, t in zip(model.input_names, model.inputs, strict=True)
    )
    drawn = tuple(
        describe_tensor(t, name, exact=0) for name, t in zip(model.input_names, model.inputs, strict=True)
    )
    found = [ModelCase(_invocation(model, example))]
    if dynamic:
        found += _other_sizes(model, drawn)
    else:
        found += _other_values(model, example, drawn)
    seen: dict[str, ModelCase] = {}
    for case in found:
        seen.setdefault(case.invocation.case_id, case)
    return tuple(seen.values())


def _is_structure(tensor: object) -> bool:
    """Masks, lengths and positions mean something together, and pixels do not."""
    return not getattr(tensor, "is_floating_point", lambda: True)()


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

    found = []
    for name, change in changes.items():
        specs = tuple(changed(old, new, change) for old, new in zip(example, drawn, strict=True))
        found.append(ModelCase(_invocation(model, specs), name))
    return found


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
    found = []
    axes = [axis for axis in model.axes if axis.others]
    for axis in axes:
        found += [_resized(model, drawn, [(axis, size)]) for size in axis.others]
    for i in range(max((len(axis.others) for axis in axes), default=0)):
        if len(axes) > 1:
            found.append(_resized(model, drawn, [(a, a.others[i % len(a.others)]) for a in axes]))
    return found


def _resized(
    model: LoadedModel, drawn: tuple[TensorSpec, ...], sizes: Sequence[tuple[Axis, int]]
) -> ModelCase:
    specs = []
    for name, spec in zip(model.input_names, drawn, strict=True):
        shape = list(spec.shape)
        for axis, size in sizes:
            if name in axis.where:
                shape[axis.where[name]] = size
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
