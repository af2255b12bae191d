"""The operators that share a conversion: other names of one, and one for each number of dimensions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache

from harness.core.overloads import packet
from harness.core.program import is_composed
from harness.generate.cases_home import cases_directory

#: `max_pool1d`, `conv_transpose3d`: the dimensions of one operator share a conversion.
_DIMENSIONS = re.compile(r"(?<=[a-z])[123]d(?=\b|_)")


def packet_of(overload: str) -> str:
    """Return ``aten.add`` for ``aten.add.Tensor``, and for itself."""
    return overload if is_composed(overload) else packet(overload) if overload.count(".") > 1 else overload


def generalize_dimensions(text: str) -> str:
    """Return the text with ``max_poolNd`` for ``max_pool1d`` and its like."""
    return _DIMENSIONS.sub("Nd", text)


@lru_cache(maxsize=10_000)
def family_name(packet: str) -> str:
    """Return the operator of which a packet is an alias or another number of dimensions: ``aten.max_poolNd``."""
    if is_composed(packet):
        return packet
    namespace, _, name = packet.rpartition(".")
    name = _canonical(_canonical(name).removeprefix("special_"))
    name = generalize_dimensions(name.removesuffix("_copy").removesuffix("_functional"))
    return f"{namespace}.{name}" if namespace else name


def is_alias(packet: str) -> bool:
    """Whether a packet is another name of an operator, as ``aten.multiply`` is of ``aten.mul``."""
    return packet.rpartition(".")[2] in _aliases()


def _canonical(name: str) -> str:
    return _aliases().get(name, _OPERATORS.get(name, name))


#: Methods of Python's operators.
_OPERATORS = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
}


@cache
def _aliases() -> Mapping[str, str]:
    """PyTorch's other names for operators."""
    text = (cases_directory() / "aliases.toml").read_text(encoding="utf-8")
    aliases: Mapping[str, str] = tomllib.loads(text)["aliases"]
    return aliases
