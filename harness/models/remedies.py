"""Try changes that may make a failing route of a model right, one at a time.

1. An example of size 2, if a dynamic size has an example of 1, which `torch.export` treats as static.
2. The other exporters of the same kind of artefact.
3. Other opsets.
4. Other backends that are installed.
5. The next wider dtype, if the route uses one of 16 bits.

Each change is run with all inputs of the route. Changes that do not help are reported too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.converter import CONVERTERS, find_converter
from harness.core.invocation import Invocation
from harness.core.route import FILE
from harness.models.facts import ModelFacts
from harness.pipeline.model_task import Variant
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS

#: Seconds after which no further change is tried.
_PATIENCE = 45.0
#: Opsets to try: the oldest that dynamo emits, its default, and the newest.
_OPSETS = (18, 20, 23)
#: Runtimes that users deploy on a CPU; those that are installed are tried.
_RUNTIMES = ("ort-cpu", "openvino", "tract")
_WIDER = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class Remedy:
    """One change, and whether it makes the route right.

    Attributes:
        kind: ``example``, ``converter``, ``opset``, ``backend`` or ``dtype``.
        value: The axis with its size (``batch=2``), the name or the number.
        helps: Whether every run is right with it.
    """

    kind: str
    value: str
    helps: bool


def tried_remedies(
    unit: Unit, backend: str, failure: Verdict, facts: ModelFacts, supervisor: Supervisor
) -> tuple[Remedy, ...]:
    """Return the changes that were tried on a failing route; each kind is tried until one helps."""
    started, tried, settled = time.monotonic(), list[Remedy](), set[str]()
    alone = replace(unit, backends=(backend,), settings=replace(unit.settings, blame=False))
    for kind, value, changed in _changes(alone, failure, facts):
        if kind in settled or time.monotonic() - started > _PATIENCE:
            continue
        outcomes = [verdict.outcome for verdicts in run_unit(changed, supervisor) for verdict in verdicts]
        helps = bool(outcomes) and set(outcomes) == {Outcome.PASS}
        tried.append(Remedy(kind, value, helps))
        if helps:
            settled.add(kind)
        if helps and kind == "example":
            # The model is right; it was the example that was unsuitable.
            break
    return tuple(tried)


def _changes(unit: Unit, failure: Verdict, facts: ModelFacts) -> Iterator[tuple[str, str, Unit]]:
    (backend,) = unit.backends
    if unit.route.dynamic:
        for name in _axes_of_one(facts):
            yield "example", f"{name}=2", _set_variant(unit, _set_example(unit.variant, name))
    if unit.route.transforms:
        plain = replace(unit.route, transforms=())
        yield "converter", plain.export, replace(unit, route=plain)
    converter = find_converter(unit.route.converter)
    for entry in CONVERTERS.entries():
        is_other = entry.name != converter.name and entry.makes == converter.makes and entry.witness is not None
        is_free = unit.route.opset is None and converter.name != FILE
        if is_other and is_free and entry.probe() is None:
            other = replace(unit.route, converter=entry.name)
            yield "converter", other.export, replace(unit, route=other)
    if converter.makes == ONNX:
        emitted = failure.opset or unit.route.opset
        for opset in _OPSETS:
            if opset != emitted and opset in converter.opsets():
                yield "opset", str(opset), replace(unit, route=replace(unit.route, opset=opset))
    if failure.stage in (Stage.LOAD, Stage.RUN, Stage.COMPARE) and converter.makes == ONNX:
        for runtime in BACKENDS.entries():
            if runtime.name != backend and runtime.name in _RUNTIMES and runtime.probe("") is None:
                yield "backend", runtime.name, replace(unit, backends=(runtime.name,))
    wider = _WIDER.get(unit.variant.dtype or _own_dtype(failure))
    if wider is not None and not facts.is_exported:
        yield "dtype", wider, _set_variant(unit, replace(unit.variant, dtype=wider))


def _set_variant(unit: Unit, variant: Variant) -> Unit:
    return replace(unit, model=replace(unit.whole_model, variant=variant))


def _axes_of_one(facts: ModelFacts) -> Iterator[str]:
    """Yield dynamic sizes whose example is 1 in some input."""
    for axis in facts.axes:
        sizes: Mapping[str, tuple[int, ...]] = facts.shapes
        if any(sizes[name][dim] == 1 for name in axis.where for dim in axis.dims_of(name)):
            yield axis.name


def _set_example(variant: Variant, name: str) -> Variant:
    return replace(variant, example_sizes=(*variant.example_sizes, (name, 2)))


def _own_dtype(failure: Verdict) -> str:
    """Return the dtype of the first floating input; "" if there is none."""
    dtypes = [spec.dtype for spec in Invocation.from_json(failure.invocation).tensors()]
    return next((dtype for dtype in dtypes if "float" in dtype), "")
