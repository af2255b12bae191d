"""How an ONNX operator's results are judged: choices exactly, sums by their terms, others closely."""

from __future__ import annotations

from collections.abc import Mapping

#: Results are elements of the inputs, or numbers that follow from them without a rounding. The definition is
#: evaluated in the dtypes that the node has, and one answer is right.
EXACT: frozenset[str] = frozenset(
    {
        # Moved or selected.
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Concat"),
        *("Split", "Slice", "Gather", "GatherElements", "GatherND", "Where", "Compress", "Pad", "Trilu"),
        *("DepthToSpace", "SpaceToDepth", "ReverseSequence", "CenterCropPad", "ScatterElements", "ScatterND"),
        *("OneHot", "EyeLike", "ConstantOfShape", "Constant", "Shape", "Size", "NonZero", "Unique"),
        *("SequenceConstruct", "SequenceAt", "SplitToSequence", "ConcatFromSequence", "TensorScatter"),
        *("MaxPool", "GlobalMaxPool", "Max", "Min", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin"),
        *("Clip", "Relu", "BitCast"),
        # Decided, or rounded to a whole number.
        *("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "IsNaN", "IsInf", "Not", "And", "Or", "Xor"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "BitShift"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
        # The rounding is the definition.
        *("Cast", "CastLike"),
    }
)

#: A zero that is copied keeps its sign.
COPIES: frozenset[str] = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Concat"),
        *("Split", "Slice", "Gather", "GatherElements", "GatherND", "Where", "Compress", "Trilu"),
        *("DepthToSpace", "SpaceToDepth", "ReverseSequence", "Neg", "Cast", "CastLike"),
    }
)

#: Sums of products: roundings scale with the sum of the terms' magnitudes.
ACCUMULATING: frozenset[str] = frozenset(
    {
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "ReduceMean", "ReduceSumSquare"),
        *("CumSum", "AveragePool", "GlobalAveragePool", "Sum", "Mean", "Add", "Sub", "ReduceL1", "ReduceL2"),
        *("Col2Im", "DFT", "STFT", "Resize", "GridSample", "LpPool", "RoiAlign"),
    }
)

#: Operator → places of the inputs that say where its terms lie or how many they are, and are none.
PLACING: Mapping[str, frozenset[int]] = {
    "Resize": frozenset({1, 2}),
    "GridSample": frozenset({1}),
    "RoiAlign": frozenset({1}),
}

#: Drawn at random: no single answer is right.
RANDOM: frozenset[str] = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"),
        *("Bernoulli", "Dropout"),
    }
)
