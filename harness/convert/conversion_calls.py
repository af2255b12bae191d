"""Which function of a converter emits an ONNX operator, read from the exporters' source.

A conversion function calls others: the node that is wrong may be a helper's. Nothing is imported, as for
`harness.convert.conversion_sources`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from harness.convert.conversion_sources import REGISTERS, SOURCES, ConversionFunction, found_folder

#: A function that so many call does what it is asked: what it emits is theirs, as it is of those registered.
_MANY = 6
_TOP = re.compile(r"[^\s#)\]}]")
_FUNCTION = re.compile(r"def (\w+)\(")
#: ``opset9.add(`` of another module, and ``add(`` of the same.
_CALLED = re.compile(r"(?<![\w.])(?:(\w+)\.)?(\w+)\(")
#: ``op.Add(`` of torchlib, and any name of TorchScript's, which may be an argument: ``_op(g, "Log", x)``.
_EMITTED = re.compile(r'\bop\.([A-Z]\w*)\(|"([A-Z]\w+)"')
#: What stands for a node between two tensors.
_SIGNS = {" + ": "Add", " - ": "Sub", " * ": "Mul", " / ": "Div"}


@dataclass(frozen=True)
class _Function:
    """A function at the top of a module.

    Attributes:
        registered: Whether it translates an operator of its own.
        emitted: The ONNX operators that its text names.
        calls: The files and names of the functions that it calls.
    """

    itself: ConversionFunction
    registered: bool
    emitted: frozenset[str]
    calls: tuple[tuple[str, str], ...]


def emitting_function(
    converter: str, function: ConversionFunction, operator: str, packet: str = ""
) -> ConversionFunction | None:
    """What emits an ONNX operator for a conversion function: the nearest function that it calls, or itself.

    None where no function that it reaches does, as for what a pass inserts.

    Args:
        packet: The PyTorch operator that is converted.
    """
    wanted = set(packet.rpartition(".")[2].split("_"))

    def likeness(key: tuple[str, str]) -> tuple[int, int, int]:
        words = set(key[1].split("_"))
        return callers[key], len(words & wanted), -len(words)

    functions, shared, callers = _functions(converter), _shared(converter), _callers(converter)
    start = function.file, function.name
    level, reached = [start] if start in functions else [], {start}
    while level:
        emitting = [key for key in level if operator in functions[key].emitted | _of_shared(functions, shared, key)]
        if emitting:
            # Which of several is called depends on the call: most probably the one that most functions use,
            # or that is named like the operator.
            return functions[max(emitting, key=likeness)].itself
        following = [called for key in level for called in functions[key].calls if called not in shared]
        level = [key for key in dict.fromkeys(following) if key not in reached]
        reached.update(level)
    return None


def left_to(converter: str, function: ConversionFunction) -> ConversionFunction:
    """The conversion function that another leaves its operator to, but for a node of its own; or itself."""
    functions = _functions(converter)
    known = functions.get((function.file, function.name))
    few = known is not None and len(known.emitted) <= 1
    called = [functions[key] for key in known.calls if functions[key].registered] if known and few else []
    return called[0].itself if len(called) == 1 else function


def work_together(converter: str, one: ConversionFunction, other: ConversionFunction) -> bool:
    """Whether one function calls the other, or both call one that emits nodes."""
    functions = _functions(converter)
    keys = (one.file, one.name), (other.file, other.name)
    if not all(key in functions for key in keys):
        return False
    of_one, of_other = (set(functions[key].calls) for key in keys)
    return keys[0] in of_other or keys[1] in of_one or any(functions[called].emitted for called in of_one & of_other)


def _of_shared(
    functions: Mapping[tuple[str, str], _Function], shared: frozenset[tuple[str, str]], one: tuple[str, str]
) -> frozenset[str]:
    """What those emit that a function calls and many others do."""
    called = functions[one].calls
    return frozenset[str]().union(*(functions[key].emitted for key in called if key in shared))


@cache
def _callers(converter: str) -> Counter[tuple[str, str]]:
    """How many functions call each."""
    return Counter(called for function in _functions(converter).values() for called in function.calls)


@cache
def _shared(converter: str) -> frozenset[tuple[str, str]]:
    """Helpers that many functions call."""
    functions = _functions(converter)
    return frozenset(
        key for key, count in _callers(converter).items() if count >= _MANY and not functions[key].registered
    )


@cache
def _functions(converter: str) -> Mapping[tuple[str, str], _Function]:
    """File and name → each function of a converter's modules."""
    found: dict[tuple[str, str], tuple[ConversionFunction, str]] = {}
    for library, folder in SOURCES.get(converter, ()):
        place = found_folder(folder)
        for path in sorted(place.glob("*.py")) if place else ():
            file = f"{folder}/{path.name}"
            for name, line, text in _at_top(path.read_text(encoding="utf-8")):
                found[file, name] = ConversionFunction(library, name, file, line), text
    return {
        key: _Function(
            itself=function,
            registered=any(map(REGISTERS.match, text.splitlines())),
            emitted=frozenset(
                [
                    *(named or quoted for named, quoted in _EMITTED.findall(text)),
                    *(operator for sign, operator in _SIGNS.items() if sign in text),
                ]
            ),
            calls=tuple(dict.fromkeys(called for called in _calls(key, text) if called in found)),
        )
        for key, (function, text) in found.items()
    }


def _at_top(text: str) -> Iterator[tuple[str, int, str]]:
    """Name, line of the head, and text with decorators of each function at the top of a module."""
    name, head, block = "", 0, list[str]()
    for number, line in enumerate([*text.splitlines(), "end"], start=1):
        if not _TOP.match(line):
            block.append(line)
            continue
        if name:
            yield name, head, "\n".join(block)
            name, block = "", []
        defined = _FUNCTION.match(line)
        if defined:
            name, head = defined[1], number
        elif not line.startswith("@") or not (block and block[0].startswith("@")):
            block = []
        block.append(line)


def _calls(key: tuple[str, str], text: str) -> Iterator[tuple[str, str]]:
    file, name = key
    folder = file.rpartition("/")[0]
    for module, called in _CALLED.findall(text.partition(f"def {name}(")[2]):
        # ``opset9`` is ``symbolic_opset9``, and ``common_ops`` is ``common``.
        stems = (module, f"symbolic_{module}", module.removesuffix("_ops")) if module else ()
        for within in [f"{folder}/{stem}.py" for stem in stems] or [file]:
            if (within, called) != key:
                yield within, called
