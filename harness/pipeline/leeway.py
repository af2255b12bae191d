"""The allowance of a route with transforms: the tolerance of one rounding, and an emulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
import onnx

from harness.compare.judge import CLOSE, Leeway, Mask
from harness.compare.nearness import tolerance_of
from harness.convert.transform import last_precision
from harness.core.dtypes import LARGEST, MIN_EXPONENT, PRECISION, Array
from harness.core.program import is_composed
from harness.core.route import Route
from harness.pipeline.case import Case
from harness.pipeline.emulation import Emulation, stores_steps
from harness.pipeline.model_task import GraphChange
from harness.pipeline.nodes.node_steps import split_steps
from harness.pipeline.start import start_backend
from harness.pipeline.submodel import extract, sort_nodes
from harness.pipeline.transformed_graph import find_range_loss
from harness.run.backend import BACKENDS, REFERENCE, Backend, HasPlain

#: The runtime that emulates graphs: it has kernels of what transforms write, ONNX's own operators and its own.
_RUNTIME = "ort-cpu"


def emulating_runtime() -> Backend:
    """Return ONNX Runtime without optimisations; onnx's evaluator where it is not installed."""
    if BACKENDS.find(_RUNTIME)[0].probe("") is None:
        backend = start_backend(_RUNTIME)
        return backend.plain() if isinstance(backend, HasPlain) else backend
    return start_backend(REFERENCE)


#: Returns a graph and its inputs by name.
MakeGraph: TypeAlias = "Callable[[], tuple[onnx.ModelProto, Mapping[str, Array]]]"


@dataclass(frozen=True, eq=False)
class TransformedOutputs:
    """The outputs of a case in a graph that transforms have made.

    Attributes:
        precision: The narrowest dtype of the graph.
        case: The case.
        make: Returns the graph, which may contain other cases; called if the tolerance does not explain a difference.
    """

    precision: str
    case: Case
    make: MakeGraph

    @classmethod
    def along(cls, route: Route, case: Case, make: MakeGraph) -> Self | None:
        """Return the outputs of a case along a route; None if its transforms change no dtype."""
        precision = last_precision(route)
        return cls(precision, case, make) if precision else None

    @cached_property
    def emulation(self) -> Emulation:
        """The emulation of the graph."""
        made, feeds = self.make()
        model = sort_nodes(made)
        names = self.case.structure.outputs_in(model)
        graph = split_steps(extract(model, feeds, names))
        taken = {name for step in graph.steps for name in step.inputs}.union(names)
        used = {name: array for name, array in feeds.items() if name in taken}
        given = dict(zip(self.case.structure.input_names, self.case.oracle.feeds, strict=False))
        rounded = {
            name: given[name].astype(np.float64) != array.astype(np.float64)
            for name, array in used.items()
            if name in given and given[name].dtype != array.dtype
        }
        return Emulation(graph, used, emulating_runtime(), rounded)

    def is_explained(self, output: int, got: Array) -> Mask:
        """Mark the elements of an output, in float64, that the dtypes of the graph explain."""
        oracle = self.case.oracle
        right = oracle.truth[output] if oracle.truth is not None else None
        if right is None or right.shape != got.shape:
            right = oracle.expected[output]
        return self.is_near(output, right, got)

    def is_near(self, output: int, right: Array, got: Array) -> Mask:
        """Mark the elements of an output that are those of another one of its shape, up to the dtypes of the graph."""
        wide, got = right.astype(np.float64), got.astype(np.float64)
        is_near = np.zeros(got.shape, bool)
        if self.precision in PRECISION:
            is_near = tolerance_of(CLOSE, self.precision).accepts(wide, got)
            if is_near.all():
                return is_near
        structure, overload = self.case.structure, self.case.oracle.invocation.overload
        # The steps of a tensor are alike.
        pooled = self.precision not in PRECISION or structure.is_whole_model or is_composed(overload)
        name = self.emulation.outputs[output]
        return is_near | self.emulation.is_explained(name, wide, got, pooled=pooled)

    @property
    def stores_steps(self) -> bool:
        """Whether numbers on the way to the outputs are stored as steps: a quantiser leaves many graphs as they are."""
        if self.precision in PRECISION:
            return False
        return any(stores_steps(node.op_type) for step in self.emulation.graph.steps for node in step.nodes)

    def text_of_unheld_numbers(self) -> str:
        """Return which number of the inputs or outputs the narrow dtype cannot hold, for a person; "" for none.

        Steps are integers, which have neither infinities nor NaN.
        """
        if self.precision not in PRECISION and not self.stores_steps:
            return ""
        oracle = self.case.oracle
        for what, arrays in (("input", oracle.feeds), ("output", oracle.expected)):
            for array in arrays:
                lost = _unheld(array, self.precision, may_vanish=what == "output")
                if lost.any():
                    number = array[lost].flat[0].astype(np.float64)
                    return f"{self.precision} cannot hold the {what}'s {number:.6g}"
        return ""

    def find_range_loss(self) -> GraphChange | None:
        """Return the first node whose result leaves the range of its dtype, if an output of the graph is wrong because
        of it; None if none does.

        An output may be finite nevertheless: a quotient by an infinite variance is zero.
        """
        asked = self.emulation.asked
        if asked is None or self.precision not in PRECISION:
            return None
        if not self.emulation.leaves_range:
            return None
        outputs = enumerate(self.emulation.outputs)
        if all(self.is_explained(output, asked[name]).all() for output, name in outputs):
            return None
        return find_range_loss(self.emulation)

    @property
    def leeway(self) -> Leeway:
        """What the graph allows results to differ by.

        A result within the tolerance of the narrow dtype needs no emulation: the roundings of an input and of the
        result make as much.
        """
        is_float = self.precision in PRECISION
        return Leeway(
            tolerance=tolerance_of(CLOSE, self.precision) if is_float else None,
            stored_as=self.precision if is_float else "",
            keeps_zero_signs=lambda: not self.stores_steps,
            is_explained=self.is_explained,
        )


def _unheld(array: Array, precision: str, *, may_vanish: bool) -> Mask:
    """Mark the numbers of an array that a dtype cannot hold."""
    if str(array.dtype) not in PRECISION:
        return np.zeros(array.shape, bool)
    wide = array.astype(np.float64)
    if precision not in PRECISION:
        return ~np.isfinite(wide)
    lost = np.isfinite(wide) & (np.abs(wide) > LARGEST[precision])
    if not may_vanish:
        lost |= (wide != 0) & (np.abs(wide) < 2.0 ** (MIN_EXPONENT[precision] - PRECISION[precision]))
    return np.asarray(lost)
