"""`executorch`: ExecuTorch's lowering to a ``.pte`` file; `executorch-xnnpack`: the same, with nodes delegated to
XNNPACK.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from harness.convert.converter import ConverterEntry, ExportRequest, UnsupportedOperator, register
from harness.convert.torch_private import quiet
from harness.core.dtypes import Array
from harness.core.plugins import Unavailable, importable, installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.core.torch_arrays import to_numpy, to_torch
from harness.run.artefact import EXECUTORCH, Artefact, PlacedNode

#: The lowering's messages about an operator that it does not know, or that has no kernel for a given output.
_MISSING = re.compile(
    r"Operator torch\._ops\.(?P<core>\S+) is not in Core ATen opset|Missing out variants: \{(?P<out>.*)\}"
)
#: Its messages about strides and dtypes that it does not take.
_LIMIT = "is not supported for ExecuTorch"
#: A dynamic size is planned for up to so many times its example, and so many more.
_TIMES, _MORE = 2, 8


class ExecuTorch:
    """Lowers a captured program through the Edge dialect.

    Args:
        delegates: Whether XNNPACK gets the nodes that it takes.
    """

    def __init__(self, *, delegates: bool) -> None:
        self.name = "executorch-xnnpack" if delegates else "executorch"
        self.version: str = installed_version("executorch")
        self._delegates = delegates

    def convert(self, request: ExportRequest) -> Any:
        """See `harness.convert.converter.Converter`. The content is the bytes of the file.

        ExecuTorch plans memory ahead: a dynamic size has a bound, `_TIMES` its example and `_MORE`.
        """
        with quiet(), torch.no_grad():
            program = request.captured_flat(_most)
            try:
                edge = self._lowered(program)
                lowered = edge.exported_program()
                file = bytes(edge.to_executorch().buffer)
            except Exception as error:
                match = _MISSING.search(str(error))
                if _LIMIT in str(error):
                    raise UnsupportedOperator(str(error)) from None
                if match is None:
                    raise
                if match["core"]:
                    missing = _depending(program, request.output_names, match["core"])
                    raise UnsupportedOperator(f"Operator {match['core']} is not in Core ATen opset", missing) from None
                raise UnsupportedOperator(match[0]) from None
        return Artefact(
            kind=EXECUTORCH,
            input_names=request.input_names,
            output_names=request.output_names,
            content=file,
            examples=request.inputs,
            lowered=partial(_run, lowered, request),
            placed=dict(_placed(lowered, request.output_names, delegates=self._delegates)),
        )

    def keeps_apart(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether a call must be exported alone: the runtime refuses inputs in another memory order."""

        def is_taken(tensor: torch.Tensor) -> bool:
            last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
            return last or tensor.is_contiguous()

        return not all(map(is_taken, inputs))

    def _lowered(self, program: torch.export.ExportedProgram) -> Any:
        from executorch.exir import to_edge, to_edge_transform_and_lower

        if not self._delegates:
            return to_edge(program)
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])


def _most(size: int) -> int:
    return _TIMES * size + _MORE


def _run(program: torch.export.ExportedProgram, request: ExportRequest, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a lowered program, by PyTorch's kernels."""
    like = dict(zip(request.input_names, request.inputs, strict=True))
    tensors = [to_torch(feeds[name], like=tensor) for name, tensor in like.items()]
    with torch.no_grad():
        return [to_numpy(output) for output in program.module()(*tensors)]


def _results(program: torch.export.ExportedProgram, count: int) -> list[Any]:
    """Return the nodes of the user's results, which follow those of tensors that the program changes in place."""
    (results,) = program.graph.output_node().args
    return list(results)[-count:] if count else []


def _dependencies(result: Any) -> Iterator[torch.fx.Node]:
    """Return the nodes that a result depends on."""
    pending, seen = [result], set[torch.fx.Node]()
    while pending:
        node = pending.pop()
        if isinstance(node, torch.fx.Node) and node not in seen:
            seen.add(node)
            yield node
            pending += node.all_input_nodes


def _depending(program: torch.export.ExportedProgram, names: tuple[str, ...], operator: str) -> dict[str, str]:
    """Output name → the operator, for those that depend on it."""
    pairs = zip(names, _results(program, len(names)), strict=True)
    return {name: operator for name, result in pairs if any(str(n.target) == operator for n in _dependencies(result))}


def _placed(
    program: torch.export.ExportedProgram, names: tuple[str, ...], *, delegates: bool
) -> Iterator[tuple[str, list[PlacedNode]]]:
    """Output name → the kernels that it depends on, and whether they are where they should be: in XNNPACK if it may
    have them."""
    for name, result in zip(names, _results(program, len(names)), strict=True):
        nodes: list[PlacedNode] = []
        for node in _dependencies(result):
            target = node.target
            if target is torch.ops.higher_order.executorch_call_delegate:
                module = getattr(program.graph_module, str(node.all_input_nodes[0].target)).original_module
                calls = [n for n in module.graph.nodes if n.op == "call_function"]
                nodes += [PlacedNode(n.name, _name(n.target), True) for n in calls if _is_operator(n.target)]
            elif node.op == "call_function" and _is_operator(target):
                nodes.append(PlacedNode(node.name, _name(target), not delegates))
        yield name, nodes


def _is_operator(target: Any) -> bool:
    return hasattr(target, "_schema")


def _name(target: Any) -> str:
    """Return ``aten.add.Tensor`` for an operator of PyTorch's or of the Edge dialect."""
    return str(target._schema.name).replace("::", ".") + f".{target._schema.overload_name or 'default'}"


def _probe() -> Unavailable | None:
    if importable("executorch"):
        return None
    return Unavailable(reason="executorch is not installed", install="pip install 'aten-onnx-conformance[executorch]'")


def _snippet(wanted: ExportWanted, *, delegates: bool) -> ExportSnippet:
    shapes = ""
    if wanted.dynamic is not None:
        bounded = []
        for name, dims in wanted.dynamic.items():
            size = f"{wanted.examples}[{name!r}].shape"
            bounds = (f"{dim}: dynamic(max={_TIMES} * {size}[{dim}] + {_MORE})" for dim in dims)
            bounded.append(f"{{{', '.join(bounds)}}}")
        shapes = f", dynamic_shapes=({', '.join(bounded)},)"
    lower, imports = "to_edge(program)", ["from executorch.exir import to_edge"]
    if delegates:
        lower = "to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])"
        imports = [
            "from executorch.exir import to_edge_transform_and_lower",
            "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner",
        ]
    return ExportSnippet(
        code=(
            *(("dynamic = torch.export.Dim.DYNAMIC",) if wanted.dynamic is not None else ()),
            f"program = torch.export.export(Model().eval(), {wanted.arguments}{shapes})",
            f"model = {lower}.to_executorch().buffer",
        ),
        imports=tuple(imports),
        packages=("executorch",),
    )


for _place, _delegates in enumerate((False, True)):
    register(
        ConverterEntry(
            name="executorch-xnnpack" if _delegates else "executorch",
            probe=_probe,
            create=lambda public_api, delegates=_delegates: ExecuTorch(delegates=delegates),  # type: ignore[misc]
            version=lambda: installed_version("executorch"),
            summary=f"ExecuTorch's lowering{', delegated to XNNPACK' if _delegates else ''}",
            snippet=partial(_snippet, delegates=_delegates),
            tracker="pytorch/executorch",
            witness=10 + _place,
            opsets=lambda: range(0),
            makes=EXECUTORCH,
            max_batch=8,
        )
    )
