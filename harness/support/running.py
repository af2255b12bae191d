"""Answer by running calls with what is installed here.

For an operator, its ordinary calls are run or, in rarer dtypes, those with everyday values; for a model, each distinct
call that it makes, with the values that it passes.
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
#: Number of cases per operator, and of value draws per structure, which give an answer within seconds.
_EXAMPLES, _VALUES = 96, 2
#: Timeout of a step, in seconds.
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
    """Run operators, or the calls of a model, and return how many pass.

        harness.is_supported("aten::celu", dtype="bfloat16")
        harness.is_supported(module, (example,))

    Worker processes are started, so a script must call it under ``if __name__ == "__main__":``.

    Args:
        asked: An operator (``"aten::celu"``, a glob), or a model: a `torch.nn.Module` with example inputs, the name of
            a model, ``FILE.py:FUNCTION`` or ``FILE.pt2``.
        args: Example inputs of a module.
        kwargs: Keyword inputs of a module.
        dtype: The dtype of an operator's tensors, None meaning all; or of a model's floating weights and inputs, None
            meaning its own.
        converter: The exporter.
        backend: The runtime.
        opset: The opset to emit; None means the converter's default.

    Returns:
        The answer; it is true if everything is supported.

    Raises:
        UnknownOperator: PyTorch has no operator of that name.
        UsageProblem: The converter or backend is unknown or cannot run here.
        ModelProblem: The model cannot be loaded or captured.
        ValueError: The dtype does not exist.
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
    verdicts = [verdict for unit in plan.units for verdict in _select(list(_verdicts(unit, supervisor)))]
    operators = tuple(operator_support(map(vars, verdicts)))
    problem = "" if operators else f"PyTorch takes no ordinary call of {word}" + (f" in {dtype}" if dtype else "")
    return Support(word, options.converters[0], options.backends[0], operators, problem)


def _select(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the ordinary cases and, for dtypes without any, those with everyday values."""
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

    answer = model_calls(CallsTask(source=ModelSource(word, Variant(dtype=dtype or ""))), supervisor)
    if answer.capture is None:
        raise ModelProblem(answer.problem)
    return _captured(word, answer.capture, options, supervisor)


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
    """Run each distinct call of a model."""
    calls: dict[str, list[Replayed]] = {}
    for call in capture.calls:
        calls.setdefault(call.invocation.overload, []).append(Replayed(call.invocation, None))
    # Planning any operator checks the names and gives the route and the settings.
    (unit,) = make_plan(replace(options, ops=("aten.relu.default",), shapes="static")).units
    verdicts = [
        verdict
        for overload, replayed in calls.items()
        for verdict in _verdicts(replace(unit, overload=overload, sources=(FromRecord(tuple(replayed)),)), supervisor)
    ]
    problem = "; ".join(f"not run: {why}" for why in capture.left_out)
    operators = tuple(operator_support(map(vars, verdicts)))
    return Support(asked, options.converters[0], options.backends[0], operators, problem)
