"""Change `cases/complex.toml`: operators that are drawn for complex dtypes, too.

    python ci/tables/complex_forms.py                    # of every operator: ten minutes
    python ci/tables/complex_forms.py mul 'aten.conv*'   # of some, the others staying as they are

An operator is one of them when PyTorch takes nearly every complex draw of its case. It is in the first list when one
of the installed converters has a complex form of it: it lists one among its conversion functions, or turns some of
these calls into a model that is fed pairs of reals. The others are gaps: a few of their cases are drawn, which are
recorded as unsupported. Run it with a new PyTorch, and after adding a converter or an operator case.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import onnx

from harness.convert.converter import CONVERTERS, Converter, ConverterEntry
from harness.convert.torch_private import quiet
from harness.core.dtypes import COMPLEX
from harness.core.invocation import Invocation
from harness.core.overloads import match
from harness.core.route import Route
from harness.coverage.asker import Asker
from harness.coverage.survey import ACCEPTED
from harness.generate.case_library import COMPLEX_FORMS, declared_cases
from harness.generate.cases_home import cases_directory
from harness.generate.draws import draw_invocations
from harness.generate.operator_case import OperatorCase
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.reference import run_reference
from harness.pipeline.start import start_converter
from harness.run.artefact import ONNX

#: Draws of which PyTorch must take its share.
_DRAWS = 48
#: Draws after which an operator of which none was taken is given up, and draws that are converted.
_GLANCE = 6
_COMPLEX_TYPES = (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)


def taken(case: OperatorCase, asker: Asker) -> list[Invocation]:
    """Return complex calls of the case; none if PyTorch does not take nearly all that are drawn."""
    try:
        calls = draw_invocations(replace(case, dtypes=COMPLEX), seed=1, count=_DRAWS)
    except (KeyError, IndexError, TypeError, ValueError):
        # The case draws values or arguments that complex numbers have not.
        return []
    calls = [call for call in calls if any(spec.dtype in COMPLEX for spec in call.tensors())]
    answers = [answer.taken for answer in asker.ask(calls[:_GLANCE])]
    if any(answers):
        answers += [answer.taken for answer in asker.ask(calls[_GLANCE:])]
    found = [call for call, yes in zip(calls, answers, strict=False) if yes]
    return found if calls and len(found) >= ACCEPTED * len(calls) else []


def lists_form(entry: ConverterEntry, overload: str) -> bool:
    """Whether the converter names a conversion function for complex numbers."""
    functions = entry.conversions(overload) if entry.conversions else None
    return any("complex" in line for line in functions or ())


def converts(converter: Converter, call: Invocation) -> bool:
    """Whether the converter makes a model of pairs of reals of the call."""
    try:
        exported = CallStructure(call, outputs=len(run_reference(call).expected))
        with quiet():
            model = export_alone(converter, exported, Route(converter=converter.name))
    except Exception:
        return False
    places = (*model.graph.input, *model.graph.output)
    return all(place.type.tensor_type.elem_type not in _COMPLEX_TYPES for place in places)


def main(patterns: list[str]) -> None:
    """Ask about the operators and write the file."""
    declared = declared_cases()
    chosen = {name for p in patterns for name in match(p, list(declared))} if patterns else {*declared}
    file = cases_directory() / COMPLEX_FORMS
    known = tomllib.loads(file.read_text(encoding="utf-8"))
    kept, gaps = ({*known.get(name, ())} - chosen for name in ("overloads", "gaps"))
    entries = [entry for entry in CONVERTERS.entries() if entry.makes == ONNX and entry.probe() is None]
    converters = [start_converter(Route(converter=entry.name)) for entry in entries]
    with Asker() as asker:
        for overload in sorted(chosen):
            case = declared[overload]
            if not set(COMPLEX).isdisjoint(case.dtypes) or not (calls := taken(case, asker)):
                continue
            if any(lists_form(entry, overload) for entry in entries) or any(
                converts(converter, call) for call in calls[:_GLANCE] for converter in converters
            ):
                kept.add(overload)
            else:
                gaps.add(overload)
    lines = [
        "# Operators that are drawn for complex dtypes, too: PyTorch takes them, a converter has a form of",
        "# them for complex numbers. Written by `python ci/tables/complex_forms.py`.",
        "overloads = [",
        *(f'    "{overload}",' for overload in sorted(kept & declared.keys())),
        "]",
        "# Those that PyTorch takes and no converter: a gap, of which few cases are drawn.",
        "gaps = [",
        *(f'    "{overload}",' for overload in sorted(gaps & declared.keys())),
        "]",
    ]
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
