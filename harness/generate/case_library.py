"""The operator cases of `cases/`: found by the package's name, so that no room depends on its contents."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from types import ModuleType

from harness.core.dtypes import COMPLEX
from harness.generate.cases_home import HOME, CaseFileError, cases_directory
from harness.generate.operator_case import OPERATOR_CASES, OperatorCase
from harness.generate.promotion import Promotion

#: Packages of other projects that hold family files name themselves here.
ENTRY_POINT_GROUP = "harness.cases"
#: Dtypes beyond those that the family files declare; `ci/tables/further_dtypes.py` writes it.
FURTHER_DTYPES = "dtypes.toml"
#: Operators that have a complex form in some converter; `ci/tables/complex_forms.py` writes it.
COMPLEX_FORMS = "complex.toml"
#: Which operators are slow, quick or not converted; and which of those that models call need more structures than
#: others, which `ci/tables/more_structures.py` writes.
BUDGET = "budget.toml"
#: Which models call which operators, in which dtypes; `ci/tables/operator_use.py` writes it.
USE = "operator_use.json"
#: Conditions under which an operator is refused; `ci/tables/refusals.py` writes it.
REFUSALS = "refusals.toml"
#: List there, "" for none → how many cases a run draws of its operators, as a share of `--examples`; and of operators
#: that models call, whatever they cost.
_SHARES = {"quick": 1.0, "": 0.75, "slow": 1.0, "slowest": 0.625, "unconverted": 0.5}
_SHARE_OF_USED = 1.0
_SLOW = ("slow", "slowest")


@cache
def declared_cases() -> Mapping[str, OperatorCase]:
    """Import every family; overload → operator case as declared, sorted by overload.

    Raises:
        CaseFileError: a family file is wrong: an operator declared twice, an unknown name.
    """
    others = [point.value for point in metadata.entry_points(group=ENTRY_POINT_GROUP)]
    for name in dict.fromkeys((HOME, *others)):
        package = _package(name)
        for module in pkgutil.iter_modules(package.__path__):
            if module.ispkg:
                # Whole models and output rules are not families; models need PyTorch.
                continue
            try:
                importlib.import_module(f"{name}.{module.name}")
            except Exception as error:
                raise CaseFileError(f"{name}/{module.name}.py: {type(error).__name__}: {error}") from error
    return dict(sorted(OPERATOR_CASES.items()))


@cache
def load_onnx_cases() -> Mapping[str, OperatorCase]:
    """Import every family of ONNX's own operators; overload → operator case, sorted by overload.

    Raises:
        CaseFileError: a family file is wrong.
    """
    from harness.generate.onnx_case import ONNX_CASES

    package = _package(f"{HOME}.onnx")
    for module in pkgutil.iter_modules(package.__path__):
        try:
            importlib.import_module(f"{HOME}.onnx.{module.name}")
        except Exception as error:
            raise CaseFileError(f"{HOME}/onnx/{module.name}.py: {type(error).__name__}: {error}") from error
    return dict(sorted(ONNX_CASES.items()))


def find_case(overload: str) -> OperatorCase | None:
    """Return the operator case of an overload of PyTorch or of an ONNX operator; None if none covers it."""
    from harness.core.onnx_operators import is_onnx_operator

    return load_onnx_cases().get(overload) if is_onnx_operator(overload) else OPERATOR_CASES.get(overload)


@cache
def load_cases() -> Mapping[str, OperatorCase]:
    """Load every operator case, with the dtypes and promotions that PyTorch takes beyond the declared ones, with
    complex dtypes if PyTorch takes these, and with its share of a run's budget."""
    declared_cases()
    further = tomllib.loads((cases_directory() / FURTHER_DTYPES).read_text(encoding="utf-8"))
    for entry in further["dtypes"]:
        for overload in OPERATOR_CASES.keys() & set(entry["overloads"]):
            case = OPERATOR_CASES[overload]
            more = (dtype for dtype in entry["dtypes"] if dtype not in case.dtypes)
            OPERATOR_CASES[overload] = replace(case, dtypes=(*case.dtypes, *more))
    for entry in further["promotions"]:
        for overload in OPERATOR_CASES.keys() & set(entry["overloads"]):
            case = OPERATOR_CASES[overload]
            pairs = tuple(Promotion(*words) for words in entry["pairs"])
            OPERATOR_CASES[overload] = replace(case, promotions=(*case.promotions, *pairs))
    forms = tomllib.loads((cases_directory() / COMPLEX_FORMS).read_text(encoding="utf-8"))
    for overload in OPERATOR_CASES.keys() & set(forms["overloads"]):
        case = OPERATOR_CASES[overload]
        OPERATOR_CASES[overload] = replace(case, dtypes=(*case.dtypes, *COMPLEX), rare=(*case.rare, *COMPLEX))
    # That no converter takes them is an answer, too.
    for overload in OPERATOR_CASES.keys() & set(forms["gaps"]):
        case = OPERATOR_CASES[overload]
        OPERATOR_CASES[overload] = replace(case, dtypes=(*case.dtypes, *COMPLEX), gaps=COMPLEX)
    budget = tomllib.loads((cases_directory() / BUDGET).read_text(encoding="utf-8"))
    more = budget.pop("more", {})
    listed = {overload: name for name, overloads in budget.items() for overload in overloads}
    for overload, case in OPERATOR_CASES.items():
        name = listed.get(overload, "")
        OPERATOR_CASES[overload] = replace(
            case,
            slow=name in _SLOW,
            share=_SHARES[name],
            converted=name != "unconverted",
            more=more.get(overload, 1.0),
        )
    _add_use()
    return dict(sorted(OPERATOR_CASES.items()))


def _add_use() -> None:
    """Add to each case the dtypes in which models call it, and its share of draws."""
    use = json.loads((cases_directory() / USE).read_text(encoding="utf-8"))["operators"]
    for overload in OPERATOR_CASES.keys() & use.keys():
        models = use[overload]["calls"]
        dtypes = tuple(sorted(models, key=lambda dtype: (-len(models[dtype]), dtype)))
        case = OPERATOR_CASES[overload]
        if case.converted:
            OPERATOR_CASES[overload] = replace(case, used=dtypes, share=_SHARE_OF_USED * case.more)
    refusals = tomllib.loads((cases_directory() / REFUSALS).read_text(encoding="utf-8"))
    for overload in OPERATOR_CASES.keys() & refusals.keys():
        case = OPERATOR_CASES[overload]
        OPERATOR_CASES[overload] = replace(case, refused=frozenset(refusals[overload]))


def _package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CaseFileError(f"the operator cases {name!r} cannot be imported: {error}") from error
