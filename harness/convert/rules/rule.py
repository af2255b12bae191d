"""Rules, the decorators that declare them, files of rules, and the book of rules for one converter."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from harness.core.overloads import NAMESPACES, all_overloads, near_names, normalise, packet
from harness.core.plugins import declaring_place

_Function = TypeVar("_Function", bound=Callable[..., Any])


class RuleProblem(Exception):
    """A rule or a file of rules that cannot be used; the message is one line for a person."""


@dataclass(frozen=True)
class Rule:
    """One conversion function for one operator.

    Attributes:
        converter: The converter whose conversion it replaces.
        overload: Dotted name: ``aten.celu.default``.
        function: The function that the converter calls; the converter decides its signature.
        label: ``my_rules.py:celu``, for the record.
        declared: File and line of the statement that makes it a rule.
    """

    converter: str
    overload: str
    function: Callable[..., Any]
    label: str
    declared: tuple[str, int] = ("", 0)

    @property
    def name(self) -> str:
        """The function's."""
        return self.label.rpartition(":")[2]


#: Where the decorators put their rules while a file is loaded; None elsewhere.
collecting: ContextVar[list[Rule] | None] = ContextVar("collecting", default=None)


def rule(converter: str, *operators: str) -> Callable[[_Function], _Function]:
    """Decorate a conversion function for `converter`.

    Args:
        converter: Its name: ``dynamo``, ``torchscript``, or that of another which takes rules.
        operators: Overloads (``aten.add.Tensor``); a packet (``aten::celu``) means all its overloads that
            return something new.

    Raises:
        RuleProblem: PyTorch has no such operator.
    """
    if not operators:
        raise RuleProblem(f"@{converter}() names no operator: write @{converter}('aten::celu')")
    overloads = [overload for operator in operators for overload in _overloads(operator)]

    def decorate(function: _Function) -> _Function:
        rules = collecting.get()
        if rules is not None:
            name = str(getattr(function, "__name__", "") or getattr(function, "name", "function"))
            place = declaring_place()
            rules += [Rule(converter, overload, function, name, place) for overload in overloads]
        return function

    return decorate


def dynamo(*operators: str) -> Callable[[_Function], _Function]:
    """Decorate an onnxscript function for ``torch.onnx.export(dynamo=True)``.

    It is called with the arguments of the operator's schema: tensors as onnxscript values, the rest as Python
    values; see `custom_translation_table` in the documentation of `torch.onnx.export`.
    """
    return rule("dynamo", *operators)


def torchscript(*operators: str) -> Callable[[_Function], _Function]:
    """Decorate a symbolic function for ``torch.onnx.export(dynamo=False)``.

    It is called with the graph and the arguments of the operator's schema; the TorchScript exporter knows
    operators by packet, so that a rule for one overload is called for the others too.
    """
    return rule("torchscript", *operators)


def _overloads(operator: str) -> list[str]:
    from harness.core.tensors import overload as find_overload

    library, colons, name = operator.partition("::")
    if colons and library not in NAMESPACES:
        # The file that defines it, such as a model's, may not have been imported yet.
        return [f"{library}.{name}" if "." in name else f"{library}.{name}.default"]
    dotted = normalise(operator)
    known = all_overloads()
    if dotted in known:
        return [dotted]
    found = [n for n in known if packet(n) == dotted and not find_overload(n)._schema.is_mutable]
    if found:
        return found
    near = ", ".join(near_names(dotted, known))
    problem = f"a rule is for {operator!r}, which PyTorch does not have"
    raise RuleProblem(f"{problem}; near: {near}" if near else problem)


@cache
def load_rules(path: str) -> tuple[Rule, ...]:
    """Return the rules that a Python file registers.

    The file is run as a module of its own; its directory is importable meanwhile.

    Raises:
        RuleProblem: no such file, it fails, or it registers nothing.
    """
    file = Path(path)
    if not file.is_file():
        raise RuleProblem(f"--rules {path}: no such file")
    name = f"harness_rules_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise RuleProblem(f"--rules {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    found: list[Rule] = []
    token = collecting.set(found)
    sys.path.insert(0, str(file.parent.absolute()))
    # `inspect` and `typing.get_type_hints` find a function's module by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except RuleProblem as error:
        raise RuleProblem(f"--rules {path}: {error}") from None
    except Exception as error:
        line = _line_in(error, file)
        if isinstance(error, ModuleNotFoundError) and error.name == "harness.rules":
            raise RuleProblem(f"--rules {path}{line}: harness.rules is now harness.convert.rules") from None
        raise RuleProblem(f"--rules {path}{line}: {type(error).__name__}: {error}") from error
    finally:
        collecting.reset(token)
        sys.path.remove(str(file.parent.absolute()))
    if not found:
        raise RuleProblem(
            f"--rules {path}: registers no rule; decorate a function with "
            "@dynamo('aten::celu') of harness.convert.rules"
        )
    return tuple(replace(r, label=f"{file.name}:{r.label}") for r in found)


def _line_in(error: BaseException, file: Path) -> str:
    line = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


class RuleExits(Exception):
    """A rule calls `sys.exit` in place of converting."""


class RuleBook:
    """The rules of one converter, which know when they are called.

    Args:
        rules: One for each overload; of several the last counts.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = {rule.overload: rule for rule in rules}
        #: Label → how often the rule was called since `start`.
        self.fired: Counter[str] = Counter()

    @classmethod
    def load(cls, files: Sequence[str], converter: str) -> RuleBook:
        """Load the rules for `converter` from some files; raises as `load_rules` does."""
        return cls([rule for file in files for rule in load_rules(file) if rule.converter == converter])

    def start(self) -> None:
        """Forget the rules that were called: an export begins."""
        self.fired.clear()

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Overload → a function that converts as its rule does, and is counted."""
        return {overload: self._counted(rule) for overload, rule in self.rules.items()}

    def _counted(self, rule: Rule) -> Callable[..., Any]:
        function = rule.function

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.fired[rule.label] += 1
            try:
                return function(*args, **kwargs)
            except SystemExit as error:
                # It would end the worker process, which says nothing about the rule.
                raise RuleExits(f"the rule {rule.label} calls sys.exit({error.code!r})") from None

        # Exporters read signatures; an onnxscript function keeps the Python function that it was made of.
        signed = function if inspect.isfunction(function) else getattr(function, "function", function)
        return functools.wraps(signed)(counted)
