"""ONNX Runtime's fusions for transformer models by type: ``ort-fusions:bert``.

The optimiser's own passes alone are applied, and none of the runtime's: those are ``ort-basic`` and ``ort-extended``.
It leaves out the import of the domain of its operators, which ONNX Runtime forgives and ONNX's checker does not: the
import is added, since nothing else of such a model could be judged otherwise.
"""

from __future__ import annotations

from functools import partial

import onnx

from harness.convert.transform import TransformEntry, muted_advice, register
from harness.core.plugins import Unavailable, installed_version, missing_package

#: The types of `onnxruntime.transformers.optimizer.MODEL_TYPES`, whose import takes a second.
_TYPES = (
    *("bart", "bert", "bert_tf", "bert_keras", "clip", "conformer", "gpt2", "gpt2_tf", "gpt_neox", "mmdit", "phi"),
    *("qwen3", "sam2", "swin", "t5", "tnlr", "unet", "vae", "vit"),
)

_DOMAIN = "com.microsoft"


def _probe() -> Unavailable | None:
    return missing_package("onnxruntime", "pip install 'aten-onnx-conformance[cpu]'")


def _fuse(model: onnx.ModelProto, *, model_type: str) -> onnx.ModelProto:
    from onnxruntime.transformers.optimizer import optimize_model

    with muted_advice():
        fused: onnx.ModelProto = optimize_model(model, model_type=model_type, opt_level=0).model
    if _DOMAIN not in {imported.domain for imported in fused.opset_import}:
        fused.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return fused


for _type in _TYPES:
    register(
        TransformEntry(
            name=f"ort-fusions:{_type}",
            probe=_probe,
            apply=partial(_fuse, model_type=_type),
            version=lambda: installed_version("onnxruntime", "onnxruntime-gpu"),
        )
    )
