"""Which failures are one defect: the key that a report groups rows of the record by.

A root cause is a place and what is wrong with it. Who is to blame says where to look for the place, and what
else may differ within one group:

* a converter's defect is the same in every backend that runs the wrong model, and in every operator that one
  conversion function translates;
* a backend's defect is the same whichever operator and converter its ONNX operator comes from;
* PyTorch's own, and what the specification leaves open, are the same everywhere;
* one that nobody is blamed for is kept apart by converter, and by backend once it got to one.

What a user's conversion function took part in is a group of its own, whoever is to blame: whoever wrote the
function looks for what it does, and not for what the converter did without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from harness.analyse.blame_facts import blame_facts
from harness.analyse.blamed_place import (
    ANOTHER_DTYPE,
    BEFORE_BACKEND,
    OF_ELEMENTS,
    RANKLESS,
    SHAPES,
    UNDEFINED_DTYPE,
    UNFIT,
    place_of,
    wrong_of,
)
from harness.analyse.call_facts import call_facts
from harness.analyse.defect_place import FailedRow, Place
from harness.analyse.message_facts import DTYPES, NODE, SIZE, is_lossy, message_facts
from harness.analyse.operator_family import without_dimensions
from harness.analyse.wrong_elements import CAST
from harness.compare import CONVERTER, Outcome, Stage, normalise

#: What these say is the same for every defect ("values", "killed by SIGSEGV"): only the operator tells.
SPEECHLESS = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT})

#: Messages that say how a conversion ended and nothing of what is wrong: of two operators that end so,
#: each has its own defect.
_GENERIC = re.compile(
    r"""
    Inferred\ shape\ and\ existing\ shape\ differ | data-dependent\ expression | PendingUnbackedSymbolNotFound
    | ZeroDivisionError | index\ out\ of\ range$ | 'NoneType'\ object\ has\ no\ attribute | _M_range_check
    | constant\ folding | takes\ a\ tensor\ for\ a\ number | iteration\ over\ a
    | Cannot\ determine\ scalar\ type | ^reads\ data
    """,
    re.VERBOSE,
)
_NO_CONVERSION = re.compile(
    r"No ONNX function found for (\w+\.\w+)|Exporting the operator '(\w+::\w+)' to ONNX opset"
)
#: What PyTorch knows of a tensor, in the words of TorchScript.
#: Python's words for a tensor where a number or a list of them must be.
_NO_NUMBER = re.compile(r".*(?:only one element tensors can be converted|iteration over a .*-d tensor).*")
_NO_CONSTANT = re.compile(r"(expected a constant value of the '\w+' argument), got .*")
_TENSOR_TYPE = re.compile(r": <dtype>\([^()]*\)")
#: Kernel, strides, dilations: one list of an operator is given too short like the next.
_ATTRIBUTE_SIZE = re.compile(r"Attribute \w+ has incorrect size")
#: One shape in which a model is wrong makes the next one wrong; which node is noticed first says nothing.
_SHAPES = re.compile(r"^InferenceError: (?!.*op_type:Reshape).*Inferred shape and existing shape differ.*")
#: Which of two operands does not fit depends on the sizes.
_SIDE = re.compile(r"\b(?:left|right) operand\b")
#: A kernel that has no counterpart for tensors that are only traced, as sizes have it.
_NO_DATA = re.compile(
    r".*(?:Cannot access data pointer of Tensor|its data is not allocated yet).*", re.DOTALL
)
#: Unsigned dtypes, which TorchScript looks up in two tables, one of Python's and one of C++'s.
_NO_SCALAR = re.compile(r".*Unknown torch or scalar type.*")
_NO_SCALAR_TYPE = re.compile(r".*is an unexpected tensor scalar type.*")
#: How an export ends that looks for an axis or a dtype of what has no dimensions.
_LOST_WAY = re.compile(r"^IndexError: list index out of range|Cannot determine scalar type")
#: A kernel looks at its inputs, or goes to work and finds that they do not fit.
_ASKED = re.compile(r"asks (\w+) for what does not fit")
_OUT_OF_BOUNDS = re.compile(r"running Gather\w*: .*out of (?:data )?bounds")
_OP_TYPE = re.compile(r"\(op_type:(\w+)\)")
#: What an export asks of data that it has not is put in numbers or in dtypes.
_GUARDED = re.compile(r"(data-dependent expression) .*", re.DOTALL)
_NO_ANSWER = re.compile(r"^no answer within .*")
#: An overload in a message: the conversions of an operator's overloads share what is wrong in them.
_OVERLOAD = re.compile(r"\b(aten|prims)\.(\w+)\.[A-Za-z_]\w*\b")


#: What `cause_of` looks at.
CAUSE_COLUMNS = (
    *("overload", "converter", "backend", "stage", "outcome"),
    *("signature", "blame", "evidence", "message", "rule", "invocation"),
)


@dataclass(frozen=True, order=True)
class Cause:
    """What failures of one defect share.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        place: Where it is.
        words: What is wrong there.
        rule: The user's conversion functions that took part; "" for none.
        lossy: Whether the result has a dtype that does not hold all values of the right one.
        may_be: What is wrong there in other words, if there is a cause with those.
        node: The ONNX operator that is not defined for a dtype; all reductions are one.
        element: The kind of the wrong element, where a converter is to blame.
        refused: Who says what where a model is not loaded or not run.
    """

    blame: str
    place: Place
    stage: str
    outcome: str
    words: str
    rule: str = ""
    lossy: bool = False
    may_be: str = ""
    node: str = ""
    element: str = ""
    refused: str = ""


def cause_of(row: Mapping[str, Any]) -> Cause:
    """The cause of one failed row of the record.

    Args:
        row: At least `CAUSE_COLUMNS`; of the evidence only its `blame_facts` count, of the message its
            `message_facts`, of the invocation its `call_facts`.
    """
    stage, outcome = Stage(row["stage"]), Outcome(row["outcome"])
    blame = row["blame"] or "unknown"
    words = words_of(row["signature"])
    # A wrong model fails in its own way in each runtime, and says nothing of what the converter did to it.
    symptom = blame == "converter" and stage not in BEFORE_BACKEND
    failed = FailedRow(
        overload=row["overload"],
        converter=row["converter"],
        backend=row["backend"],
        stage=stage,
        words=words,
        facts=blame_facts(row["evidence"]),
        said=message_facts(row["message"]),
        called=call_facts(row["invocation"]),
        by_operator=outcome in SPEECHLESS or symptom or bool(_GENERIC.search(words)),
    )
    by_rule = blame == CONVERTER and row["rule"]
    wrong = wrong_of(blame, failed)
    # It took the place of the converter's own.
    place = Place("rule", row["rule"]) if by_rule else place_of(blame, failed)
    if wrong not in OF_ELEMENTS:
        # Dtypes, shapes and refusals are what all algorithms of an operator have in common.
        place = replace(place, choice="")
    refused = stage in (Stage.LOAD, Stage.RUN) and outcome is Outcome.ERROR
    return Cause(
        blame=blame,
        place=place,
        stage=str(stage),
        outcome=str(outcome),
        words=wrong,
        rule=row["rule"],
        may_be=_may_be(failed, wrong) if blame == CONVERTER else "",
        lossy=failed.said[:1] == (DTYPES,) and is_lossy(*failed.said[1:]),
        node=_undefined_node(words) if wrong == UNDEFINED_DTYPE else "",
        element=(CAST if failed.facts.cast else failed.element) if blame == CONVERTER else "",
        refused=f"{row['backend']}: {words}" if refused else "",
    )


def _may_be(failed: FailedRow, wrong: str) -> str:
    """What a failure may be as well, where that is wrong in the same place.

    A missing cast, where a node is not defined for a dtype and is not asked to draw one; the wrong shape of a
    result, where the checker infers another one than the model states, or a node's inputs do not fit; wrong
    elements, where an index is out of bounds; an axis of a 0-d tensor, where the export does not know its
    way.
    """
    if failed.stage is Stage.CONVERT and failed.called.has_single and _LOST_WAY.search(wrong):
        return RANKLESS
    if _OUT_OF_BOUNDS.search(failed.words):
        return "values"
    if wrong == UNDEFINED_DTYPE and "op_type:Random" not in failed.words:
        return ANOTHER_DTYPE
    if wrong == UNFIT and failed.stage is Stage.CHECK and (found := _OP_TYPE.search(failed.words)):
        return f"gives {found[1]} inputs that do not fit"
    asked = _ASKED.fullmatch(wrong)
    if asked:
        return f"gives {asked[1]} inputs that do not fit"
    if wrong.startswith("gives ") and wrong.endswith("inputs that do not fit"):
        return "shape"
    if failed.said[:1] == (NODE,) and len(failed.said) > 2 and wrong in SHAPES:
        return {SIZE: UNFIT, "few": "shape", "many": "shape"}.get(failed.said[2], "")
    return ""


def _undefined_node(words: str) -> str:
    found = _OP_TYPE.search(words)
    return re.sub("^Reduce.*", "Reduce", found[1].removeprefix("Global")) if found else ""


@lru_cache(maxsize=10_000)
def words_of(signature: str) -> str:
    """A signature in the words that all failures of its defect share."""
    # A record of another version may hold signatures that are normalised less.
    words = normalise(signature)
    missing = _NO_CONVERSION.search(words)
    if missing:
        return f"no conversion for {(missing[1] or missing[2]).replace('::', '.')}"
    words = _ATTRIBUTE_SIZE.sub("An attribute has incorrect size", words)
    words = _OVERLOAD.sub(r"\1.\2", words)
    words = _NO_CONSTANT.sub(r"\1", words)
    words = _TENSOR_TYPE.sub(": <dtype>", words)
    words = _NO_NUMBER.sub("takes a tensor for a number", words)
    words = _NO_DATA.sub("reads data of a tensor that has none in an export", words)
    words = _NO_SCALAR.sub("does not know a dtype", words)
    words = _NO_SCALAR_TYPE.sub("does not know the dtype of a tensor", words)
    words = _SIDE.sub("an operand", words)
    words = _SHAPES.sub("Inferred shape and existing shape differ", words)
    words = _GUARDED.sub(r"\1", words)
    words = _NO_ANSWER.sub("no answer in time", words)
    return without_dimensions(words)
