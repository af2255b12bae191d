"""Which failures are one defect: the key that a report groups rows of the record by.

A signature is one failure's message; a cause is what the messages of one defect have in common. Who is
to blame says where the defect is, and so what else may differ within one group:

* a converter's defect is the same in every backend that runs the wrong model;
* a backend's defect is the same whichever converter the model came from;
* PyTorch's own, and what the specification leaves open, are the same everywhere;
* one that nobody is blamed for is kept apart by converter, and by backend once it got to one.

What a user's conversion function took part in is a group of its own, whoever is to blame: whoever wrote the
function looks for what it does, and not for what the converter did without it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from harness.compare import Outcome, Stage, normalise
from harness.generate import cases_directory

#: What these say is the same for every defect ("values", "killed by SIGSEGV"): only the operator tells.
SPEECHLESS = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT})
#: Where the backend has no part in the failure yet.
BEFORE_BACKEND = frozenset({Stage.REFERENCE, Stage.CONVERT, Stage.CHECK})

#: Messages that say how a conversion ended and nothing of what is wrong: of two operators that end so,
#: each has its own defect.
_GENERIC = re.compile(
    r"""
    Inferred\ shape\ and\ existing\ shape\ differ | data-dependent\ expression | PendingUnbackedSymbolNotFound
    | ZeroDivisionError | index\ out\ of\ range$ | 'NoneType'\ object\ has\ no\ attribute | _M_range_check
    | constant\ folding | can\ be\ converted\ to\ Python\ scalars | iteration\ over\ a
    """,
    re.VERBOSE,
)
_NO_CONVERSION = re.compile(
    r"No ONNX function found for (\w+\.\w+)|Exporting the operator '(\w+::\w+)' to ONNX opset"
)
_NO_SCHEMA = re.compile(r"We don't have an op for \w+::\w+ but it isn't a special case\.")
#: Kernel, strides, dilations: one list of an operator is given too short like the next.
_ATTRIBUTE_SIZE = re.compile(r"Attribute \w+ has incorrect size")
#: An overload in a message: the conversions of an operator's overloads share what is wrong in them.
_OVERLOAD = re.compile(r"\b(aten|prims)\.(\w+)\.[A-Za-z_]\w*\b")
#: `max_pool1d`, `conv_transpose3d`: the dimensions of one operator share a conversion.
_DIMENSIONS = re.compile(r"(?<=[a-z])[123]d(?=\b|_)")

#: What the evidence begins with where one step alone is guilty: another defect than that of the rest.
_EVIDENCE = (
    (re.compile(r"(?:As case \w+: )?\S+'s graph optimisation\b"), "by graph optimisation"),
    (re.compile(r"(?:As case \w+: )?\S+'s optimiser breaks\b"), "by the exporter's optimiser"),
)
#: A regular expression that is found in all of it.
STEP_WORDS = "'s (?:graph optimisation|optimiser breaks)"


#: What `cause_of` looks at.
CAUSE_COLUMNS = (
    *("overload", "converter", "backend", "stage", "outcome"),
    *("signature", "blame", "evidence", "rule"),
)


@dataclass(frozen=True, order=True)
class Cause:
    """What failures of one defect share.

    Attributes:
        blame: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        converter: Its name; "" where the defect does not depend on it, as for the backend.
        words: What is wrong.
        operator: In which operator; "" where `words` say all.
        rule: The user's conversion functions that took part; "" for none.
    """

    blame: str
    converter: str
    backend: str
    stage: str
    outcome: str
    words: str
    operator: str
    rule: str = ""


def cause_of(row: Mapping[str, Any]) -> Cause:
    """The cause of one failed row of the record.

    Args:
        row: At least `CAUSE_COLUMNS`; of the evidence only its `guilty_step` counts.
    """
    stage, outcome = Stage(row["stage"]), Outcome(row["outcome"])
    blame = row["blame"] or "unknown"
    words = words_of(row["signature"])
    # A wrong model fails in its own way in each runtime, and says nothing of what the converter did to it.
    symptom = blame == "converter" and stage not in BEFORE_BACKEND
    in_backend = blame == "backend" or (blame == "unknown" and stage not in BEFORE_BACKEND)
    by_operator = outcome in SPEECHLESS or symptom or bool(_GENERIC.search(words))
    step = guilty_step(row["evidence"])
    words += f", {step}" if step else ""
    return Cause(
        blame=blame,
        converter=row["converter"] if blame in ("converter", "unknown") else "",
        backend=row["backend"] if in_backend else "",
        stage=str(stage),
        outcome=str(outcome),
        words=words,
        operator=family_name(row["overload"].rpartition(".")[0]) if by_operator else "",
        rule=row["rule"],
    )


def guilty_step(evidence: str) -> str:
    """The step that is to blame alone, in words; "" where the evidence names none."""
    return next((said for pattern, said in _EVIDENCE if pattern.match(evidence)), "")


@lru_cache(maxsize=10_000)
def words_of(signature: str) -> str:
    """A signature in the words that all failures of its defect share."""
    # A record of another version may hold signatures that are normalised less.
    words = normalise(signature)
    missing = _NO_CONVERSION.search(words)
    if missing:
        return f"no conversion for {(missing[1] or missing[2]).replace('::', '.')}"
    words = _NO_SCHEMA.sub("TorchScript has no op for the call.", words)
    words = _ATTRIBUTE_SIZE.sub("An attribute has incorrect size", words)
    words = _OVERLOAD.sub(r"\1.\2", words)
    return _DIMENSIONS.sub("Nd", words)


@lru_cache(maxsize=10_000)
def family_name(packet: str) -> str:
    """The operator that a packet is another name or another number of dimensions of: ``aten.max_poolNd``."""
    namespace, _, name = packet.rpartition(".")
    aliases = _aliases()
    name = aliases.get(name, name)
    name = aliases.get(name.removeprefix("special_"), name.removeprefix("special_"))
    name = _DIMENSIONS.sub("Nd", name.removesuffix("_copy"))
    return f"{namespace}.{name}" if namespace else name


@cache
def _aliases() -> Mapping[str, str]:
    """PyTorch's other names for operators."""
    text = (cases_directory() / "aliases.toml").read_text(encoding="utf-8")
    aliases: Mapping[str, str] = tomllib.loads(text)["aliases"]
    return aliases
