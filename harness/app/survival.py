"""Checks of models from Python: an answer as an object, and an assertion for tests of other projects.

Tolerances are not chosen: an error counts if rounding every operator's result once does not explain it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, TypedDict, Unpack

from rich.console import Console

from harness.app.checking import CheckAnswer, CheckRequest, answer_check
from harness.core.route import FILE, Route, is_onnx_file
from harness.models.stored_model import StoredModel, is_empty, model_title, store_model
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import NO_FILES, GivenFiles, absolute_word
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options
from harness.present import report as reports

#: The width of the text of an answer, in columns.
_WIDTH = 100
#: Seconds for a step, and bytes of the worker.
TIMEOUT, MEMORY = 120.0, 8 * 2**30


class DoesNotSurvive(AssertionError):
    """A model fails on a route, or nothing could be compared; the message is what `conformance check` prints.

    Attributes:
        answer: The answer.
    """

    def __init__(self, answer: CheckAnswer) -> None:
        super().__init__(answer_text(answer))
        self.answer = answer


def answer_text(answer: CheckAnswer) -> str:
    """Return what `conformance check` prints about a model."""
    stream = StringIO()
    Console(file=stream, width=_WIDTH, color_system=None, highlight=False).print(reports.render(answer.report))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def check(
    model: Any,
    inputs: Any = (),
    *,
    routes: Sequence[str] = (),
    dynamic: Any = None,
    inputs_from: str | Path = "",
    dtypes: Sequence[str] = (),
    rules: Sequence[str | Path] = (),
    timeout: float = TIMEOUT,
    supervisor: Supervisor | None = None,
) -> CheckAnswer:
    """Export a model on some routes, run it, and return whether it survives; if not, where it first departs and why.

        answer = harness.check(module, (example,), routes=["dynamo -> ort-cpu", "dynamo+float16 -> ort-cpu"])
        answer.survives, answer.data, answer.model.ways

    A worker process runs the model, so a script must call this under ``if __name__ == "__main__":``. A model that fails
    stays in ``.conformance/models/``, where `conformance check` and `conformance repro` take it.

    Args:
        model: A `torch.nn.Module` or function, a `torch.export.ExportedProgram`, an `onnx.ModelProto`, or a name: of a
            file (``FILE.py:FUNCTION``, ``FILE.pt2``, ``FILE.onnx``) or of a model in ``cases/models``.
        inputs: Example inputs: a tensor, a tuple, or a dict of keyword inputs; of an ONNX graph a dict of arrays, or
            nothing to draw them.
        routes: ``CONVERTER -> BACKEND``, with transforms as in ``dynamo+float16 -> ort-cpu``. Default:
            ``dynamo -> ort-cpu``; for an ONNX file ``file -> ort-cpu``.
        dynamic: `dynamic_shapes` as `torch.export.export` takes them, or texts such as ``x:0=1..8``. The model is then
            exported with static and with dynamic shapes, and run at other sizes.
        inputs_from: A file of inputs, or a folder whose files are run one by one: .npz, .npy or .pb.
        dtypes: Dtypes to try in addition to the model's own: ``float16``, ``bfloat16``.
        rules: Files of conversion functions.
        timeout: Seconds for a step, if this check starts a worker.
        supervisor: Runs the worker; None starts one for this check.

    Raises:
        UsageProblem: A converter or backend cannot run here.
        UnknownName: No model, converter or backend has the name.
        ModelProblem: The model cannot be loaded or sent to a worker, or does not fit the request.
    """
    texts = [dynamic] if isinstance(dynamic, str) else dynamic if _are_texts(dynamic) else []
    with _stored(model, inputs, None if texts else dynamic) as stored:
        request = CheckRequest(
            word=stored.word,
            options=_route_options(stored.word, routes, rules),
            axes=tuple(texts),
            dtypes=tuple(dtypes),
            given=_given(stored, inputs_from),
            name="" if isinstance(model, str | Path) else model_title(model),
            shown_word=stored.shown_word,
        )
        with nullcontext(supervisor) if supervisor else Supervisor(timeout=timeout, memory_limit=MEMORY) as runner:
            answer = answer_check(request, runner, lambda step: None)
        if not answer.survives:
            stored.keep()
        return answer


class CheckOptions(TypedDict, total=False):
    """The options of `check` and `assert_survives`; see `check`."""

    routes: Sequence[str]
    dynamic: Any
    inputs_from: str | Path
    dtypes: Sequence[str]
    rules: Sequence[str | Path]
    timeout: float
    supervisor: Supervisor | None


def assert_survives(model: Any, inputs: Any = (), **options: Unpack[CheckOptions]) -> CheckAnswer:
    """Assert that a model survives its way through export and runtime; see `check` for the arguments.

    Raises:
        DoesNotSurvive: It fails on a route, or nothing could be compared.
    """
    __tracebackhide__ = True
    answer = check(model, inputs, **options)
    if not answer.survives:
        raise DoesNotSurvive(answer)
    return answer


def _are_texts(dynamic: Any) -> bool:
    return isinstance(dynamic, list | tuple) and bool(dynamic) and all(isinstance(word, str) for word in dynamic)


def _given(stored: StoredModel, inputs_from: str | Path) -> GivenFiles:
    if not inputs_from:
        return GivenFiles(stored.inputs) if stored.inputs else NO_FILES
    if stored.inputs:
        raise ModelProblem("give inputs or inputs_from, not both")
    if not Path(inputs_from).exists():
        raise ModelProblem(f"inputs_from={inputs_from}: no such file or folder")
    return GivenFiles(str(Path(inputs_from).absolute()))


def _route_options(word: str, routes: Sequence[str], rules: Sequence[str | Path]) -> tuple[Options, ...]:
    """Return the options of some routes; backends that share an export are in one set of options."""
    usual = f"{FILE if is_onnx_file(word) else 'dynamo'} -> ort-cpu"
    exports: dict[tuple[str, int | None], list[str]] = {}
    for text in (routes,) if isinstance(routes, str) else routes or (usual,):
        route = Route.parse(text)
        if not route.backend:
            raise ModelProblem(f"route {text!r} names no backend: write CONVERTER -> BACKEND")
        name = str(replace(route, backend="", names_opset=False))
        exports.setdefault((name, route.opset), []).append(route.backend)
    files = tuple(str(Path(file).absolute()) for file in rules)
    return tuple(
        Options(models=(word,), converters=(name,), backends=tuple(backends), opset=opset, rules=files)
        for (name, opset), backends in exports.items()
    )


@contextmanager
def _stored(model: Any, inputs: Any, dynamic: Any) -> Iterator[StoredModel]:
    """Write a model to files while it is checked, unless it is a file's name already."""
    if isinstance(model, str | Path):
        if not is_empty(inputs) or dynamic is not None:
            problem = "has example inputs and dynamic shapes of its own: leave out inputs and dynamic"
            raise ModelProblem(f"{model} {problem}")
        yield StoredModel(absolute_word(str(model)))
        return
    with tempfile.TemporaryDirectory(prefix="conformance-model-") as folder:
        yield store_model(model, inputs, dynamic, Path(folder))
