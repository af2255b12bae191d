"""Operators that join tensors or take one apart: concatenation, stacking, splitting, grids.

Every value comes out as it went in (promotion to a common dtype apart, which rounds one way only),
so all are judged bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from harness.compare.judge import EXACT
from harness.core.dtypes import ALL
from harness.core.invocation import TensorSpec
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("joining")


def _dim(d: Draw, rank: int, dim: int | None = None) -> tuple[int, Any]:
    """A dimension (`dim`, or any) and how to pass it: negative, or left out where it is the default."""
    chosen = d.dim(rank) % rank if dim is None else dim
    spelled = d.choose(chosen, chosen - rank)
    return chosen, d.choose(spelled, OMIT) if chosen == 0 else spelled


def _varied(d: Draw, shape: Sequence[int], dim: int | None, high: int = 5) -> list[TensorSpec]:
    """One to four tensors of `shape` but for their sizes along `dim`, of dtypes that may differ."""
    parts = []
    for _ in range(d.integer(1, 4)):
        sizes = list(shape)
        if dim is not None:
            sizes[dim] = d.size(0, high)
        parts.append(d.tensor(sizes, d.other_dtype()))
    return parts


@ops.case("cat", "concat", "concatenate", dtypes=ALL, judge=EXACT)
def cat(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim, spelled = _dim(d, len(shape))
    tensors = _varied(d, shape, dim, 9)
    if d.choose(False, False, False, True):
        # An empty 1-d tensor joins with anything, a habit of old that models rely on.
        tensors.insert(d.integer(0, len(tensors)), d.tensor((0,)))
    return {"tensors": tensors, "dim": spelled}


@ops.case("stack", dtypes=ALL, judge=EXACT)
def stack(d: Draw) -> Arguments:
    shape = d.shape()
    return {"tensors": _varied(d, shape, None), "dim": _dim(d, len(shape) + 1)[1]}


@ops.case("hstack", dtypes=ALL, judge=EXACT)
def hstack(d: Draw) -> Arguments:
    shape = d.shape()
    if len(shape) < 2:
        flat = [d.tensor((), d.other_dtype()) for _ in range(d.integer(0, 2))]
        return {"tensors": flat + _varied(d, (1,), 0)}
    return {"tensors": _varied(d, shape, 1)}


@ops.case("vstack", "row_stack", dtypes=ALL, judge=EXACT)
def vstack(d: Draw) -> Arguments:
    shape = d.shape()
    if len(shape) == 0:
        return {"tensors": [d.tensor(d.choose((), (1,)), d.other_dtype()) for _ in range(d.integer(1, 3))]}
    tensors = _varied(d, (1, *shape) if len(shape) == 1 else shape, 0)
    if len(shape) == 1:
        tensors.insert(d.integer(0, len(tensors)), d.tensor(shape))
    return {"tensors": tensors}


@ops.case("dstack", dtypes=ALL, judge=EXACT)
def dstack(d: Draw) -> Arguments:
    shape = d.shape(0, 5)
    tensors = _varied(d, shape, 2 if len(shape) > 2 else None)
    if len(shape) == 2:
        tensors += _varied(d, (*shape, 1), 2)
    return {"tensors": tensors}


@ops.case("column_stack", dtypes=ALL, judge=EXACT)
def column_stack(d: Draw) -> Arguments:
    shape = d.shape()
    if len(shape) < 2:
        return {"tensors": _varied(d, shape, None) + (_varied(d, (*shape, 1), 1) if shape else [])}
    return {"tensors": _varied(d, shape, 1)}


def _one_apart(d: Draw, min_rank: int = 1) -> tuple[list[int], int, Any]:
    """A shape, one of its dimensions and how to pass it."""
    shape = list(d.shape(min_rank))
    dim, spelled = _dim(d, len(shape))
    shape[dim] = d.size(0, 9)
    return shape, dim, spelled


def _portions(d: Draw, total: int) -> list[int]:
    """Sizes, zeros among them, that sum to `total`."""
    cuts = sorted(d.integer(0, total) for _ in range(d.integer(0, 3)))
    return [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]


@ops.case("split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor", dtypes=ALL, judge=EXACT)
def split(d: Draw) -> Arguments:
    shape, dim, spelled = _one_apart(d)
    size = d.size(0 if shape[dim] == 0 else 1, 9)
    return {"self": d.tensor(shape), "split_size": size, "dim": spelled}


def _split_sizes(name: str, d: Draw) -> Arguments:
    shape, dim, spelled = _one_apart(d)
    return {"self": d.tensor(shape), name: _portions(d, shape[dim]), "dim": spelled}


ops.case("split.sizes", dtypes=ALL, judge=EXACT)(partial(_split_sizes, "split_size"))
ops.case(
    *("split.default", "split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes"),
    dtypes=ALL,
    judge=EXACT,
)(partial(_split_sizes, "split_sizes"))


@ops.case("chunk", "unsafe_chunk", dtypes=ALL, judge=EXACT)
def chunk(d: Draw) -> Arguments:
    shape, _, spelled = _one_apart(d)
    return {"self": d.tensor(shape), "chunks": d.integer(1, 6), "dim": spelled}


@ops.case("tensor_split.sections", dtypes=ALL, judge=EXACT)
def tensor_split_sections(d: Draw) -> Arguments:
    shape, _, spelled = _one_apart(d)
    return {"self": d.tensor(shape), "sections": d.integer(1, 6), "dim": spelled}


def _places(d: Draw) -> list[int]:
    """Draw places to split at: in any order, negative, beyond either end."""
    return [d.integer(-10, 10) if d.boolean() else d.integer(0, 5) for _ in range(d.integer(0, 3))]


@ops.case("tensor_split.indices", dtypes=ALL, judge=EXACT)
def tensor_split_indices(d: Draw) -> Arguments:
    shape, _, spelled = _one_apart(d)
    return {"self": d.tensor(shape), "indices": _places(d), "dim": spelled}


@ops.case("tensor_split.tensor_indices_or_sections", dtypes=ALL, judge=EXACT)
def tensor_split_tensor(d: Draw) -> Arguments:
    shape, _, spelled = _one_apart(d)
    # The number decides how many outputs there are, which values that share an export must agree on.
    sections = d.integer(1, 6)
    where = (
        d.tensor((), "int64", between(sections, sections))
        if d.boolean()
        else d.tensor((d.integer(0, 3),), "int64", between(-10, 10))
    )
    return {"self": d.tensor(shape), "tensor_indices_or_sections": where, "dim": spelled}


def _along(dim: int, d: Draw) -> tuple[list[int], int]:
    """A shape and which of its dimensions is the one called horizontal (1), vertical (0) or depth (2)."""
    shape = list(d.shape(max(dim, 1) + (dim != 1)))
    return shape, min(dim, len(shape) - 1)


def _equal_sections(axis: int, d: Draw) -> Arguments:
    shape, dim = _along(axis, d)
    sections = d.integer(1, 4)
    shape[dim] = sections * d.integer(0, 3)
    return {"self": d.tensor(shape), "sections": sections}


def _split_indices(axis: int, d: Draw) -> Arguments:
    return {"self": d.tensor(_along(axis, d)[0]), "indices": _places(d)}


for _axis, _letter in enumerate("vhd"):
    ops.case(f"{_letter}split.int", dtypes=ALL, judge=EXACT)(partial(_equal_sections, _axis))
    ops.case(f"{_letter}split.array", dtypes=ALL, judge=EXACT)(partial(_split_indices, _axis))


@ops.case("unbind.int", "unbind_copy.int", dtypes=ALL, judge=EXACT)
def unbind(d: Draw) -> Arguments:
    shape, dim, spelled = _one_apart(d)
    shape[dim] = max(shape[dim], 1)
    return {"self": d.tensor(shape), "dim": spelled}


def _lines(d: Draw, min_rank: int = 0) -> list[TensorSpec]:
    """One to three tensors of rank 0 or 1."""
    return [d.tensor(d.shape(min_rank, 1, max_size=7 if place else 65)) for place in range(d.integer(1, 3))]


@ops.case("meshgrid", dtypes=ALL, judge=EXACT)
def meshgrid(d: Draw) -> Arguments:
    return {"tensors": _lines(d)}


@ops.case("meshgrid.indexing", dtypes=ALL, judge=EXACT)
def meshgrid_indexing(d: Draw) -> Arguments:
    return {"tensors": _lines(d), "indexing": d.choose("ij", "xy")}


@ops.case("block_diag", dtypes=ALL, judge=EXACT)
def block_diag(d: Draw) -> Arguments:
    count = d.integer(1, 4)
    return {"tensors": [d.tensor(d.shape(0, 2, max_size=17), d.other_dtype()) for _ in range(count)]}


@ops.case("cartesian_prod", dtypes=ALL, judge=EXACT)
def cartesian_prod(d: Draw) -> Arguments:
    return {"tensors": _lines(d, 1)}


@ops.case("combinations", dtypes=ALL, judge=EXACT)
def combinations(d: Draw) -> Arguments:
    number = d.choose(OMIT, 2, 1, 3, 0, 4)
    few = (4, 0, 1, 2, 3, 5, 6, 8, 15)
    return {
        "self": d.tensor((d.choose(*few) if number in (3, 4) else d.choose(*few, 33, 64),)),
        "r": number,
        "with_replacement": d.choose(OMIT, False, True),
    }


@ops.case("_chunk_cat", dtypes=ALL, judge=EXACT)
def chunk_cat(d: Draw) -> Arguments:
    # Sizes before `dim` agree; from there on each tensor is flattened, chunk by chunk, zeros filling the
    # last.
    shape = d.shape(1, 4, min_size=1)
    dim = d.integer(0, len(shape) - 1)
    tensors = [
        d.tensor((*shape[:dim], *(d.size(1, 7) for _ in range(d.integer(1, 3))))) for _ in range(d.integer(1, 4))
    ]
    if len({len(spec.shape) for spec in tensors}) == 1 and d.boolean():
        dim -= len(tensors[0].shape)
    return {"tensors": tensors, "dim": dim, "num_chunks": d.choose(2, 1, 3, 5)}
