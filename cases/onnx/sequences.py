"""Sequences, optional values, strings and random numbers."""

from __future__ import annotations

from typing import Any

from harness.core.onnx_arrays import STRING, element_type
from harness.core.onnx_operators import text_type
from harness.generate.draw import OMIT, Draw, between
from harness.generate.onnx_case import OnnxFamily
from harness.generate.operator_case import Arguments

ops = OnnxFamily("sequences")


def _elements(d: Draw, least: int = 1) -> list[Any]:
    shape = d.shape(min_rank=1, max_rank=3, max_size=4)
    return [d.tensor(shape) for _ in range(d.choose(2, 1, 3) if least < 2 else d.choose(2, 3))]


@ops.case("SequenceConstruct")
def construct(d: Draw) -> Arguments:
    return {"inputs": _elements(d)}


@ops.case("SequenceAt")
def element_at(d: Draw) -> Arguments:
    elements = _elements(d)
    return {"input_sequence": elements, "position": d.integer(-len(elements), len(elements) - 1)}


@ops.case("SequenceErase")
def erase(d: Draw) -> Arguments:
    elements = _elements(d, least=2)
    return {"input_sequence": elements, "position": d.maybe(lambda: d.integer(-len(elements), len(elements) - 1))}


@ops.case("SequenceInsert")
def insert(d: Draw) -> Arguments:
    elements = _elements(d)
    position = d.maybe(lambda: d.integer(-len(elements), len(elements)))
    return {"input_sequence": elements, "tensor": d.tensor(elements[0].shape), "position": position}


@ops.case("SequenceLength")
def length(d: Draw) -> Arguments:
    return {"input_sequence": _elements(d)}


@ops.case("SequenceEmpty")
def empty(d: Draw) -> Arguments:
    return {"dtype": d.maybe(lambda: element_type(d.choose("float32", "int64", "bool", "float16")))}


@ops.case("ConcatFromSequence")
def concat_sequence(d: Draw) -> Arguments:
    elements = _elements(d)
    rank = len(elements[0].shape)
    new = d.flag()
    return {"input_sequence": elements, "axis": d.integer(-rank, rank if new == 1 else rank - 1), "new_axis": new}


@ops.case("SplitToSequence")
def split_to_sequence(d: Draw) -> Arguments:
    shape = list(d.shape(min_rank=1, max_rank=3, min_size=1, max_size=4))
    axis = d.dim(len(shape))
    count = d.choose(2, 1, 3)
    shape[axis] = 2 * count
    split = d.choose(OMIT, 2, [2] * count)
    return {"input": d.tensor(shape), "axis": axis, "split": split, "keepdims": d.flag() if split is OMIT else OMIT}


@ops.case("SequenceMap")
def sequence_map(d: Draw) -> Arguments:
    elements = [d.tensor((2,), "float32") for _ in range(d.choose(2, 1, 3))]
    kind = text_type("float32")
    body = f"body ({kind}[2] x) => ({kind}[2] y) {{ y = {d.choose('Add(x, x)', 'Neg(x)', 'Mul(x, x)')} }}"
    return {"input_sequence": elements, "body": body, "outputs": 1}


@ops.case("Optional")
def optional(d: Draw) -> Arguments:
    return {"input": d.any_tensor()}


@ops.case("OptionalGetElement", "OptionalHasElement")
def optional_element(d: Draw) -> Arguments:
    return {"input": d.any_tensor()}


@ops.case("StringConcat", strings=True)
def string_concat(d: Draw) -> Arguments:
    return d.operands("X", "Y")


@ops.case("StringSplit", strings=True)
def string_split(d: Draw) -> Arguments:
    return {
        "X": d.tensor(d.shape(max_rank=2, max_size=4, min_size=1)),
        "delimiter": d.choose(OMIT, " ", "a", ""),
        "maxsplit": d.choose(OMIT, 1, 2),
        "outputs": 2,
    }


@ops.case("StringNormalizer", strings=True)
def string_normalizer(d: Draw) -> Arguments:
    return {
        "X": d.tensor(d.choose((3,), (1, 3), (5,)), STRING),
        "case_change_action": d.choose(OMIT, "NONE", "LOWER", "UPPER"),
        "is_case_sensitive": d.flag(),
        "stopwords": d.choose(OMIT, ["a"], ["A", "ab"]),
    }


@ops.case("RegexFullMatch", strings=True)
def regex(d: Draw) -> Arguments:
    return {"X": d.tensor(d.shape(max_size=5)), "pattern": d.choose("a", "[a-z]*", ".*", "A|b", r"\s+", "")}


@ops.case("TfIdfVectorizer")
def tf_idf(d: Draw) -> Arguments:
    dtype = d.dtype if d.dtype in ("int64", "int32") else "int64"
    return {
        "X": d.tensor(d.choose((6,), (2, 5), (1,)), dtype, ("range", 0, 7)),
        "max_gram_length": d.choose(2, 1),
        "min_gram_length": 1,
        "max_skip_count": d.choose(0, 1, 5),
        "mode": d.choose("TF", "IDF", "TFIDF"),
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 6, 6, 7],
        "weights": d.choose(OMIT, [1.0, 0.5, 2.0, 1.0, 3.0, 1.0, 0.25]),
    }


def _float_type(d: Draw) -> Any:
    return d.maybe(lambda: element_type(d.choose("float32", "float64", "float16")))


@ops.case("RandomNormal")
def random_normal(d: Draw) -> Arguments:
    return {
        "shape": list(d.shape(max_size=5)),
        "dtype": _float_type(d),
        "mean": d.choose(OMIT, 1.0),
        "scale": d.choose(OMIT, 2.0),
        "seed": d.choose(OMIT, 3.0),
    }


@ops.case("RandomUniform")
def random_uniform(d: Draw) -> Arguments:
    return {
        "shape": list(d.shape(max_size=5)),
        "dtype": _float_type(d),
        "low": d.choose(OMIT, -1.0),
        "high": d.choose(OMIT, 2.0),
        "seed": d.choose(OMIT, 3.0),
    }


@ops.case("RandomNormalLike")
def random_normal_like(d: Draw) -> Arguments:
    return {
        "input": d.any_tensor(),
        "dtype": element_type(d.choose("float32", "float64", "float16")),
        "seed": d.choose(OMIT, 3.0),
    }


@ops.case("RandomUniformLike")
def random_uniform_like(d: Draw) -> Arguments:
    return {
        "input": d.any_tensor(),
        "dtype": element_type(d.choose("float32", "float64", "float16")),
        "seed": d.choose(OMIT, 3.0),
    }


@ops.case("Bernoulli")
def bernoulli(d: Draw) -> Arguments:
    return {
        "input": d.tensor(d.shape(), domain=between(0.0, 1.0)),
        "dtype": d.maybe(lambda: element_type(d.choose("float32", "bool", "int32"))),
        "seed": d.choose(OMIT, 3.0),
    }


@ops.case("Multinomial")
def multinomial(d: Draw) -> Arguments:
    return {
        "input": d.tensor((d.size(1, 3), d.size(1, 4)), domain=between(-2.0, 0.0)),
        "sample_size": d.choose(OMIT, 3),
        "dtype": d.maybe(lambda: element_type(d.choose("int32", "int64"))),
        "seed": d.choose(OMIT, 3.0),
    }
