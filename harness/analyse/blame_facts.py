"""What blame's sentences say of the place of a defect, in a few words that many failures share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.analyse.kernel_fault import kernel_fault

#: Another case of the same graph was looked into.
_AS_CASE = re.compile(r"As case \w+: ")
RESTS_ON_OPEN = "rests on what is left open"
#: How the first sentence ends → what it comes to. See `harness.blame.decide`.
_WHYS = (
    ("'s graph optimisation: right with optimisations off", "by graph optimisation"),
    ("'s optimiser breaks the graph: it is right before it", "by the exporter's optimiser"),
    ("is right node by node, and wrong with the whole graph", "nodes together"),
    ("computes the result itself, for a constant of the graph", "constant"),
    ("rests on what the specification leaves open, which the call does not", RESTS_ON_OPEN),
    ("ignores an argument of the call", "ignores"),
    ("computes at lower precision than the call", "narrowed"),
    ("kernel and its own decomposition of the operator disagree", "kernel or decomposition"),
    ("gives the backend's result in PyTorch", "decomposition"),
    ("does not run in PyTorch either", "decomposition"),
    ("contradicts PyTorch's own shape and dtype rules", "rules"),
    ("PyTorch is off: the backend has the answer that PyTorch has in float64", "off"),
    ("PyTorch leaves the range of its dtype on the way", "range"),
)
#: How the first sentence ends where a later one may name the node.
_OF_NODE = ("by its operator's definition", "fails on a valid node", "does not implement it", "fails on it")
_PASSES = re.compile(r"without its pass(?:es)? (.+?)(?: of \S+ optimiser|\.(?: |$))")
#: One argument for each axis: who ignores one ignores all.
_OF_AXIS = re.compile(r"_[dhw]$")
_IGNORED = re.compile(r"Without `(\w+)` PyTorch gives")
#: The number is the call's own, or one that the exporter computed.
_CAST = "result is that of a cast to float32"
_ROUNDED_ARGUMENT = re.compile(r"The graph has \S+ as float32, ")
#: The operators that a call is taken apart to, and those of them that only move elements or make constants.
_PROGRAM = re.compile(r"the program that is translated \(([^)]*)\)")
_MOVES = re.compile(
    r"aten\.(?:_?unsafe_\w+|view\w*|reshape|expand|permute|squeeze|unsqueeze|clone|alias|slice|select|cat|full|_to_copy"
    r"|scalar_tensor|arange|constant_pad_nd|t|transpose|lift_fresh_copy)\.|prims\.(?:convert_element_type"
    r"|broadcast_in_dim|device_put|iota)\.|_operator\."
)
_SILENT = re.compile(r"The specification of ONNX (\w+) \(opset \d+\) (does not mention .*?)\.(?: |$)")
_OPEN = re.compile(r"ONNX (\w+): (“[^”]*”)")
_SCHEMA = re.compile(r"ONNX's schema of (\w+(?: and \w+)*) (has epsilon as a float32)")
_LEFT_OPEN = "The specification leaves the result open. "
#: Sentences about the graph, which may come before that which leaves the result open.
_OF_GRAPH = re.compile(r"(?:With (?:its only node|each of its) |\w+ \(node ).*?PyTorch's result\. ")


@dataclass(frozen=True, order=True)
class BlameFacts:
    """What the evidence of a failure names.

    Attributes:
        why: What the decisive sentence comes to, one of a few phrases; "" for any other.
        operator: The ONNX operator of the node that is wrong, is not run or is left open.
        words: What is wrong with it.
        passes: Those of an optimiser without which all is right.
        argument: That the graph ignores, without the axis: ``scales`` for ``scales_h``.
        rounded: Whether the graph has a number of the call as a float32.
        cast: Whether the graph casts to float32, which the wrong elements come of.
        translated: The one operator that computes in what the call is taken apart to; "" for several.
    """

    why: str = ""
    operator: str = ""
    words: str = ""
    passes: str = ""
    argument: str = ""
    rounded: bool = False
    cast: bool = False
    translated: str = ""


def blame_facts(evidence: str) -> BlameFacts:
    """Read them."""
    text = evidence[_end_of_case(evidence) :]
    first = text.partition(". ")[0].removesuffix(".")
    if text.startswith(_LEFT_OPEN):
        operator, words = _question(text)
        return BlameFacts("open", operator, words)
    why = next((said for end, said in _WHYS if first.endswith(end)), "")
    passes = _PASSES.search(text) if why.startswith("by ") else None
    ignored = _IGNORED.search(text) if why == "ignores" else None
    fault = kernel_fault(text) if first.endswith(_OF_NODE) else None
    asked = _question(text)[0] if why == RESTS_ON_OPEN else ""
    program = _PROGRAM.search(text)
    computing = [name for name in program[1].split(", ") if not _MOVES.match(name)] if program else []
    return BlameFacts(
        why=why,
        operator=fault.operator if fault else asked,
        words=fault.words if fault else "",
        passes=passes[1] if passes else "",
        argument=_OF_AXIS.sub("", ignored[1]) if ignored else "",
        rounded=why == "narrowed" and _ROUNDED_ARGUMENT.search(text) is not None,
        cast=why == "narrowed" and _CAST in text,
        translated=computing[0] if len(computing) == 1 else "",
    )


def guilty_step(evidence: str) -> str:
    """The step that is to blame alone, in words; "" where the evidence names none."""
    why = blame_facts(evidence).why
    return why if why.startswith("by ") else ""


def _end_of_case(evidence: str) -> int:
    case = _AS_CASE.match(evidence)
    return case.end() if case else 0


def _question(text: str) -> tuple[str, str]:
    """The ONNX operator that is in question, and the words that leave the result open."""
    for pattern in (_SILENT, _OPEN, _SCHEMA):
        found = pattern.search(text)
        if found:
            return found[1], found[2]
    sentences = _OF_GRAPH.sub("", text.partition(_LEFT_OPEN)[2])
    return "", sentences.partition(". ")[0].removesuffix(".")
