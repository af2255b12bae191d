"""The faults: what is wrong at the place of a defect. The only list of them.

A fault is a stable id of the record. `harness.present.evidence.FAULTS` has a sentence for each.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from harness.compare import problem_kinds


class Fault(StrEnum):
    """A fault; `harness.compare.diagnosis.Detail` has what tells apart several of one kind."""

    # Faults of elements, as a comparison finds them.
    VALUES = "values"
    NAN_POSITIONS = "nan-positions"
    INFINITIES = "infinities"
    SIGN_OF_ZERO = "sign-of-zero"

    # Faults of a result's shape.
    SHAPE = "shape"
    UNFIT_SHAPES = "unfit-shapes"
    TOO_FEW_DIMENSIONS = "too-few-dimensions"
    TOO_MANY_DIMENSIONS = "too-many-dimensions"
    EMPTIED = "emptied"

    # Faults of a backend's kernel, measured by the operator's definition.
    WRONG_WITHOUT_ELEMENTS = "wrong-without-elements"
    WRONG_DTYPE = "wrong-dtype"
    WRONG_SHAPE = "wrong-shape"
    WRONG_TRUTH_VALUES = "wrong-truth-values"
    WRONG_INTEGERS = "wrong-integers"
    WRONG_COMPLEX_NUMBERS = "wrong-complex-numbers"
    MAKES_NAN = "makes-nan"
    KERNEL_LOSES_NAN = "kernel-loses-nan"
    MAKES_INFINITIES = "makes-infinities"
    LOSES_INFINITIES = "loses-infinities"
    WRONG_AT_EXTREMES = "wrong-at-extremes"
    SATURATES_IN_16_BITS = "saturates-in-16-bits"
    LOSES_SIGN_OF_ZERO = "loses-sign-of-zero"
    FLUSHES_SMALL_NUMBERS = "flushes-small-numbers"
    INEXACT = "inexact"
    INEXACT_FLOAT64 = "inexact-float64"
    FLOAT64_IN_FLOAT32 = "float64-in-float32"
    WRONG_NUMBERS = "wrong-numbers"
    NUMBER_OF_RESULTS = "number-of-results"
    INACCURATE = "inaccurate"

    # Faults of a converter.
    NO_CONVERSION = "no-conversion"
    COMPUTES_IN_ANOTHER_DTYPE = "computes-in-another-dtype"
    LARGER_DTYPE = "larger-dtype"
    UNDEFINED_DTYPE = "undefined-dtype"
    LOSES_NAN = "loses-nan"
    AS_EXACT_AS_FLOAT32 = "as-exact-as-float32"
    LEAVES_RANGE = "leaves-range"
    IGNORES_ARGUMENT = "ignores-argument"
    RESTS_ON_OPEN_QUESTION = "rests-on-open-question"
    CONSTANT_RESULT = "constant-result"
    SCALARS_AS_NUMBERS = "scalars-as-numbers"
    NO_DIMENSIONS = "no-dimensions"
    INTEGER_DIVISION_BY_ZERO = "integer-division-by-zero"
    WRONG_LIST_LENGTH = "wrong-list-length"
    UNFIT_INPUTS = "unfit-inputs"
    ASKS_UNFIT = "asks-unfit"
    LEAVES_16_BITS_IN_FLOAT32 = "leaves-16-bits-in-float32"
    UNKNOWN_ALIAS = "unknown-alias"
    NO_BOOL_AS_NUMBER = "no-bool-as-number"
    NO_SUCH_OVERLOAD = "no-such-overload"
    SPECIALISED = "specialised"
    LOSES_CHANGE_IN_PLACE = "loses-change-in-place"

    # Faults of a transform.
    WRONG_STEPS = "wrong-steps"
    UNSORTED = "unsorted"

    # Faults of any component: left open by the specification; an error whose text is the symptom; no kernel; an ending
    # without an error message.
    LEFT_OPEN = "left-open"
    FAILS = "fails"
    NO_KERNEL = "no-kernel"
    DTYPE = "dtype"
    COUNT = "count"
    CRASH = "crash"
    DIES_OF_FORBIDDEN = "dies-of-forbidden"
    TIMEOUT = "timeout"


#: Faults of elements, as a comparison finds them.
VALUE_FAULTS = frozenset({Fault.VALUES, Fault.NAN_POSITIONS, Fault.INFINITIES, Fault.SIGN_OF_ZERO})

#: Kind of problem (`harness.compare.problem_kinds`) → fault. Small numbers flushed to zero count as wrong values, and
#: numbers that overflow as infinities.
PROBLEM_FAULTS = MappingProxyType(
    {
        "number of outputs": Fault.COUNT,
        "dtype": Fault.DTYPE,
        "shape": Fault.SHAPE,
        problem_kinds.VALUES: Fault.VALUES,
        problem_kinds.NAN_POSITIONS: Fault.NAN_POSITIONS,
        problem_kinds.INFINITIES: Fault.INFINITIES,
        problem_kinds.OVERFLOW: Fault.INFINITIES,
        problem_kinds.FLUSHED: Fault.VALUES,
        problem_kinds.ZERO_SIGN: Fault.SIGN_OF_ZERO,
    }
)
