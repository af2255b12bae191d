"""The options of `pytest harness` that choose whole models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cases import models

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
    return tuple(dict.fromkeys((*given.model, *(models.load() if given.models else ()))))


def other_files(given: Any) -> set[str]:
    """The test files beside the one that has the items asked for."""
    wanted = "test_generator.py" if given.generator_report else "test_conformance.py"
    if given.models or given.model:
        wanted = "test_models.py"
    return {"test_conformance.py", "test_generator.py", "test_models.py"} - {wanted}
