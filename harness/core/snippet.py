"""Stand-alone code that does what a converter or a backend does in the harness.

`harness.reproduce` builds scripts from it. A converter or backend without snippets works in every other way, but its
failures cannot be reproduced by a script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ExportWanted:
    """The task of a converter's snippet: to export ``Model()``, a module called with the values of a dict.

    Attributes:
        examples: The name of the dict, which maps graph inputs to tensors.
        opset: The opset to emit; None means the converter's default.
        dynamic: Graph input → its dynamic dimensions; None for a static export.
        rules: Overload → name of the user's conversion function, which the script defines.
    """

    examples: str
    opset: int | None = None
    dynamic: Mapping[str, tuple[int, ...]] | None = None
    rules: Mapping[str, str] = field(default_factory=dict)

    @property
    def arguments(self) -> str:
        """The tensors as one tuple, as an expression."""
        return f"tuple({self.examples}.values())"

    @property
    def names(self) -> str:
        """The names of the graph inputs, as an expression."""
        return f"list({self.examples})"

    @property
    def dynamic_shapes(self) -> str:
        """`dynamic` as an expression for `torch.export`; the script binds ``dynamic`` to `Dim.DYNAMIC`."""
        shapes = (
            f"{name!r}: {{{', '.join(f'{dim}: dynamic' for dim in dims)}}}"
            for name, dims in (self.dynamic or {}).items()
        )
        return f"{{{', '.join(shapes)}}}"


@dataclass(frozen=True, kw_only=True)
class ExportSnippet:
    """A converter's code.

    Attributes:
        code: Lines that assign the exported `onnx.ModelProto`, or another artefact, to ``model``.
        imports: Import lines in addition to ``import onnx`` and ``import torch``.
        packages: Distributions whose versions matter, in addition to torch and onnx.
    """

    code: tuple[str, ...]
    imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunWanted:
    """The task of a backend's snippet.

    Attributes:
        argument: The text after the colon of the backend's name; "" if there is none.
        raw: Whether bfloat16 occurs, which NumPy lacks.
        arrays: Whether the script works without PyTorch: ``inputs`` are NumPy arrays, and ``outputs`` must be too.
            A backend that cannot do that ignores it.
        kind: The kind of artefact, as `harness.run.artefact` names it.
        ranges: Dynamic graph input → its smallest and largest shape; None for a static model.
    """

    argument: str = ""
    raw: bool = False
    arrays: bool = False
    kind: str = "onnx"
    ranges: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = None


@dataclass(frozen=True, kw_only=True)
class RunSnippet:
    """A backend's code.

    Attributes:
        load: Lines that prepare ``model``, which for the kind ``callable`` is a module; ``examples`` is a tuple then.
        run: Lines that run it on ``inputs``, a dict of graph input → tensor that may hold unused inputs, and assign a
            list of tensors to ``outputs``. Empty if the backend has no code for that.
        imports: Import lines, as in `ExportSnippet`.
        packages: Distributions whose versions matter.
    """

    load: tuple[str, ...]
    run: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


def numpy_exchange(raw: bool) -> tuple[str, str, tuple[str, ...]]:
    """Return expressions that convert tensors to NumPy arrays and back; they need ``import numpy as np``.

    Args:
        raw: Whether bfloat16 occurs; the expressions then need ``from ml_dtypes import bfloat16``.

    Returns:
        The array of the graph input ``i``, the tensor of the output ``o``, and lines that must precede these
        expressions.
    """
    if not raw:
        return "inputs[i.name].contiguous().numpy()", "torch.as_tensor(np.asarray(o))", ()
    helpers = (
        "def as_numpy(t):",
        "    return t.view(torch.int16).numpy().view(bfloat16) if t.dtype == torch.bfloat16 else t.numpy()",
        "def as_torch(a):",
        "    is_raw = a.dtype == bfloat16",
        "    return torch.as_tensor(a.astype('f4')).bfloat16() if is_raw else torch.as_tensor(a)",
    )
    return "as_numpy(inputs[i.name].contiguous())", "as_torch(np.asarray(o))", helpers
