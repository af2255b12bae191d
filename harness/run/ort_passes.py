"""Names of ONNX Runtime's graph optimisations, by which a session can disable them.

ONNX Runtime does not list them anywhere. A name that the installed version does not know has no effect.
"""

from __future__ import annotations

#: Values for `disabled_optimizers` of `onnxruntime.InferenceSession`.
ORT_PASSES: tuple[str, ...] = (
    *("ConstantFolding", "CommonSubexpressionElimination", "ConstantSharing", "TransposeOptimizer"),
    *("EliminateIdentity", "EliminateSlice", "EliminateDropout", "NoopElimination", "ExpandElimination"),
    *("CastElimination", "CastChainElimination", "UnsqueezeElimination", "PreShapeNodeElimination"),
    *("DivMulFusion", "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion"),
    *("ConvAddFusion", "ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion"),
    *("LabelEncoderFusion", "ClipQuantRewrite", "ReluQuantRewrite", "ReshapeFusion", "MatMulAddFusion"),
    *("GeluFusionL1", "GeluFusionL2", "LayerNormFusionL1", "LayerNormFusionL2"),
    *("SimplifiedLayerNormFusion", "SkipLayerNormFusion", "BiasSkipLayerNormFusion", "FastGeluFusion"),
    *("QuickGeluFusion", "BiasGeluFusion", "BiasSoftmaxFusion", "BiasDropoutFusion", "AttentionFusion"),
    *("GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion", "EmbedLayerNormFusion"),
    *("GatherSliceToSplitFusion", "GatherToSliceFusion", "SliceConcatToSpaceToDepthFusion"),
    *("MatmulTransposeFusion", "MatMulScaleFusion", "MatMulActivationFusion", "GemmActivationFusion"),
    *("ConvActivationFusion", "ConvAddActivationFusion", "MatMulIntegerToFloatFusion"),
    *("DynamicQuantizeMatMulFusion", "MatMulNBitsFusion", "DQMatMulNBitsFusion", "ConstantFoldingDQ"),
    *("QDQPropagationTransformer", "QDQSelectorActionTransformer", "QDQFinalCleanupTransformer"),
    *("QDQS8ToU8Transformer", "Avx2WeightS8ToU8Transformer", "NchwcTransformer", "NhwcTransformer"),
    *("FreeDimensionOverrideTransformer", "FuseInitializersTransformer", "RemoveDuplicateCastTransformer"),
)
