"""Tables looked up by index: embeddings, bags of embeddings, one-hot encoding."""

from __future__ import annotations

from typing import Any

from harness.compare.judge import EXACT, Judge, anything
from harness.core.dtypes import ALL, FLOATS
from harness.generate.draw import OMIT, Draw, between, index_into
from harness.generate.operator_case import Arguments, Family

ops = Family("embedding")


@ops.case("embedding", dtypes=ALL, judge=EXACT)
def embedding(d: Draw) -> Arguments:
    rows = d.size(1, 17)
    return {
        "weight": d.tensor((rows, d.size(high=9))),
        "indices": d.tensor(d.shape(), d.choose("int64", "int32"), index_into(rows)),
        "padding_idx": d.maybe(lambda: d.integer(-1, rows - 1)),
        "scale_grad_by_freq": d.maybe(d.boolean),
        "sparse": d.maybe(d.boolean),
    }


def _bags(d: Draw, *, contiguous: bool = False) -> tuple[int, dict[str, Any]]:
    """Bags, some empty, as offsets into a list of indices; the kernel's other outputs serve autograd."""
    rows, count, bags = d.size(1, 9), d.size(1, 9), d.integer(1, 5)
    mode = d.choose(0, 1, 2)
    index = d.choose("int64", "int32")
    last = d.boolean()
    weighted = mode == 0 and d.boolean()
    return rows, {
        "weight": d.tensor((rows, d.size(1, 9))),
        "indices": d.tensor((count,), index, index_into(rows), contiguous=contiguous),
        "offsets": d.tensor((bags + last,), index, ("offsets", count, int(last)), contiguous=True),
        "mode": mode,
        "per_sample_weights": d.tensor((count,)) if weighted else None,
        "include_last_offset": last,
    }


#: Only the first output is of use in inference; which scratch the others hold is the kernel's affair.
BAGS = Judge(accumulates=True, rules={1: anything, 2: anything, 3: anything})


@ops.case("embedding_bag", dtypes=FLOATS, judge=BAGS)
def embedding_bag(d: Draw) -> Arguments:
    _, arguments = _bags(d)
    return {**arguments, "scale_grad_by_freq": d.choose(OMIT, False), "sparse": d.choose(OMIT, False)}


@ops.case("_embedding_bag", "_embedding_bag_forward_only", dtypes=FLOATS, judge=BAGS)
def embedding_bag_kernel(d: Draw) -> Arguments:
    # The kernel reads the indices as if they lay side by side; `embedding_bag` sees to it.
    rows, arguments = _bags(d, contiguous=True)
    return {**arguments, "padding_idx": d.maybe(lambda: d.integer(-1, rows - 1))}


@ops.case("embedding_bag.padding_idx", dtypes=FLOATS, judge=BAGS)
def embedding_bag_padded(d: Draw) -> Arguments:
    rows, arguments = _bags(d)
    padding = d.choose(None, d.integer(-rows, rows - 1), d.integer(-rows, rows - 1))
    return {**arguments, "scale_grad_by_freq": False, "sparse": False, "padding_idx": padding}


@ops.case("one_hot", dtypes=("int64",), judge=EXACT)
def one_hot(d: Draw) -> Arguments:
    classes = d.size(1, 9)
    # How many classes there are may be left to the values: an output whose shape depends on data.
    number = d.choose(classes, classes, classes + 3, OMIT, -1)
    shape = d.shape()
    if 0 in shape:
        number = classes
    return {"self": d.tensor(shape, domain=index_into(classes)), "num_classes": number}


@ops.case("embedding_renorm", dtypes=FLOATS)
def embedding_renorm(d: Draw) -> Arguments:
    rows = d.size(1, 9)
    return {
        "self": d.tensor((rows, d.size(1, 17)), domain=between(-4.0, 4.0)),
        "indices": d.tensor(d.shape(max_size=5), d.choose("int64", "int32"), index_into(rows)),
        "max_norm": d.choose(1.0, 0.5, 3.0, 100.0),
        "norm_type": d.choose(2.0, 1.0, 3.0, float("inf")),
    }
