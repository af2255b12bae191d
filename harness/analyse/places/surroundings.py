"""What a conversion function offers to an expression that is put into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.analyse.places.edit import innermost
from harness.analyse.places.source_code import SourceCode, Statement, parameters_of

#: Tensors of a function that are looked at.
_TENSORS = 4
#: What annotations of tensors hold: the type variables of torchlib, dtypes of onnxscript, values.
_ANNOTATED = re.compile(r"\b(T[A-Z]\w*|(B?FLOAT|DOUBLE|U?INT|BOOL|COMPLEX)\w*|Value)\b")


@dataclass(frozen=True)
class Surroundings:
    """The innermost function that an expression is in.

    Attributes:
        parameters: Of the function, in their order.
        names: These, and what the function assigns.
        unread: Parameters that no line of it reads.
        imported: Names of its module.
        opset: Whose operators are emitted.
        known_tensors: Parameters that are tensors, by what the function says of them.
    """

    parameters: tuple[str, ...]
    names: frozenset[str]
    unread: tuple[str, ...]
    imported: frozenset[str]
    opset: int
    known_tensors: tuple[str, ...] = ()

    @classmethod
    def of(cls, statement: Statement, source: SourceCode, opset: int) -> Surroundings:
        """Of a statement."""
        file = source.file(statement.file)
        outermost = file.function(statement.function, statement.line)
        if outermost is None:
            return cls((), frozenset(), (), frozenset(), opset)
        function = innermost(outermost, statement.line)
        arguments = parameters_of(function)
        parameters = tuple(argument.arg for argument in arguments)
        used = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        stored = {node.id for node in used if isinstance(node.ctx, ast.Store)}
        read = {node.id for node in used if isinstance(node.ctx, ast.Load)}
        return cls(
            parameters=parameters,
            names=frozenset(parameters) | stored,
            unread=tuple(name for name in parameters if name not in read | stored),
            imported=file.names,
            opset=opset,
            known_tensors=tuple(_known_tensors(function)),
        )

    @property
    def of_torchscript(self) -> bool:
        """Whether nodes are emitted as TorchScript's symbolic functions do it."""
        return "g" in self.parameters

    @property
    def emits(self) -> bool:
        """Whether nodes can be emitted here: not in PyTorch's decompositions."""
        return self.of_torchscript or "op" in self.imported

    @property
    def tensors(self) -> tuple[str, ...]:
        """Parameters that are tensors; where nothing tells, the first two and the last."""
        given = [name for name in self.parameters if name != "g"]
        return self.known_tensors[:_TENSORS] or tuple(dict.fromkeys([*given[:2], *given[-1:]]))

    def emit(self, name: str, operands: Sequence[ast.expr], **attributes: ast.expr) -> ast.Call:
        """A call that emits a node; attributes are whole numbers."""
        emitting = ast.Name("g" if self.of_torchscript else "op", ast.Load())
        if self.of_torchscript:
            keywords = [ast.keyword(f"{key}_i", value) for key, value in attributes.items()]
            call = ast.Attribute(emitting, "op", ast.Load())
            return ast.Call(call, [ast.Constant(name), *operands], keywords)
        keywords = [ast.keyword(key, value) for key, value in attributes.items()]
        return ast.Call(ast.Attribute(emitting, name, ast.Load()), list(operands), keywords)

    @property
    def optional(self) -> tuple[str, ...]:
        """Parameters that may not be given: all but the first, as signatures do not always tell."""
        return tuple(name for name in self.parameters if name != "g")[1:]

    def is_given(self, name: str) -> ast.expr | None:
        """Whether an argument is given; None where the module has no words for it."""
        argument = ast.Name(name, ast.Load())
        if not self.of_torchscript:
            return ast.Compare(argument, [ast.IsNot()], [ast.Constant(None)])
        is_none = self.helper("_is_none")
        return ast.UnaryOp(ast.Not(), ast.Call(is_none, [argument], [])) if is_none is not None else None

    def helper(self, name: str) -> ast.expr | None:
        """A function of TorchScript's `symbolic_helper`, as the module calls it; None where it does not."""
        if name in self.imported:
            return ast.Name(name, ast.Load())
        if "symbolic_helper" in self.imported:
            return ast.Attribute(ast.Name("symbolic_helper", ast.Load()), name, ast.Load())
        return None

    def element_type(self, name: str, number: int) -> ast.expr:
        """ONNX's dtype of a name, as the module writes it: ``FLOAT.dtype``."""
        if not self.of_torchscript and name in self.imported:
            return ast.Attribute(ast.Name(name, ast.Load()), "dtype", ast.Load())
        if self.of_torchscript and "_C_onnx" in self.imported:
            types = ast.Attribute(ast.Name("_C_onnx", ast.Load()), "TensorProtoDataType", ast.Load())
            return ast.Attribute(types, name, ast.Load())
        return ast.Constant(number)


def operator_of(call: ast.Call) -> tuple[str, int]:
    """The ONNX operator that a call emits and how many arguments stand before its operands; "" for none."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id.startswith("op") and function.attr[0].isupper():
            return function.attr, 0
        if function.attr == "op" and call.args and isinstance(call.args[0], ast.Constant):
            return str(call.args[0].value), 1
    return "", 0


def _known_tensors(function: ast.FunctionDef) -> Iterator[str]:
    """The parameters that are tensors by their annotations, or by what TorchScript parses them as."""
    arguments = parameters_of(function)
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and "parse_args" in ast.unparse(decorator.func):
            kinds = [kind.value if isinstance(kind, ast.Constant) else "" for kind in decorator.args]
            yield from (argument.arg for argument, kind in zip(arguments[1:], kinds, strict=False) if kind == "v")
            return
    for argument in arguments:
        said = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        if _ANNOTATED.search(said) and "Sequence" not in said:
            yield argument.arg
