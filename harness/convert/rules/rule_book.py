"""Files of rules, and the book of those that one converter is to use."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.convert.rules.rule import Rule, RuleProblem, collecting


@cache
def load_rules(path: str) -> tuple[Rule, ...]:
    """The rules that a Python file registers.

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
    def for_converter(cls, files: Sequence[str], converter: str) -> RuleBook:
        """The rules of some files that are for `converter`; raises as `load_rules` does."""
        return cls([rule for file in files for rule in load_rules(file) if rule.converter == converter])

    def start(self) -> None:
        """Forget what was called: an export begins."""
        self.fired.clear()

    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """Overload → a function that converts as its rule does, and is counted."""
        return {overload: self._counted(rule) for overload, rule in self.rules.items()}

    def _counted(self, rule: Rule) -> Callable[..., Any]:
        function = rule.function

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.fired[rule.label] += 1
            return function(*args, **kwargs)

        # Exporters read signatures; an onnxscript function keeps the Python function that it was made of.
        signed = function if inspect.isfunction(function) else getattr(function, "function", function)
        return functools.wraps(signed)(counted)
