"""The plug-in that pytest loads in every project. It stays idle unless the command line names the harness.

The installed package has an entry point in group ``pytest11`` next to ``harness``. Other projects do not notice:
it adds no options and imports no PyTorch. A project with a folder ``harness`` of its own keeps that name. Its one
fixture, ``assert_survives``, imports the harness when a test asks for it.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_NAME = "harness"
#: Stands for one of pytest's arguments, to see whether pytest takes it for a path.
_MARK = "conformance-argument"


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Load the plug-in proper for ``pytest harness`` and ``pytest --pyargs harness``."""
    directory = early_config.invocation_params.dir
    known = early_config.known_args_namespace
    # Read pytest's paths again: it has expanded the files that `@FILE` names.
    for place, argument in enumerate([*args, *known.file_or_dir]):
        if _names_harness(argument, directory, by_name=known.pyargs) and not _is_value(parser, args, place):
            _refuse_used(args, known)
            if _will_run(known):
                # Workers import for as long as the session does until it has a task; so they do it at once.
                isolation = importlib.import_module("harness.core.isolation")
                isolation.preload_in_fork_server("harness.blame.preloaded_witnesses", start=True)
            early_config.pluginmanager.register(_plugin(), "conformance")
            return
        if argument == _NAME and not (directory / _NAME).exists() and not _is_value(parser, args, place):
            raise pytest.UsageError(f"this directory has no {_NAME}: `conformance run` takes the same options anywhere")


@pytest.fixture(scope="session")
def assert_survives() -> Iterator[Callable[..., Any]]:
    """Return ``harness.assert_survives`` with a worker process that all tests of the session share."""
    if not _homes():
        pytest.fail(f"this project has a package {_NAME} of its own, which hides the harness", pytrace=False)
    survival = importlib.import_module("harness.app.survival")
    supervisor = importlib.import_module("harness.pipeline.supervisor")
    with supervisor.Supervisor(timeout=survival.TIMEOUT, memory_limit=survival.MEMORY) as runner:
        yield functools.partial(survival.assert_survives, supervisor=runner)


def _plugin() -> ModuleType:
    """Import the plug-in proper, which needs PyTorch."""
    # Imports leave hardly any garbage, and looking for it takes long, at the end of the process once more.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module("harness.app.plugin")
    except KeyboardInterrupt:
        # Pytest has no session yet to report it, and a traceback through imports helps nobody.
        sys.stderr.write("interrupted while the harness was loaded\n")
        raise SystemExit(pytest.ExitCode.INTERRUPTED) from None
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


def _refuse_used(args: list[str], options: argparse.Namespace) -> None:
    """Refuse to write where a run is before anything is imported for it."""
    if options.help or options.version or options.collectonly or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--results-dir", "--coverage", "--generator-report"):
        parser.add_argument(name, nargs="?", const="")
    given, _ = parser.parse_known_args(args)
    # The other two do not write there.
    if given.results_dir and given.coverage is None and given.generator_report is None:
        layout = importlib.import_module("harness.record.layout")
        if layout.holds_run(Path(given.results_dir)):
            raise pytest.UsageError(str(layout.already_exists(Path(given.results_dir))))


def _will_run(options: argparse.Namespace) -> bool:
    """Whether this process will run cases: not if it only prints, or leaves them to xdist's workers."""
    spreads = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    if spreads and not os.environ.get("PYTEST_XDIST_WORKER"):
        return False
    return not (options.help or options.version or options.collectonly)


def _names_harness(argument: str, directory: Path, *, by_name: bool) -> bool:
    """Whether an argument of pytest is the harness or a part of it: its name in Python, or a path."""
    if argument.startswith("-"):
        return False
    word = argument.partition("::")[0]
    if by_name and word.partition(".")[0] == _NAME:
        return bool(_homes())
    try:
        path = (directory / word).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return False
    return any(home in (path, *path.parents) for home in _homes())


def _homes() -> list[Path]:
    """Return the folders where Python finds the harness; empty if another project's package hides it."""
    spec = find_spec(_NAME)
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return [place.resolve() for place in places if (place / "app" / "plugin.py").is_file()]


def _is_value(parser: pytest.Parser, args: list[str], place: int) -> bool:
    """Whether the argument at `place` is the value of an option, as in ``-k harness``."""
    marked, _ = parser.parse_known_and_unknown_args([*args[:place], _MARK, *args[place + 1 :]])
    return any(_MARK in str(value) for name, value in vars(marked).items() if name != "file_or_dir")
