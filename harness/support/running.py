"""Is it supported here: by running the calls with what is installed.

Of an operator its ordinary calls are run, or everyday values in a rarer dtype; of a model each distinct call that it
makes, on the values that it has there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.compare.verdict import Verdict
from harness.core.dtypes import ALL, COMPLEX, WIDE_UNSIGNED
from harness.core.invocation import Invocation
from harness.core.overloads import match
from harness.generate.call_traits import is_everyday
from harness.generate.case_library import load_cases
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.models.capture import Capture
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options
from harness.plan.plan import make_plan
from harness.plan.unit import Unit, run_unit
from harness.support.answer import Support, operator_support

if TYPE_CHECKING:
    import torch

_DTYPES = (*ALL, *WIDE_UNSIGNED, *COMPLEX)
#: Cases drawn of an operator, and of each structure, for an answer in seconds.
_EXAMPLES, _VALUES = 96, 2
#: Seconds of a step.
_TIMEOUT = 60.0


def is_supported(
    asked: Any,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    dtype: str | torch.dtype | None = None,
    converter: str = "dynamo",
    backend: str = "ort-cpu",
    opset: int | None = None,
) -> Support:
    """Run operators, or the calls of a model, and say how many pass.

        harness.is_supported("aten::celu", dtype="bfloat16")
        harness.is_supported(module, (example,))

    Worker processes are started: a script asks under ``if __name__ == "__main__":``.

    Args:
        asked: An operator (``"aten::celu"``, a glob), or a model: a `torch.nn.Module` with example inputs, the name of
            a model, ``FILE.py:FUNCTION`` or ``FILE.pt2``.
        args: Example inputs of a module.
        kwargs: Further ones.
        dtype: Of an operator's tensors, or of a model's floating weights and inputs; None for all, or its own.
        converter: The exporter.
        backend: The runtime.
        opset: To emit; None for the converter's default.

    Returns:
        The answer; it is true only where everything is supported.

    Raises:
        UnknownOperator: PyTorch has no operator of that name.
        UsageProblem: the converter or the backend is unknown, or cannot run here.
        ModelProblem: the model cannot be loaded or captured.
        ValueError: there is no such dtype.
    """
    options = Options(converters=(converter,), backends=(backend,), opset=opset, values=_VALUES, examples=_EXAMPLES)
    name = _dtype_name(dtype)
    with Supervisor(timeout=_TIMEOUT) as supervisor:
        if not isinstance(asked, str):
            return _module(asked, args, kwargs or {}, name, options, supervisor)
        if _names_model(asked):
            return _model(asked, name, options, supervisor)
        return _operators(asked, name, options, supervisor)


def _names_model(word: str) -> bool:
    from harness.pipeline.model_task import split_word

    if split_word(word)[0] is not None:
        return True
    if ":" in word or "." in word or "*" in word:
        return False
    from harness.pipeline.model_loading import load_models

    return word in load_models()


def _dtype_name(dtype: str | torch.dtype | None) -> str | None:
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES and not name.startswith("float8_"):
        raise ValueError(f"{name} is not a dtype; there are {', '.join(_DTYPES)}")
    return name


def _operators(word: str, dtype: str | None, options: Options, supervisor: Supervisor) -> Support:
    names = match(word, list(load_cases()))
    plan = make_plan(replace(options, ops=tuple(names), dtypes=(dtype,) if dtype else (), shapes="static"))
    verdicts = [verdict for unit in plan.units for verdict in _usual(list(_verdicts(unit, supervisor)))]
    found = tuple(operator_support(map(vars, verdicts)))
    problem = "" if found else f"PyTorch takes no ordinary call of {word}" + (f" in {dtype}" if dtype else "")
    return Support(word, options.converters[0], options.backends[0], found, problem)


def _usual(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The ordinary cases; or everyday values in a rarer dtype, of each dtype that has no ordinary ones."""
    ordinary = [verdict for verdict in verdicts if verdict.ordinary]
    known = {verdict.dtype for verdict in ordinary}
    rest = [v for v in verdicts if v.dtype not in known and is_everyday(Invocation.from_json(v.invocation))]
    return [*ordinary, *rest]


def _verdicts(unit: Unit, supervisor: Supervisor) -> Iterator[Verdict]:
    for verdicts in run_unit(unit, supervisor):
        yield from verdicts


def _model(word: str, dtype: str | None, options: Options, supervisor: Supervisor) -> Support:
    from harness.models.facts import CallsTask, model_calls
    from harness.pipeline.model_loading import ModelProblem
    from harness.pipeline.model_task import ModelSource, Variant

    found = model_calls(CallsTask(source=ModelSource(word, Variant(dtype=dtype or ""))), supervisor)
    if found.capture is None:
        raise ModelProblem(found.problem)
    return _captured(word, found.capture, options, supervisor)


def _module(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dtype: str | None,
    options: Options,
    supervisor: Supervisor,
) -> Support:
    from harness.models.capture import capture_calls
    from harness.pipeline.model_loading import given_model

    model = given_model(type(module).__name__, module, tuple(args), kwargs, dtype or "")
    return _captured(model.name, capture_calls(model, exact=True), options, supervisor)


def _captured(asked: str, capture: Capture, options: Options, supervisor: Supervisor) -> Support:
    """The calls of a model, each once."""
    calls: dict[str, list[Replayed]] = {}
    for call in capture.calls:
        calls.setdefault(call.invocation.overload, []).append(Replayed(call.invocation, None))
    # The plan checks the names, and says how this converter and this backend are run.
    (unit,) = make_plan(replace(options, ops=("aten.relu.default",), shapes="static")).units
    verdicts = [
        verdict
        for overload, replayed in calls.items()
        for verdict in _verdicts(replace(unit, overload=overload, sources=(FromRecord(tuple(replayed)),)), supervisor)
    ]
    problem = "; ".join(f"not run: {why}" for why in capture.left_out)
    found = tuple(operator_support(map(vars, verdicts)))
    return Support(asked, options.converters[0], options.backends[0], found, problem)
