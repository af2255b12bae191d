"""What may be wrong at a place: the closed set of faults of root causes, as stable ids.

What each means is said to people by `harness.present.words.FAULTS`.
"""

from __future__ import annotations

#: What a comparison finds wrong with elements.
OF_VALUES = frozenset({"values", "nan-positions", "infinities", "sign-of-zero"})
#: What is wrong with the shape of a result.
OF_SHAPE = frozenset({"shape", "unfit-shapes", "too-few-dimensions", "too-many-dimensions", "emptied"})
#: Of a backend's kernel, by its operator's definition.
OF_KERNEL = frozenset(
    {
        *("wrong-without-elements", "wrong-dtype", "wrong-shape", "wrong-truth-values", "wrong-integers"),
        *("wrong-complex-numbers", "makes-nan", "kernel-loses-nan", "makes-infinities", "loses-infinities"),
        *("loses-sign-of-zero", "flushes-small-numbers", "inexact", "inexact-float64", "float64-in-float32"),
        *("wrong-numbers", "number-of-results"),
    }
)
#: Of a converter.
OF_CONVERTER = frozenset(
    {
        *("no-conversion", "computes-in-another-dtype", "larger-dtype", "undefined-dtype", "loses-nan"),
        *(
            "as-exact-as-float32",
            "leaves-range",
            "ignores-argument",
            "rests-on-open-question",
            "constant-result",
        ),
        *("scalars-as-numbers", "no-dimensions", "integer-division-by-zero", "wrong-list-length"),
        *("unfit-inputs", "asks-unfit", "leaves-16-bits-in-float32", "unknown-alias", "no-bool-as-number"),
        "no-such-overload",
    }
)
FAULTS = frozenset(
    {
        *(*OF_VALUES, *OF_SHAPE, *OF_KERNEL, *OF_CONVERTER),
        # Of any: the specification leaves it open; a runtime or exporter says it in words of its own, which
        # `Detail.symptom` has; an ending without words.
        *("left-open", "fails", "no-kernel", "dtype", "count", "crash", "timeout"),
    }
)

#: What `harness.compare.problem_kinds` calls a problem → its fault. Small numbers that become zero are wrong
#: like others, and large ones that become infinite like infinities.
OF_PROBLEM = {
    "number of outputs": "count",
    "dtype": "dtype",
    "shape": "shape",
    "values": "values",
    "NaN positions": "nan-positions",
    "infinities": "infinities",
    "overflow to infinity": "infinities",
    "subnormals flushed to zero": "values",
    "sign of zero": "sign-of-zero",
}
