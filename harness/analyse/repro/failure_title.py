"""What a failure is in one line: for a script, and as a tracker's maintainers title it."""

from __future__ import annotations

import onnx

from harness.analyse.repro.failure import ReproducibleFailure
from harness.compare import FLUSHED, OVERFLOW, Outcome, Stage
from harness.convert import find_converter
from harness.core import PRECISION, packet
from harness.run import BACKENDS

_STEPS = {
    Stage.CONVERT: "the export",
    Stage.CHECK: "checking the exported model",
    Stage.LOAD: "loading the model",
    Stage.RUN: "running the model",
    Stage.COMPARE: "comparing",
}
_ENDS = {
    Outcome.UNSUPPORTED: "is refused",
    Outcome.ERROR: "fails",
    Outcome.CRASH: "kills the process",
    Outcome.TIMEOUT: "hangs",
}
#: Nodes that only carry values to and from the others.
_GLUE = frozenset({"Cast", "Constant", "Identity"})


def title(failure: ReproducibleFailure) -> str:
    """The failure in one line, in the harness's words."""
    early = failure.stage in (Stage.CONVERT, Stage.CHECK)
    where = failure.converter if early else f"{failure.converter} → {failure.backend}"
    return f"{failure.invocation.overload} through {where}: {_problem(failure)}"


def _problem(failure: ReproducibleFailure) -> str:
    if failure.outcome is Outcome.MISMATCH:
        return wrong_result(failure)
    return f"{_STEPS[failure.stage]} {_ENDS[failure.outcome]}"


def wrong_result(failure: ReproducibleFailure) -> str:
    """What is wrong with the result: ``wrong values``, ``a wrong shape``, ``subnormals flushed to zero``."""
    kind = failure.signature or "values"
    if kind in (FLUSHED, OVERFLOW):
        return kind
    return f"{'' if kind in ('values', 'NaN positions') else 'a '}wrong {kind}"


def fault(failure: ReproducibleFailure) -> str:
    """What the guilty part does: ``gives wrong values``, ``flushes subnormals to zero``."""
    said = {FLUSHED: "flushes subnormals to zero", OVERFLOW: "overflows to infinity"}
    return said.get(failure.signature, f"gives {wrong_result(failure)}")


def _ends(failure: ReproducibleFailure) -> str:
    """What a conversion function of the user's does: ``gives wrong values``, ``fails``."""
    return fault(failure) if failure.outcome is Outcome.MISMATCH else _ENDS[failure.outcome]


def converter_name(name: str) -> str:
    """A converter as its users know it: ``torch.onnx.export(dynamo=True)``."""
    return find_converter(name).summary.partition(",")[0] or name


def backend_name(name: str) -> str:
    """A backend as its users know it: ``ONNX Runtime``."""
    entry = BACKENDS.find(name)[0]
    return name if entry.name.endswith(":") else entry.summary.partition(",")[0] or name


def title_for(failure: ReproducibleFailure, tracker: str, model: onnx.ModelProto | None) -> str:
    """As the maintainers of a tracker title an issue.

    Args:
        tracker: A GitHub repository.
        model: What the call was exported as, if that is known.
    """
    if failure.blame == "spec":
        what = wrong_result(failure).removeprefix("wrong ")
        return f"Specification of {_operators(failure, model)} leaves {what} open"
    if failure.of_rule:
        return f"{failure.rule} {_ends(failure)} for {failure.invocation.dtype}"
    if failure.blame == "pytorch":
        operator = packet(failure.invocation.overload).removeprefix("aten.")
        return f"{operator} {fault(failure)} for {failure.invocation.dtype}"
    if tracker == BACKENDS.find(failure.backend)[0].tracker:
        return _runtime_title(failure, model)
    return _export_title(failure, model)


def _export_title(failure: ReproducibleFailure, model: onnx.ModelProto | None) -> str:
    """For an exporter's tracker: ``[ONNX] celu computes float64 in float32``."""
    operator = packet(failure.invocation.overload).removeprefix("aten.")
    dtype = failure.invocation.dtype
    legacy = " with dynamo=False" if "dynamo=False" in converter_name(failure.converter) else ""
    if failure.stage is Stage.CONVERT:
        if failure.outcome is Outcome.UNSUPPORTED:
            return f"[ONNX] No conversion of {operator} for {dtype}{legacy}"
        return f"[ONNX] Export of {operator} for {dtype} {_ENDS[failure.outcome]}{legacy}"
    if failure.stage is Stage.CHECK:
        return f"[ONNX] {operator} for {dtype} is exported as an invalid model{legacy}"
    if failure.stage is not Stage.COMPARE:
        return f"[ONNX] Exported {operator} for {dtype}: {_problem(failure)}{legacy}"
    narrower = _narrower(dtype, model) if failure.blame_rule == "fewer-bits" else ""
    if narrower:
        return f"[ONNX] {operator} computes {dtype} in {narrower}{legacy}"
    return f"[ONNX] Exported {operator} {fault(failure)} for {dtype}{legacy}"


def _runtime_title(failure: ReproducibleFailure, model: onnx.ModelProto | None) -> str:
    """For a runtime's tracker: ``Sigmoid gives wrong values for float32 on CPU``."""
    what = _operators(failure, model)
    where = "in the reference evaluator" if failure.backend == "onnx-reference" else "on CPU"
    where = "on CUDA" if "cuda" in failure.backend else where
    dtype = _dtype_of(model) or failure.invocation.dtype
    if failure.stage is Stage.COMPARE:
        by = " with graph optimisations" if failure.blame_rule == "graph-optimisation" else ""
        return f"{what} {fault(failure)} for {dtype} {where}{by}"
    if failure.outcome is Outcome.UNSUPPORTED and failure.stage is Stage.LOAD:
        return f"{what} is not implemented for {dtype} {where}"
    return f"{what} for {dtype} {where}: {_problem(failure)}"


def _operators(failure: ReproducibleFailure, model: onnx.ModelProto | None) -> str:
    """The ONNX operators of a small model, the operator that it was exported from for others."""
    nodes = list(model.graph.node) if model is not None else []
    # A runtime names the operator for which it has no kernel: ``Erf(13)``.
    named = [node.op_type for node in nodes if f" {node.op_type}(" in failure.message]
    found = list(dict.fromkeys(named or (node.op_type for node in nodes if node.op_type not in _GLUE)))
    found = found or list(dict.fromkeys(node.op_type for node in nodes))
    if 0 < len(found) <= 3:
        return found[0] if len(found) == 1 else f"A model of {', '.join(found[:-1])} and {found[-1]}"
    return f"A model of {packet(failure.invocation.overload)}"


def _dtype_of(model: onnx.ModelProto | None) -> str:
    """The dtype of the first value that the first telling node takes; "" where that is not known."""
    if model is None:
        return ""
    graph = model.graph
    known = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    known |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    telling = [node for node in graph.node if node.op_type not in _GLUE] or list(graph.node)
    taken = [known[name] for node in telling[:1] for name in node.input if known.get(name)]
    return _word(taken[0]) if taken else ""


def _narrower(dtype: str, model: onnx.ModelProto | None) -> str:
    """The floating dtype that the nodes of a model convert to which has fewer bits; "" for none."""
    to = [
        _word(attribute.i)
        for node in (model.graph.node if model is not None else ())
        for attribute in node.attribute
        if attribute.name == "to"
    ]
    bits = PRECISION.get(dtype, 0)
    return min((word for word in to if PRECISION.get(word, bits) < bits), key=PRECISION.__getitem__, default="")


def _word(element: int) -> str:
    """``float32`` of ONNX's ``FLOAT``."""
    name: str = onnx.TensorProto.DataType.Name(element).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)
