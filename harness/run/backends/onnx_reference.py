"""The ONNX project's reference evaluator in NumPy: slow for large convolutions, but closest to the specification."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from harness.core.dtypes import Array
from harness.core.plugins import installed_version
from harness.core.snippet import RunSnippet, RunWanted, numpy_exchange
from harness.run import node_names as _messages
from harness.run.backend import BackendEntry, InvalidModel, ShapeRange, UnsupportedModel, register

_OPERATOR = re.compile(r"(?:operator|[Nn]ode type):? '(?P<operator>[^']+)' (?:and|from|of) domain '(?P<domain>[^']*)'")


class ReferenceSession:
    """A model loaded by `onnx.reference.ReferenceEvaluator`."""

    runnable = True

    def __init__(self, evaluator: Any, model: onnx.ModelProto) -> None:
        self._evaluator = evaluator
        self._model = model

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See :meth:`harness.run.backend.BackendSession.run`."""
        try:
            # Overflow and NaN are part of the tests, so NumPy must not warn of them.
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs = self._evaluator.run(None, dict(feeds))
        except NotImplementedError as error:
            raise _unsupported(error, self._model) from error
        return [np.asarray(output, order="C") for output in outputs]


class ReferenceBackend:
    """The ONNX reference evaluator."""

    name = "onnx-reference"
    device = "cpu"
    version: str = onnx.__version__

    def narrows(self, dtype: str) -> str | None:
        """Return None, since NumPy keeps every dtype."""
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> ReferenceSession:
        """See :meth:`harness.run.backend.Backend.load`; ranges of shapes are not needed."""
        from onnx.reference import ReferenceEvaluator
        from onnx.reference.op_run import RuntimeContextError

        try:
            try:
                evaluator = ReferenceEvaluator(model)
            except RuntimeContextError:
                # Operators that are functions of their input types need these types.
                evaluator = ReferenceEvaluator(onnx.shape_inference.infer_shapes(model))
        except NotImplementedError as error:
            raise _unsupported(error, model) from error
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise InvalidModel(str(error)) from error
        return ReferenceSession(evaluator, model)


def _unsupported(error: Exception, model: onnx.ModelProto) -> UnsupportedModel:
    message = str(error).strip()
    match = _OPERATOR.search(message)
    return UnsupportedModel(
        message, _messages.nodes_of_type(model, match["operator"], match["domain"]) if match else ()
    )


def _snippet(wanted: RunWanted) -> RunSnippet:
    feed, output, helpers = numpy_exchange(wanted.raw)
    if wanted.arrays:
        feed, output = "inputs[i.name]", "np.asarray(o)"
    return RunSnippet(
        # Operators that are functions of their input types need these types.
        load=("session = ReferenceEvaluator(onnx.shape_inference.infer_shapes(model))",),
        run=(
            *helpers,
            f"feeds = {{i.name: {feed} for i in model.graph.input}}",
            f"outputs = [{output} for o in session.run(None, feeds)]",
        ),
        imports=(
            *(("from ml_dtypes import bfloat16",) if wanted.raw else ()),
            "import numpy as np",
            "from onnx.reference import ReferenceEvaluator",
        ),
    )


register(
    BackendEntry(
        name="onnx-reference",
        # The evaluator is part of onnx, which the harness itself requires.
        probe=lambda argument: None,
        create=lambda argument: ReferenceBackend(),
        version=lambda argument: installed_version("onnx"),
        summary="the ONNX project's reference evaluator, in NumPy",
        snippet=_snippet,
        tracker="onnx/onnx",
        issue_form={
            "Is the issue related to model conversion?": "{is_about_conversion}",
            "Describe the bug": "{summary}\n\nActual:\n\n{actual}\n\n{diagnosis}",
            "System information": "{system}\n\n{packages}",
            "Reproduction instructions": "{code}\n\n{model}",
            "Expected behavior": "{expected}",
        },
        distributions=("onnx",),
        on_cpu=True,
        witness=1,
    )
)
