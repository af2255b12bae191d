"""The command `conformance`, whose subcommands are the other modules of this package."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import harness
import harness.app.cli
from harness.record.layout import ResultsError

#: The sections of the help, in order; each module of a subcommand names its own as `SECTION`.
SECTIONS = ("run", "look", "dig", "gate", "store")
#: Subcommands that run cases in worker processes of their own.
_WITH_WORKERS = ("check", "explain", "graphs", "replay", "shrink", "supports")


class _CannotBeDone(click.ClickException):
    """One line. The status is a usage error's, because 1 means that a case fails."""

    exit_code = click.UsageError.exit_code


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"harness.app.cli.{name.replace('-', '_')}")


def _described(name: str) -> tuple[str, str]:
    """Return the section and the short help of a subcommand, read from its source: importing all of them takes
    seconds."""
    spec = importlib.util.find_spec(f"harness.app.cli.{name.replace('-', '_')}")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    section, words = (re.search(pattern, source, re.MULTILINE) for pattern in (_SECTION, _SHORT_HELP))
    assert section is not None
    assert words is not None
    return section[1], words[1]


_SECTION = r'^SECTION = "(\w+)"$'
_SHORT_HELP = r'\bshort_help="([^"]+)"'


class _Modules(click.Group):
    """Imports the module of a subcommand when it is called: most of them need no PyTorch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            module.name.replace("_", "-")
            for module in pkgutil.iter_modules(harness.app.cli.__path__)
            if not module.name.startswith("_")
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = _module(cmd_name).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        by_section: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for name in self.list_commands(ctx):
            section, words = _described(name)
            by_section[section].append((name, words))
        for section, commands in by_section.items():
            with formatter.section(section.capitalize()):
                formatter.write_dl(commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ": `conformance --help` lists them"
            raise click.UsageError(f"unknown command {args[0]}{hint}", ctx)
        if args[0] in _WITH_WORKERS and not {"-h", "--help"} & set(args):
            from harness.core.isolation import preload_in_fork_server

            # Workers import for several seconds: at the same time as the command does.
            preload_in_fork_server("harness.blame.preloaded_witnesses", start=True)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ResultsError as error:
            raise _CannotBeDone(str(error)) from None


@click.group(cls=_Modules, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(harness.__version__, prog_name="conformance")
def conformance() -> None:
    """Show which PyTorch operators survive the way through ONNX, and which component is at fault for each failure.

    A RUN is a directory that `pytest harness` wrote. Without one, a command takes the newest in results/.
    """
