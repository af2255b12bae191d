"""Operator cases of ONNX's own operators: the facts in `cases/onnx/` about an operator that its schema lacks.

A family file declares its operators through one :class:`OnnxFamily`:

    ops = OnnxFamily("reduction")
    ops.simple("Abs", "Neg")                       # operators whose schema is enough

    @ops.case("ReduceSum", "ReduceMax")            # the rest: a function of a `Draw`
    def reduction(d: Draw) -> Arguments:
        data = d.any_tensor()
        return {"data": data, "axes": d.maybe(lambda: d.dims(len(data.shape))), "keepdims": d.flag()}

A case is written once for all versions of its operator, in the form of the newest: an argument that a version lacks is
dropped, a number or a list in the place of an input becomes a tensor, and an attribute where an earlier version has it
as such. Types come from the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.compare.judge import CLOSE
from harness.core.dtypes import ALL, WIDE_UNSIGNED
from harness.core.invocation import Literal, TensorSpec, Weight, contiguous_strides
from harness.core.onnx_arrays import NARROW_DTYPES, STRING
from harness.core.onnx_operators import OUTPUTS, OnnxSchema, Parameter, onnx_schemas
from harness.core.plugins import declaring_place
from harness.generate.draw import OMIT, Draw
from harness.generate.operator_case import Arguments, OperatorCase

#: Every operator case of an ONNX operator by overload, filled at import of `cases.onnx`.
ONNX_CASES: dict[str, OperatorCase] = {}
#: Operator → why none of its versions, or none but the named ones, has a case.
UNDRAWN: dict[str, str] = {}
_DRAWABLE = (*ALL, *WIDE_UNSIGNED)
#: Attributes of the first versions that say nothing about the result.
_MEANINGLESS = frozenset({"consumed_inputs"})


class OnnxFamily:
    """Declares the operator cases of one file.

    Args:
        name: Appears in reports.
        domain: The domain of its operators.
    """

    def __init__(self, name: str, domain: str = "ai.onnx") -> None:
        self.name = name
        self._domain = domain

    def simple(self, /, *operators: str, since: int = 1, **fixed: Callable[[Draw], Any]) -> None:
        """Declare operators of one tensor, or of several that broadcast.

        Args:
            operators: Names without their domain.
            since: The first version.
            fixed: Argument → function that draws it, for one whose type allows too much.
        """
        self._add(operators, lambda d: draw_operands(d, fixed), since, None, "", False, False)

    def case(
        self,
        *operators: str,
        since: int = 1,
        until: int | None = None,
        about: str = "",
        narrow: bool = False,
        strings: bool = False,
    ) -> Callable[[Callable[[Draw], Arguments]], Callable[[Draw], Arguments]]:
        """Decorate a function that draws the arguments of some operators.

        Args:
            operators: Names without their domain.
            since: The first version.
            until: The version before which the function holds; None for all.
            about: The input whose dtype is that of a `Draw`; "" for the first one.
            narrow: Whether it takes the dtypes of eight and fewer bits that PyTorch lacks.
            strings: Whether it takes strings.
        """

        def register(function: Callable[[Draw], Arguments]) -> Callable[[Draw], Arguments]:
            self._add(operators, function, since, until, about, narrow, strings)
            return function

        return register

    def undrawn(self, operator: str, why: str) -> None:
        """Say why an operator has no case."""
        UNDRAWN[f"{self._domain}.{operator}"] = why

    def _add(
        self,
        operators: Sequence[str],
        function: Callable[[Draw], Arguments],
        since: int,
        until: int | None,
        about: str,
        narrow: bool,
        strings: bool,
    ) -> None:
        for operator in operators:
            packet = f"{self._domain}.{operator}"
            versions = [s for s in onnx_schemas().values() if s.overload.rpartition(".")[0] == packet]
            chosen = [s for s in versions if since <= s.version and (until is None or s.version < until)]
            if not chosen and self._domain == "ai.onnx":
                raise ValueError(f"{packet} has no version from {since} on")
            for schema in chosen:
                if schema.overload in ONNX_CASES:
                    raise ValueError(f"{schema.overload} is declared twice")
                known = frozenset(name for s in versions for name in s.argument_names)
                ONNX_CASES[schema.overload] = OperatorCase(
                    overload=schema.overload,
                    family=self.name,
                    dtypes=_dtypes(schema, about, narrow=narrow, strings=strings),
                    arguments=_Arguments(function, schema, known),
                    judge=CLOSE,
                    rare=(*WIDE_UNSIGNED, *NARROW_DTYPES),
                    schema=schema,
                    declared=declaring_place(),
                )


def _dtypes(schema: OnnxSchema, about: str, *, narrow: bool, strings: bool) -> tuple[str, ...]:
    """Return the dtypes that a draw may be about; float32 if the operator takes no tensor."""
    parameters = [p for p in schema.inputs if p.name == about or not about]
    allowed = parameters[0].dtypes if parameters else ("float32",)
    known = (*_DRAWABLE, *(NARROW_DTYPES if narrow else ()), *((STRING,) if strings else ()))
    return tuple(dtype for dtype in known if dtype in allowed) or allowed[:1] or ("float32",)


def dtype_for(d: Draw, name: str) -> str:
    """Choose the dtype of an input among those that the schema allows and PyTorch knows, too."""
    assert d.schema is not None
    (parameter,) = (p for p in d.schema.inputs if p.name == name)
    return d.choose(*(dtype for dtype in _DRAWABLE if dtype in parameter.dtypes))


def draw_operands(d: Draw, fixed: Mapping[str, Callable[[Draw], Any]]) -> Arguments:
    """Draw the arguments of an operator of tensors that broadcast; before version 7 they have one shape.

    Attributes that are floats are drawn, `axis` is a dimension, and `keepdims` is a flag.

    Raises:
        TypeError: the schema has an attribute that its type says too little about.
    """
    schema = d.schema
    assert schema is not None
    arguments: dict[str, Any] = {}
    names = [p.name for p in schema.inputs if p.name not in fixed]
    if len(names) > 1 and schema.attribute("broadcast") is None:
        arguments |= d.operands(*names)
    elif names:
        shape = d.shape()
        arguments |= {name: d.tensor(shape) for name in names}
    rank = max((len(spec.shape) for spec in arguments.values()), default=0)
    for name, draw in fixed.items():
        d.about = name
        arguments[name] = draw(d)
    for attribute in schema.attributes:
        if attribute.name in fixed or attribute.name in (*_MEANINGLESS, "broadcast"):
            continue
        d.about = attribute.name
        if attribute.kind == "float":
            arguments[attribute.name] = d.maybe(d.float)
        elif attribute.name == "axis" and schema.attribute("broadcast") is None:
            arguments[attribute.name] = d.maybe(lambda: d.dim(rank))
        elif attribute.name != "axis":
            raise TypeError(f"{schema.overload}: say how to draw {attribute.name!r}")
    d.about = ""
    return arguments


class _Arguments:
    """Draws the arguments of one version of an operator: those of its case, in the form of the version.

    Args:
        function: The case.
        schema: The version.
        known: The names of arguments of all versions.
    """

    def __init__(self, function: Callable[[Draw], Arguments], schema: OnnxSchema, known: frozenset[str]) -> None:
        self._function = function
        self._schema = schema
        self._known = known

    def __call__(self, d: Draw) -> Arguments:
        given = {name: value for name, value in self._function(d).items() if value is not OMIT and value is not None}
        unknown = sorted(set(given) - self._known)
        if unknown:
            raise TypeError(f"case of {self._schema.overload} draws {unknown}, which no version of it has")
        arguments: dict[str, Any] = {}
        d.about = "constants"
        constants = d.choose("numbers", "numbers", "none", "rest", "all but numbers")
        bound = self._bound_dtypes(given)
        for place, parameter in enumerate(self._schema.inputs):
            if parameter.name in given:
                held = constants == "rest" and place > 0
                value = _as_input(d, parameter, given[parameter.name], bound, constants, held=held)
                arguments[parameter.name] = value
                first = value[0] if isinstance(value, tuple) and value else value
                spec = first.spec if isinstance(first, Weight) else first
                if isinstance(spec, TensorSpec):
                    bound.setdefault(parameter.variable, spec.dtype)
        for attribute in self._schema.attributes:
            if attribute.name in given:
                arguments[attribute.name] = given[attribute.name]
        d.about = "outputs"
        arguments[OUTPUTS] = given.get(OUTPUTS, OMIT)
        optional = [p for p in self._schema.outputs if p.is_optional]
        if optional and OUTPUTS not in given:
            arguments[OUTPUTS] = d.integer(max(self._schema.least_outputs, 1), len(self._schema.outputs))
        d.about = ""
        return arguments

    def _bound_dtypes(self, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the dtypes that the tensors of a case give to the type variables."""
        bound: dict[str, str] = {}
        for parameter in self._schema.inputs:
            value = given.get(parameter.name)
            first = value[0] if isinstance(value, list | tuple) and value else value
            if isinstance(first, TensorSpec):
                bound.setdefault(parameter.variable, first.dtype)
        return bound


def _as_input(
    d: Draw, parameter: Parameter, value: Any, bound: Mapping[str, str], constants: str, *, held: bool
) -> Any:
    """Return an argument of a case as an input: a tensor, a weight, or several."""
    if isinstance(value, Weight):
        return value
    if isinstance(value, TensorSpec):
        return Weight(value) if held else value
    if isinstance(value, list | tuple) and any(isinstance(part, TensorSpec | Weight) for part in value):
        return tuple(Weight(part) if held and isinstance(part, TensorSpec) else part for part in value)
    number = tensor_of_numbers(value, bound.get(parameter.variable) or _dtype_of_numbers(d, parameter))
    return Weight(number) if held or constants == "numbers" else number


def _dtype_of_numbers(d: Draw, parameter: Parameter) -> str:
    preferred = [dtype for dtype in ("int64", "int32", "float32") if dtype in parameter.dtypes]
    return d.choose(*preferred) if preferred else parameter.dtypes[0]


def tensor_of_numbers(value: Any, dtype: str) -> TensorSpec:
    """Return a tensor of one dimension that holds a list, or a 0-d tensor of a number."""
    shape = (len(value),) if isinstance(value, list | tuple) else ()
    values = tuple(value) if shape else (value,)
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(values))
