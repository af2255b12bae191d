"""Choose the tests to run and their order.

The longest files come first: `--dist loadfile` hands out whole files; one that takes minutes and comes last leaves
the other worker idle. ``pytestmark = pytest.mark.slowest(3)`` makes a file the third.

By default the tests run that take a few minutes in all. A test with the mark ``slow`` takes seconds, and others nearly
cover it: ``-m slow`` runs these, as CI does next. A test with the mark ``thorough`` takes longer: ``--thorough`` runs
everything, as the nightly run does, with larger samples. A test that hangs fails after `LIMIT` seconds with the stacks
of its threads.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from harness_sessions import close_all

#: Seconds for one test with what it sets up: several take minutes, and a loaded machine four times as long.
#: It is set here because `pytest harness` reads pyproject.toml, too.
LIMIT = 900.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--thorough``."""
    parser.addoption("--thorough", action="store_true", help="all tests, with larger samples")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and limit how often a test that kills its worker is begun again."""
    if getattr(config.option, "maxworkerrestart", "") is None:
        # With `--dist loadfile` pytest-xdist gives it to each new worker, eight times and more.
        config.option.maxworkerrestart = "1"
    config.addinivalue_line("markers", "slow: takes seconds and is nearly covered by quick tests")
    config.addinivalue_line("markers", "thorough: takes long and is nearly covered by other tests")
    config.addinivalue_line("markers", "gpu: needs a GPU and a runtime for it, and is skipped without them")
    config.addinivalue_line("markers", "slowest(place): of a file that takes long, its place among those")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files, and leave the order within each; limit each test; take out what is not asked for."""
    items.sort(key=_place)
    if config.pluginmanager.hasplugin("timeout") and config.getoption("timeout") is None:
        for item in items:
            item.add_marker(pytest.mark.timeout(LIMIT), append=False)
    # Who names a test wants to see it.
    is_named = any("::" in str(argument) for argument in config.args)
    if config.getoption("--thorough") or is_named:
        return
    rare = ("thorough",) if config.getoption("markexpr") else ("slow", "thorough")
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in rare)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _place(item: pytest.Item) -> float:
    """Return the place of the item's file; files without a mark come last."""
    mark = item.get_closest_marker("slowest")
    return mark.args[0] if mark else float("inf")


@pytest.fixture(scope="session", autouse=True)
def sessions_end_with_the_tests() -> Iterator[None]:
    """End the processes that ran `pytest harness` for all files of this process."""
    yield
    close_all()


@pytest.fixture(scope="module", autouse=True)
def registries_are_restored() -> Iterator[None]:
    """Take back the converters and backends that a file of tests adds to this process.

    Commands that take every converter by default would meet them in the next file of the same process, and
    which file that is depends on which worker is free: such a failure comes and goes.
    """
    # A file that imports neither needs no PyTorch; those of other files are imported when the tests are collected.
    names = ("harness.convert.converter", "CONVERTERS"), ("harness.run.backend", "BACKENDS")
    registries = [getattr(sys.modules[module], name) for module, name in names if module in sys.modules]
    modules = set(sys.modules)
    with contextlib.ExitStack() as stack:
        for registry in registries:
            # What is found at first need stays.
            registry.entries()
            stack.enter_context(patch.dict(registry))
        yield
    # So that importing it registers it once more.
    for name in set(sys.modules) - modules:
        if name.startswith("planted."):
            del sys.modules[name]
