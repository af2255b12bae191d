"""`harness.is_supported`: whether something survives the trip to a runtime, without running it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.dtypes import ALL, COMPLEX, WIDE_UNSIGNED
from harness.support.answer import Support, support_of
from harness.support.asked_calls import question
from harness.support.model_loading import loaded
from harness.support.record import SHIPPED, read_support, recorded_names

if TYPE_CHECKING:
    import torch

_DTYPES = (*ALL, *WIDE_UNSIGNED, *COMPLEX)


def is_supported(
    asked: Any,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dtype: str | torch.dtype | None = None,
    converter: str = "dynamo",
    backend: str = "ort-cpu",
    opset: int | None = None,
    record: Path | str | None = None,
) -> Support:
    """Whether a record says that operators, a call or a model work with a converter and a backend.

    An answer rests on recorded cases with the dtypes, attributes, opset, converter and backend that were
    asked for; without such cases it is unknown. Nothing is run, but an ONNX model is loaded in the installed
    backend: if that refuses it, the model is not supported.

        harness.is_supported("aten::celu", dtype="bfloat16")
        harness.is_supported("model.onnx")

    Args:
        asked: An operator (``"aten::celu"``, a glob, an `OpOverload`, a packet), a
            `Invocation`, a `torch.nn.Module` with example inputs, an exported program, an ONNX model, or the
            path of an ``.onnx`` or ``.pt2`` file.
        args: Example inputs of a module.
        kwargs: Further ones.
        dtype: Of an operator's tensors, ``"float16"`` or `torch.float16`; any where it is left out.
        converter: The exporter.
        backend: The runtime.
        opset: Of the model; whichever was recorded where it is left out.
        record: A run's directory, or a file of `conformance supports --write`; by default the bundled record.

    Returns:
        The answer; it is true only where everything is supported.

    Raises:
        ResultsError: the record cannot be read.
        ModelError: a file holds no model, or a module cannot be exported.
        UnknownOperator: PyTorch has no operator of that name.
        ValueError: the record has no verdict of this converter with this backend, or there is no such dtype.
        TypeError: `asked` is nothing of the above.
    """
    dtype = _dtype_name(dtype)
    place = Path(record) if record is not None else SHIPPED
    names, columns = recorded_names(place)
    opsets = columns.get((converter, backend))
    if opsets is None:
        raise ValueError(_no_results(record, f"{converter} → {backend}", columns))
    wanted = question(asked, names, args=args, kwargs=kwargs, dtype=dtype)
    loading = loaded(wanted.model, backend) if wanted.model is not None else None
    return support_of(
        wanted.calls,
        read_support(place, sorted({call.overload for call in wanted.calls})),
        asked=wanted.asked,
        converter=converter,
        backend=backend,
        opset=opset,
        opsets=opsets,
        unmapped=wanted.unmapped,
        loading=loading,
    )


def _no_results(record: Path | str | None, path: str, columns: Iterable[tuple[str, str]]) -> str:
    which = record if record is not None else "the bundled record"
    there = ", ".join(f"{converter} → {backend}" for converter, backend in sorted(columns)) or "none"
    return f"{which} has no results for {path}; it has {there}"


def _dtype_name(dtype: str | torch.dtype | None) -> str | None:
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES and not name.startswith("float8_"):
        raise ValueError(f"{name} is not a dtype; there are {', '.join(_DTYPES)}")
    return name
