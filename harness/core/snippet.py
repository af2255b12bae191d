"""Code that does without the harness what a converter or a backend does in it.

A script that reproduces a defect is put together from such code (`harness.reproduce`). A converter or backend
that hands out none works like any other; its failures have no script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ExportWanted:
    """What the code of a converter is to export: ``Model()``, a module called with a dict's values.

    Attributes:
        examples: Name of the dict, graph input name → tensor.
        opset: To emit; None for the converter's default.
        dynamic: Graph input → its dimensions that stay dynamic; None for a static export.
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
        """`dynamic` as `torch.export` takes it, as an expression; ``dynamic`` stands for `Dim.DYNAMIC`."""
        shapes = (
            f"{name!r}: {{{', '.join(f'{dim}: dynamic' for dim in dims)}}}"
            for name, dims in (self.dynamic or {}).items()
        )
        return f"{{{', '.join(shapes)}}}"


@dataclass(frozen=True, kw_only=True)
class ExportSnippet:
    """Code of a converter.

    Attributes:
        code: Lines that leave the exported `onnx.ModelProto`, or another artefact, in ``model``.
        imports: Whole lines, beside ``import onnx`` and ``import torch``, which are there anyway.
        packages: Distributions whose versions matter, beside torch and onnx.
    """

    code: tuple[str, ...]
    imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunWanted:
    """What the code of a backend is to run.

    Attributes:
        argument: What follows the colon of the backend's name; "" without one.
        raw: Whether bfloat16 takes part, which NumPy lacks.
        ranges: Dynamic graph input → the smallest and the largest shape that it will have; empty for a static
            model.
        kind: What the converter makes, as `harness.run.artefact` names it.
        arrays: Whether the script does without PyTorch: ``inputs`` has NumPy arrays, and ``outputs`` is to
            have them. Whoever cannot do that ignores it.
    """

    argument: str = ""
    raw: bool = False
    arrays: bool = False
    kind: str = "onnx"
    ranges: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = None


@dataclass(frozen=True, kw_only=True)
class RunSnippet:
    """Code of a backend.

    Attributes:
        load: Lines that prepare ``model``, which for ``callable`` is a module beside ``examples``, a tuple.
        run: Lines that run it on ``inputs``, a dict of graph input name → tensor that may hold more inputs
            than the model, and leave ``outputs``, a list of tensors. Empty where the backend hands out no
            code for that.
        imports: See `ExportSnippet`.
        packages: Names of packages.
    """

    load: tuple[str, ...]
    run: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


def numpy_exchange(raw: bool) -> tuple[str, str, tuple[str, ...]]:
    """How tensors become NumPy arrays and back, for `RunSnippet.run`; wants ``import numpy as np``.

    Args:
        raw: See `RunWanted`; wants ``from ml_dtypes import bfloat16``, too.

    Returns:
        The array of the graph input ``i``, the tensor of the output ``o``, and lines to come before these
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
