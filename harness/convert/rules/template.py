"""What a converter needs to know to write the skeleton of a rule: a conversion function to be filled in.

A file of rules is put together from such skeletons (`harness.explain`). A converter that hands out
none takes rules like any other.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument of an operator's schema.

    Attributes:
        name: The schema's.
        type: As the schema prints it: ``Tensor``, ``Tensor[]``, ``Scalar``, ``SymInt[2]``, ``float?``.
        default: As Python code; None where the argument is required.
        keyword: Whether it is given by keyword alone.
    """

    name: str
    type: str
    default: str | None = None
    keyword: bool = False

    @property
    def optional(self) -> bool:
        """Whether it may be None."""
        return self.type.endswith("?")

    @property
    def kind(self) -> str:
        """The type without what makes it optional and without sizes: ``Tensor``, ``SymInt[]``."""
        plain = self.type.removesuffix("?")
        return plain.partition("[")[0].removesuffix("?") + ("[]" if "[" in plain else "")

    @property
    def python_name(self) -> str:
        """A name that Python takes: ``from_`` of ``from``."""
        return f"{self.name}_" if keyword.iskeyword(self.name) else self.name

    @property
    def declaration(self) -> str:
        """As in the head of a Python function: ``alpha=1``."""
        return self.python_name if self.default is None else f"{self.python_name}={self.default}"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """An overload as its schema states it.

    Attributes:
        overload: Dotted name.
        schema: The schema itself.
        parameters: In order.
        outputs: How many values it returns.
    """

    overload: str
    schema: str
    parameters: tuple[Parameter, ...]
    outputs: int

    @property
    def packet(self) -> str:
        """``aten::celu``."""
        namespace, name, _ = self.overload.split(".")
        return f"{namespace}::{name}"

    @property
    def torch_name(self) -> str:
        """``aten::celu`` of the default overload, ``aten::add.Tensor`` of another."""
        _, _, overload = self.overload.split(".")
        return self.packet if overload == "default" else f"{self.packet}.{overload}"

    @property
    def function_name(self) -> str:
        """A name for a conversion function: ``celu``, ``add_tensor``."""
        _, name, overload = self.overload.split(".")
        return name if overload == "default" else f"{name}_{overload.lower()}"


@dataclass(frozen=True, kw_only=True)
class TemplateRequest:
    """What a skeleton is to be for.

    Attributes:
        signatures: The overloads of one operator, at least one.
        hint: Lines about the ONNX operator that may serve, without comment signs.
    """

    signatures: tuple[Signature, ...]
    hint: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RuleTemplate:
    """Code of conversion functions.

    Attributes:
        code: Whole functions with their decorators.
        imports: Whole lines that the code needs.
    """

    code: str
    imports: tuple[str, ...]


def body(wanted: TemplateRequest, signature: Signature) -> list[str]:
    """A function's indented lines: what the schema is, what ONNX has, and that there is no more yet."""
    lines = [f"# {signature.schema}", *(f"# {line}".rstrip() for line in wanted.hint)]
    end = f'raise NotImplementedError("{signature.torch_name}: this rule is not filled in yet")'
    return [f"    {line}" for line in (*lines, end)]
