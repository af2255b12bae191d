"""The route of a case from PyTorch to a backend, and its name.

A route is written ``dynamo@20+float16 → ort-cpu``: the converter, its opset if the name includes it, the transforms of
the artefact in order, and the backend. The part before the arrow is the *export*: the argument of ``--converter``, the
value of the record's column ``converter``, and what several backends share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_ARROW = " → "
_OPSET = "@"
_TRANSFORM = "+"
STATIC, DYNAMIC = "static", "dynamic"
#: The converters in routes of graphs, which are already exported: of ONNX files, and of graphs that are drawn.
FILE, GRAPH = "file", "graph"
EXPORTED = (FILE, GRAPH)


def is_onnx_file(name: str) -> bool:
    """Whether a user's argument names an ONNX file rather than a model in Python."""

    return name.endswith(".onnx")


@dataclass(frozen=True, kw_only=True)
class Route:
    """One way from PyTorch to a backend.

    Attributes:
        converter: The name of a registered converter, or one of `EXPORTED`.
        opset: The opset to emit; None means the converter's default.
        names_opset: Whether the opset is part of the route's name, as in a run at several opsets.
        transforms: The names of the transforms that are applied to the artefact, in order.
        backend: The name of a backend, with its argument; "" for a route that ends with the artefact.
        dynamic: Whether the export has dynamic dimensions.
        rules: Files with conversion functions that replace the converter's.
        public_api: Whether converters use only public calls and cache nothing between exports.
    """

    converter: str
    opset: int | None = None
    names_opset: bool = False
    transforms: tuple[str, ...] = ()
    backend: str = ""
    dynamic: bool = False
    rules: tuple[str, ...] = ()
    public_api: bool = False

    @classmethod
    def parse(cls, text: str) -> Route:
        """Return the static route that a text names; the inverse of `str`. The arrow may be ``->``."""
        export, _, backend = (word.strip() for word in text.replace("->", _ARROW.strip()).partition(_ARROW.strip()))
        head, *transforms = export.split(_TRANSFORM)
        name, at, opset = head.rpartition(_OPSET)
        if at and opset.isdecimal():
            named = cls(converter=name, opset=int(opset), names_opset=True)
        else:
            named = cls(converter=head)
        return replace(named, transforms=tuple(transforms), backend=backend)

    def __str__(self) -> str:
        return f"{self.export}{_ARROW}{self.backend}" if self.backend else self.export

    @property
    def export(self) -> str:
        """The name of the part before the backend: ``dynamo``, ``dynamo@18``, ``dynamo+float16``."""
        opset = f"{_OPSET}{self.opset}" if self.names_opset else ""
        return _TRANSFORM.join((self.converter + opset, *self.transforms))

    @property
    def shape_mode(self) -> str:
        """``static`` or ``dynamic``, as in the record."""
        return DYNAMIC if self.dynamic else STATIC

    def named_at(self, opset: int) -> Route:
        """Return the same route at an opset that is part of its name."""
        return replace(self, opset=opset, names_opset=True)


def route_label(export: str, backend: str, shape_mode: str = STATIC) -> str:
    """Return the name of a recorded route, as people read it: ``dynamo@18 → ort-cpu, dynamic``."""
    mode = "" if shape_mode == STATIC else f", {shape_mode}"
    return f"{export}{_ARROW}{backend}{mode}"
