"""From what a person asks about to calls: an operator's name, a call, a module, a model or its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.invocation import Invocation
from harness.core.overloads import UnknownOperator, all_overloads, match, near_names, normalise, packet
from harness.support.model_calls import ModelCall, ModelError, ModelOperators, of_onnx, of_program, operators_of
from harness.support.record import attributes_of, dtypes_of

if TYPE_CHECKING:
    import onnx
    import torch

#: How the names of model files end.
_FILES = (".onnx", ".pt2")


@dataclass(frozen=True)
class Question:
    """Calls to answer for.

    Attributes:
        asked: As a person wrote it, or would.
        unmapped: Parts of a model that are not known as an ATen operator.
        model: An ONNX model that was asked about, or the path of its file; None for any other question.
    """

    asked: str
    calls: tuple[ModelCall, ...]
    unmapped: tuple[str, ...] = ()
    model: Any = None


def question(
    asked: str | Path | Invocation | torch.nn.Module | torch.export.ExportedProgram | onnx.ModelProto | Any,
    known: Sequence[str],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dtype: str | None = None,
) -> Question:
    """What `asked` calls.

    Args:
        asked: An operator (``"aten::celu"``, a glob, an `OpOverload`, a packet), an invocation, a module, an
            exported program, an ONNX model, or the path of a file of one of the last two.
        known: The overloads that names and globs may stand for.
        args: Example inputs of a module.
        kwargs: Further ones.
        dtype: Of an operator's tensors; any where it is left out.

    Raises:
        ModelError: a file holds no model, or a module cannot be exported.
        UnknownOperator: a name stands for nothing known.
        TypeError: it is none of these.
    """
    if isinstance(asked, Path) or (isinstance(asked, str) and asked.endswith(_FILES)):
        path = Path(asked)
        found = operators_of(path, known)
        return _of_model(str(asked), found, path if found.kind == "onnx" else None)
    if isinstance(asked, str):
        return Question(asked, tuple(_plain(name, dtype) for name in _named(asked, known)))
    if isinstance(asked, Invocation):
        rank = next((len(tensor.shape) for tensor in asked.tensors()), None)
        call = ModelCall(asked.overload, dtypes_of(asked), attributes_of(asked), rank)
        return Question(str(asked), (call,))
    return _of_object(asked, known, args, kwargs or {}, dtype)


def _of_object(
    asked: Any, known: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], dtype: str | None
) -> Question:
    import onnx
    import torch

    from harness.core.torch_operators import OpOverload

    if isinstance(asked, OpOverload):
        return Question(str(asked), (_plain(str(asked), dtype),))
    if isinstance(asked, type(torch.ops.aten.add)):
        return question(normalise(str(asked)), known, dtype=dtype)
    if isinstance(asked, onnx.ModelProto):
        return _of_model(asked.graph.name or "the model", of_onnx(asked, known), asked)
    if isinstance(asked, torch.nn.Module):
        name = type(asked).__name__
        try:
            asked = torch.export.export(asked, tuple(args), dict(kwargs))
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            raise ModelError(f"{name} cannot be exported with these inputs: {said}") from error
        return _of_model(name, of_program(asked))
    if isinstance(asked, torch.export.ExportedProgram):
        return _of_model("the program", of_program(asked))
    raise TypeError(
        f"{type(asked).__name__} is not an operator, call, module, exported program, ONNX model or a model's path"
    )


def _named(asked: str, known: Sequence[str]) -> list[str]:
    """The overloads in `known` that a name stands for, or where there are none all that PyTorch has."""
    try:
        return match(asked, known)
    except UnknownOperator:
        dotted = normalise(asked)
        found = [name for name in all_overloads() if dotted in (name, packet(name))]
        if found:
            return found
        near = ", ".join(near_names(dotted, known))
        raise UnknownOperator(
            f"{asked}: PyTorch has no operator of that name{f'; near: {near}' if near else ''}"
        ) from None


def _of_model(name: str, found: ModelOperators, model: Any = None) -> Question:
    return Question(name, found.calls, found.unmapped, model)


def _plain(name: str, dtype: str | None) -> ModelCall:
    if dtype is None:
        return ModelCall(name, any_attributes=True)
    from harness.core.tensors import overload

    first = next((a.name for a in overload(name)._schema.arguments if "Tensor" in str(a.type)), None)
    return ModelCall(name, {first: dtype} if first else {}, any_attributes=True)
