"""Names of ONNX Runtime's graph optimisations, by which a session can disable them and its log names them.

ONNX Runtime does not list them anywhere. A name that the installed version does not know has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: Rewrite rules of single nodes; the log names only the transformer that applies them all.
ORT_RULES: tuple[str, ...] = (
    *("EliminateIdentity", "EliminateSlice", "EliminateDropout", "NoopElimination", "ExpandElimination"),
    *("CastElimination", "CastChainElimination", "UnsqueezeElimination", "PreShapeNodeElimination"),
    *("DivMulFusion", "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion"),
    *("ConvAddFusion", "ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion"),
    *("LabelEncoderFusion", "ClipQuantRewrite", "ReluQuantRewrite"),
)
#: Name in the log of a transformer that applies such rules.
RULE_TRANSFORMER = "RuleBasedTransformer"
_LATE_RULES = ("ClipQuantRewrite", "ReluQuantRewrite")
#: Such a transformer, by its level → its rules.
RULE_LEVELS: Mapping[str, Sequence[str]] = {
    f"Level1_{RULE_TRANSFORMER}": tuple(rule for rule in ORT_RULES if rule not in _LATE_RULES),
    f"Level2_{RULE_TRANSFORMER}": (*_LATE_RULES, "GemmTransposeFusion"),
}
#: Values for `disabled_optimizers` of `onnxruntime.InferenceSession`.
ORT_PASSES: tuple[str, ...] = (
    *ORT_RULES,
    *("ConstantFolding", "CommonSubexpressionElimination", "ConstantSharing", "TransposeOptimizer"),
    *("ReshapeFusion", "MatMulAddFusion"),
    *("GeluFusionL1", "GeluFusionL2", "LayerNormFusionL1", "LayerNormFusionL2"),
    *("SimplifiedLayerNormFusion", "SkipLayerNormFusion", "BiasSkipLayerNormFusion", "FastGeluFusion"),
    *("QuickGeluFusion", "BiasGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion", "AttentionFusion"),
    *("GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion", "EmbedLayerNormFusion"),
    *("GatherSliceToSplitFusion", "GatherToSliceFusion", "SliceConcatToSpaceToDepthFusion"),
    *("MatmulTransposeFusion", "MatMulScaleFusion", "MatMulActivationFusion", "GemmActivationFusion"),
    *("ConvActivationFusion", "ConvAddActivationFusion", "MatMulIntegerToFloatFusion"),
    *("DynamicQuantizeMatMulFusion", "MatMulNBitsFusion", "DQMatMulNBitsFusion"),
    *("MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion", "MatMulNBitsQLoRAFusion", "ConstantFoldingDQ"),
    *("QDQPropagationTransformer", "QDQSelectorActionTransformer", "QDQFinalCleanupTransformer"),
    *("QDQS8ToU8Transformer", "Avx2WeightS8ToU8Transformer", "NchwcTransformer", "NhwcTransformer"),
    *("EnsureUniqueDQForNodeUnit", "DoubleQDQPairsRemover", "WeightBiasQuantization", "WhereDummyDq"),
    # The last of these two removes casts from models in any case: it cannot be disabled.
    *("FreeDimensionOverrideTransformer", "RemoveDuplicateCastTransformer", "CastFloat16Transformer"),
    *("FuseFp16InitializerToFp32NodeTransformer", "TransposeOptimizer_CPUExecutionProvider", "SwiGluFusion"),
)

_CUDA_ONLY = "for CUDA only"
_NEEDS_OPTION = "needs a session option"
_NEEDS_INTEGER_PRODUCT = "looks for MatMulInteger, which exporters do not emit"
_WEBGPU_ONLY = "for WebGPU only"
#: Passes that change no exported PyTorch program on the CPU, with the reason
#: (onnxruntime/core/optimizer/graph_transformer_utils.cc, bias_softmax_fusion.cc). Those that look for operators which
#: exporters do not emit change drawn graphs.
NOT_ON_CPU: Mapping[str, str] = {
    **dict.fromkeys(("BiasDropoutFusion", "GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion"), _CUDA_ONLY),
    **dict.fromkeys(("BiasSoftmaxFusion", "SwiGluFusion"), _CUDA_ONLY),
    "MatMulActivationFusion": "for DirectML only",
    **dict.fromkeys(("FreeDimensionOverrideTransformer", "Avx2WeightS8ToU8Transformer"), _NEEDS_OPTION),
    **dict.fromkeys(("CastChainElimination", "QDQFinalCleanupTransformer", "DQMatMulNBitsFusion"), _NEEDS_OPTION),
    **dict.fromkeys(("MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion"), _NEEDS_INTEGER_PRODUCT),
    **dict.fromkeys(("MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion", "MatMulNBitsQLoRAFusion"), _WEBGPU_ONLY),
    "ConstantFoldingDQ": "for TensorRT only",
    "MatMulNBitsFusion": "looks for MatMulNBits, which exporters do not emit",
    "LabelEncoderFusion": "for operators of ai.onnx.ml",
    "GemmSumFusion": "looks for Sum, which exporters do not emit",
    "EliminateDropout": "exporters emit no Dropout in evaluation mode",
}

#: A transformer that has changed the graph: "GraphTransformer GeluFusionL1 modified: 1 with status: OK".
_CHANGED = re.compile(r"GraphTransformer (\S+) modified: 1\b")


def changing_transformers(log: str) -> tuple[str, ...]:
    """Return the transformers that a session's log at level INFO says have changed the graph, each once."""
    return tuple(dict.fromkeys(_CHANGED.findall(log)))
