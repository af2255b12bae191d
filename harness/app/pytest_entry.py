"""What installed pytest loads in every project: nothing, unless the command line names the harness.

An entry point of group ``pytest11``. It must cost other projects nothing: no options, no import of PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

_PACKAGE = Path(__file__).resolve().parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Load the plug-in proper for ``pytest harness`` and ``pytest --pyargs harness``."""
    if names_harness(args, early_config.invocation_params.dir):
        from harness.app import plugin

        early_config.pluginmanager.register(plugin, "conformance")


def names_harness(arguments: Iterable[str], directory: Path) -> bool:
    """Whether one of the arguments of pytest is this package, a part of it, or its name.

    Args:
        arguments: pytest's.
        directory: What paths among them are relative to.
    """
    places = [argument.partition("::")[0] for argument in arguments if not argument.startswith("-")]
    for place in places:
        path = directory / place
        if path.exists():
            resolved = path.resolve()
            if resolved == _PACKAGE or _PACKAGE in resolved.parents:
                return True
        elif place == _PACKAGE.name or place.startswith(f"{_PACKAGE.name}."):
            return True
    return False
