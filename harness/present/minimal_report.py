"""Minimal cases for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.route import route_label
from harness.core.text import plain, shown
from harness.record.json_lines import Minimal


def call(minimal: Minimal) -> str:
    """Return the minimal invocation as a person would write it."""
    try:
        return str(Invocation.from_json(minimal.invocation))
    except InvalidInvocation:
        return minimal.invocation


def render(minimal: Minimal) -> RenderableType:
    """Render one minimal case with its message and the properties that it depends on."""
    title = Text.assemble(
        (f"{minimal.outcome}", "bold red"),
        f" at {minimal.stage}, {plain(route_label(minimal.converter, minimal.backend))}, from {minimal.case_id}",
    )
    details: list[RenderableType] = [shown(f"{minimal.minimal_id} {call(minimal)}", style="cyan", limit=400)]
    first = minimal.message.strip().splitlines()
    if first:
        details.append(shown(first[0], limit=240))
    details += [shown(sentence, limit=240) for sentence in minimal.matters]
    if not minimal.finished:
        details.append(Text("more budget may find a smaller one", style="dim"))
    return Group(title, Padding(Group(*details), (0, 0, 0, 4)))
