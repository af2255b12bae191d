"""The code shared by the custom exporter of experimental-experiment and by its successor yobx.

Both capture with `torch.export`, walk through the graph and call a conversion function per operator with a
`GraphBuilder`. Neither is imported before it converts.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx
import torch

from harness.convert.converter import ConverterEntry, ExportRequest, UnsupportedOperator, register
from harness.convert.rules.rule import RuleBook
from harness.convert.torch_private import quiet
from harness.core.plugins import Unavailable, importable, installed, installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.core.tensors import overload

#: The message of an assertion that refuses an attribute or a dtype; both spellings are theirs.
_REFUSALS = ("not implemented", "not impelmented")
#: Their messages go on with a dump of the whole graph.
_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """One of the two exporters.

    Attributes:
        name: The name after ``--converter``.
        package: The package to import.
        interpreter: Its module that has ``to_onnx`` and ``Dispatcher``.
        needs: Other packages that it imports.
        distribution: Name of the installed distribution.
        install: The command that installs it.
        model: The expression that turns the result of ``to_onnx`` into an `onnx.ModelProto`.
    """

    name: str
    package: str
    interpreter: str
    needs: tuple[str, ...]
    distribution: str
    install: str
    model: str = ""

    def probe(self) -> Unavailable | None:
        """Why it cannot run here; None if it can."""
        missing = [name for name in (self.package, *self.needs) if not importable(name)]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            return Unavailable(reason=f"{', '.join(missing)} {verb} not installed", install=self.install)
        return None

    def version(self) -> str:
        """Return the versions of the package, installed or a mere checkout, and of PyTorch."""
        own = installed_version(self.distribution)
        if own == "unknown":
            # A clone on the path.
            own = str(importlib.import_module(self.package).__version__)
        return f"{self.distribution} {own} torch {torch.__version__}"

    def conversions(self, name: str) -> tuple[str, ...]:
        """Return its conversion function for an overload."""
        functions = importlib.import_module(f"{self.interpreter}.aten_functions")
        with contextlib.redirect_stdout(io.StringIO()):
            found = functions.find_function(overload(name))[0]
        return () if found is None else (str(found.__name__),)

    def snippet(self, wanted: ExportWanted) -> ExportSnippet:
        """See `harness.convert.converter.ConverterEntry`."""
        keywords = [f"input_names={wanted.names}"]
        if wanted.opset is not None:
            keywords.append(f"target_opset={wanted.opset}")
        if wanted.dynamic is not None:
            keywords.append(f"dynamic_shapes={wanted.dynamic_shapes}")
        return ExportSnippet(
            code=(
                *(("dynamic = torch.export.Dim.DYNAMIC",) if wanted.dynamic is not None else ()),
                "model = to_onnx(",
                f"    Model().eval(), {wanted.arguments},",
                *(f"    {keyword}," for keyword in keywords),
                f"){self.model}",
            ),
            imports=(f"from {self.interpreter} import to_onnx",),
            packages=installed(self.distribution),
        )


class GraphBuilderConverter:
    """Exports with one of the two.

    Args:
        exporter: The exporter.
        public_api: Has no effect: nothing is kept between calls.
        book: Conversion functions that replace the exporter's.
    """

    def __init__(self, exporter: Exporter, public_api: bool, book: RuleBook | None = None) -> None:
        self.name = exporter.name
        self.version = exporter.version()
        self._book = book
        self._optimize = True
        with quiet():
            self._module: Any = importlib.import_module(exporter.interpreter)
        self._dispatcher = self._module.Dispatcher(_rules_by_key(book)) if book else None

    def unoptimised(self) -> GraphBuilderConverter:
        """See `harness.convert.converter.HasUnoptimised`."""
        other = copy.copy(self)
        other._optimize = False
        return other

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        if self._book:
            self._book.start()
        with quiet(), torch.no_grad():
            try:
                found = self._module.to_onnx(
                    request.program,
                    request.inputs,
                    input_names=list(request.input_names),
                    output_names=list(request.output_names),
                    target_opset=request.opset,
                    dynamic_shapes=request.dynamic_shapes,
                    dispatcher=self._dispatcher,
                    optimize=self._optimize,
                )
            except Exception as error:
                if self._lacks_conversion(error):
                    raise UnsupportedOperator(_first_words(error)) from error
                raise
        model: onnx.ModelProto = getattr(found, "proto", found)
        return model

    def _lacks_conversion(self, error: Exception) -> bool:
        if isinstance(error, self._module.FunctionNotFoundError | NotImplementedError):
            return True
        message = _first_words(error).lower()
        return isinstance(error, AssertionError) and any(words in message for words in _REFUSALS)


def _rules_by_key(book: RuleBook) -> dict[str, Callable[..., Any]]:
    """Return the rules by the names with which a dispatcher looks functions up: ``celu_default``."""
    return {name.removeprefix("aten.").replace(".", "_"): function for name, function in book.functions().items()}


def _first_words(error: Exception) -> str:
    words = str(error).partition("\n")[0]
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def plug_in(exporter: Exporter, *, tracker: str) -> None:
    """Register the converter of one of these exporters; `tracker` is ``owner/repository`` of its issues."""
    create = partial(GraphBuilderConverter, exporter)
    register(
        ConverterEntry(
            name=exporter.name,
            probe=exporter.probe,
            create=create,
            create_with_rules=create,
            version=exporter.version,
            summary=f"{exporter.interpreter}.to_onnx",
            snippet=exporter.snippet,
            tracker=tracker,
            conversions=exporter.conversions,
        )
    )
