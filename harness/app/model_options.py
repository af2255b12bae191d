"""The options of `pytest harness` that choose whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.execute import load_models

#: What of the command line goes into ``run.json``.
NAMES = ("models", "model")


def add(option: Callable[..., None]) -> None:
    """Declare them.

    Args:
        option: Takes what `argparse` takes.
    """
    option("--models", action="store_true", help="run the whole models of cases/models in place of operators")
    option(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="a whole model, repeatable: resnet50, my_model.py:make_model, exported.pt2",
    )


def words(given: Any) -> tuple[str, ...]:
    """The models that are asked for, each once."""
    return tuple(dict.fromkeys((*given.model, *(load_models() if given.models else ()))))


def test_function(given: Any) -> str:
    """The function of `harness/test_conformance.py` that has the items asked for."""
    if given.models or given.model:
        return "test_model"
    return "test_generator" if given.generator_report else "test_conformance"
