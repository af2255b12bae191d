"""The command `conformance`, whose subcommands are the modules beside this one."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import click

import harness
import harness.app.cli
from harness.record import ResultsError

#: Subcommands that run cases in worker processes of their own.
_WITH_WORKERS = ("diverge", "explain", "fix", "graphs", "replay", "shrink")


class _CannotBeDone(click.ClickException):
    """One line. The status is a usage error's, because 1 means that a case fails."""

    exit_code = click.UsageError.exit_code


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
        module = importlib.import_module(f"harness.app.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in _WITH_WORKERS and not {"-h", "--help"} & set(args):
            from harness.core import preload_in_fork_server

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
    """Show which PyTorch operators survive the way through ONNX, and whose defect each failure is.

    A RUN is a directory that `pytest harness` wrote. Without one, a command takes the newest in results/.
    """
