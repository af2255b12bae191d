"""Run `pytest harness` in this process, from any directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import harness


def pytest_main(arguments: Sequence[str], *plugins: object) -> int:
    """Run a session and return its exit status."""
    import pytest

    # The configuration of a surrounding project applies only to that project's tests.
    settings = ["-c", os.devnull, "--rootdir", str(Path.cwd()), "--assert=plain"]
    package = str(Path(harness.__file__).parent)
    return int(pytest.main([*settings, package, *arguments], plugins=list(plugins)))
