"""Sentences on the facts about a run of a model that no witness states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.pipeline.model_task import ErrorGrowth, ModelRun


def model_run_sentences(column: str) -> Iterator[str]:
    """Yield sentences on the column ``model_run`` of a failed run; none for a call or a program."""
    run = ModelRun.from_text(column)
    if run.traced is not None:
        yield run.traced.evidence
    if run.change:
        yield f"The inputs have {run.change}."
    if run.growth is not None:
        yield _growth_sentence(run.growth)


def _growth_sentence(growth: ErrorGrowth) -> str:
    own = f", PyTorch's own {growth.own:.1e}" if growth.own else ""
    times = f" ({growth.error / growth.own:.1f} times)" if growth.own else ""
    return (
        f"Error against float64 {growth.error:.1e} of the largest element{own}{times}; one rounding per "
        f"operator explains {growth.explained:.1e}."
    )


def divergence_sentence(data: Mapping[str, Any]) -> str:
    """Describe a first divergence; `data` is from `harness.blame.first_divergence.Divergence.to_data`."""
    kind = data["kind"]
    if kind == "none":
        return "Nothing diverges."
    if kind == "unknown":
        return f"Nothing that could be compared departs: {data['checked']} of {data['checkpoints']} values."
    if kind == "accumulated":
        return (
            "No operator departs from PyTorch's result for its inputs: the error is accumulated, or due "
            "to how the whole graph is optimised."
        )
    if kind == "optimisation":
        return (
            f"No operator departs by itself, and without its graph optimisations {data['backend']} is "
            "right: it optimises the whole graph wrongly."
        )
    operator, operators = data["operator"], data["operators"]
    first = f"First divergence: {operator}" + (f" in {data['module']}" if data["module"] else "")
    if data["onnx_node"]:
        part_of = "" if operator == operators[0] else "part of "
        first += f" ({part_of}ONNX node {data['onnx_node']})"
    wrong = [call["overload"] for call in data["alone"] if call["outcome"] == "mismatch"]
    unknown = [call["overload"] for call in data["alone"] if call["outcome"] == "error"]
    if wrong:
        alone = "is wrong by itself, even when given the exact inputs it receives in the model"
        return f"{first}. {' and '.join(wrong)} {alone}."
    if unknown:
        return f"{first}. {' and '.join(unknown)} cannot be run by itself."
    if len(operators) > 1:
        return f"{first}. Its {len(operators)} operators are right by themselves: fusing them is wrong."
    return f"{first}. It is right by itself: what goes wrong is how it is exported among others."
