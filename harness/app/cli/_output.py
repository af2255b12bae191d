"""How commands print: colours and the terminal's width on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.text import Text

from harness.core import json_text

#: A file or a pipe has no width; lines of a hundred columns read well in both.
_PLAIN_WIDTH = 100


def emit(*parts: RenderableType) -> None:
    """Print for people, one part after the other; a `Text` that says ``no_wrap`` is never wrapped."""
    coloured = sys.stdout.isatty()
    console = (
        Console(highlight=False)
        if coloured
        else Console(file=sys.stdout, width=_PLAIN_WIDTH, color_system=None, highlight=False)
    )
    for part in parts:
        unbroken = isinstance(part, Text) and bool(part.no_wrap)
        if coloured:
            console.print(part, soft_wrap=unbroken)
            continue
        with console.capture() as capture:
            console.print(part, soft_wrap=unbroken)
        # rich fills lines up with blanks, which a pipe has no use for.
        click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def line(words: str, style: str = "") -> Text:
    """A line to be copied: a command, a path, a link."""
    return Text(words, style=style, no_wrap=True)


def print_json(data: Any) -> None:
    """For what programs read."""
    click.echo(json_text(data))


def example(*lines: str) -> str:
    """The end of a help text, kept as it is."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def statuses(text: str) -> str:
    """What exit statuses mean, for the end of a help text."""
    return f"\n\nExit status: {text}; 2 for a command line that cannot be carried out."
