"""The registry of sources of invocations: one file per source; `source.py` has the protocol.

A source is named by a word, as ``--source`` takes it: ``generated``, ``opinfo``, ``corpus``,
``corpus:FILE``, ``use``, ``use:common``, ``programs``, ``onnx``, ``forbidden``, ``graphs``, ``graphs:FILE``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.core.plugins import Unavailable, UnknownName
from harness.generate.sources import (
    corpus,
    forbidden,
    generated,
    onnx_graphs,
    onnx_operators,
    opinfo,
    programs,
    redrawn,
    use,
)
from harness.generate.sources.source import Source


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """A registered source.

    Attributes:
        name: The name in the option and in the record.
        create: Creates the source from the text after the colon of a word, "" without one.
        probe: Returns the reason why it cannot be used here; None if it can.
        argument: The text allowed after a colon, for messages; "" for nothing.
        default: The word with which a run without ``--source`` asks it; "" for a source that it does not ask.
    """

    name: str
    create: Callable[[str], Source]
    probe: Callable[[], Unavailable | None] = lambda: None
    argument: str = ""
    default: str = ""


#: Sources in the order in which a run that names none asks them: calls of models first, then earlier failures.
_ENTRIES = (
    SourceEntry(name="use", create=use.create, argument="common", default="use:common"),
    SourceEntry(name="corpus", create=corpus.create, argument="FILE", default="corpus"),
    SourceEntry(name="generated", create=lambda argument: generated.Generated(), default="generated"),
    SourceEntry(name="redrawn", create=lambda argument: redrawn.Redrawn(), default="redrawn"),
    SourceEntry(name="programs", create=programs.create, argument="OPERATOR"),
    SourceEntry(name="onnx", create=lambda argument: onnx_operators.OnnxOperators()),
    SourceEntry(name="forbidden", create=lambda argument: forbidden.ForbiddenNodes()),
    SourceEntry(name="graphs", create=onnx_graphs.create, argument="FILE"),
    SourceEntry(name="opinfo", create=lambda argument: opinfo.OpInfo(), probe=opinfo.probe),
)


def source_names() -> tuple[str, ...]:
    """Return the words that ``--source`` takes, without their arguments."""
    return tuple(entry.name for entry in _ENTRIES)


def default_sources() -> tuple[str, ...]:
    """Return the words of a run that names none."""
    return tuple(entry.default for entry in _ENTRIES if entry.default)


def find_source(word: str) -> tuple[SourceEntry, str]:
    """Return the entry that `word` names, and its argument.

    Raises:
        UnknownName: there is none; near ones are named.
    """
    name, colon, argument = word.partition(":")
    for entry in _ENTRIES:
        if entry.name == name and (entry.argument or not colon):
            return entry, argument
    raise UnknownName("source", word, source_names())
