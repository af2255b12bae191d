"""Models of well-known packages, made small and with random weights; nothing is downloaded.

Each entry is a name, what it is for, and a function that gives a module with its example inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

#: Module, positional and keyword arguments.
Made = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]

_TIMM = """
resnet18 resnetv2_50 resnext50_32x4d seresnet18 res2net50_26w_4s ecaresnet26t convnext_atto
convnextv2_atto mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small efficientnet_b0
efficientnetv2_rw_t tf_efficientnet_lite0 regnetx_002 regnety_002 densenet121 dla34 vgg11_bn
hrnet_w18_small ghostnet_050 mixnet_s mnasnet_small rexnet_100 repvgg_a0 cspresnet50 nf_regnet_b0
dm_nfnet_f0 xception41 inception_v4 vit_tiny_patch16_224 deit_tiny_patch16_224 beit_base_patch16_224
eva02_tiny_patch14_224 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 cait_xxs24_224
xcit_nano_12_p16_224 levit_128s mixer_s32_224 resmlp_12_224 gmlp_ti16_224 poolformer_s12 pvt_v2_b0
maxvit_nano_rw_256 coatnet_nano_rw_224 mobilevit_xxs edgenext_xx_small efficientformer_l1 fastvit_t8
focalnet_tiny_srf crossvit_tiny_240 twins_pcpvt_small tnt_s_patch16_224 volo_d1_224 visformer_tiny
davit_tiny hiera_tiny_224 tiny_vit_5m_224 nest_tiny_jx convmixer_768_32 pit_ti_224 sequencer2d_s
repghostnet_050 starnet_s1
"""
_TORCHVISION = """
alexnet squeezenet1_1 shufflenet_v2_x0_5 googlenet mobilenet_v3_small swin_t
segmentation:lraspp_mobilenet_v3_large segmentation:deeplabv3_mobilenet_v3_large
segmentation:fcn_resnet50 video:r3d_18 optical_flow:raft_small
"""
_WORDS, _LENGTH = 99, 12
_SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_heads"), 4),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("vocab_size",), _WORDS),
}
#: Model type of transformers → head, and what else its configuration needs.
_TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("SequenceClassification", {}),
    "roberta": ("TokenClassification", {}),
    "distilbert": ("QuestionAnswering", {}),
    "albert": ("MaskedLM", {"embedding_size": 16}),
    "electra": ("SequenceClassification", {"embedding_size": 16}),
    "deberta-v2": (
        "SequenceClassification",
        {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    ),
    "mpnet": ("MaskedLM", {}),
    "xlnet": ("SequenceClassification", {"d_inner": 64}),
    "big_bird": ("MaskedLM", {"attention_type": "original_full"}),
    "longformer": ("MaskedLM", {"attention_window": 8}),
    "fnet": ("MaskedLM", {}),
    "modernbert": (
        "MaskedLM",
        {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "gpt2": ("CausalLM", {}),
    "gpt_neo": ("CausalLM", {"attention_types": [[["global", "local"], 1]], "num_layers": 2}),
    "gpt_neox": ("CausalLM", {}),
    "opt": ("CausalLM", {"word_embed_proj_dim": 32}),
    "bloom": ("CausalLM", {}),
    "falcon": ("CausalLM", {}),
    "llama": ("CausalLM", {"num_key_value_heads": 2}),
    "mistral": ("CausalLM", {"num_key_value_heads": 2}),
    "mixtral": ("CausalLM", {"num_key_value_heads": 2, "num_local_experts": 4}),
    "qwen2": ("CausalLM", {"num_key_value_heads": 2}),
    "qwen3": ("CausalLM", {"num_key_value_heads": 2, "head_dim": 8}),
    "gemma2": ("CausalLM", {"num_key_value_heads": 2, "head_dim": 8}),
    "phi3": ("CausalLM", {"num_key_value_heads": 2, "pad_token_id": 0}),
    "mamba": ("CausalLM", {"state_size": 4}),
    "rwkv": ("CausalLM", {"attention_hidden_size": 32}),
    "t5": ("Seq2SeqLM", {"d_kv": 8}),
    "bart": ("Seq2SeqLM", {}),
    "pegasus": ("Seq2SeqLM", {}),
    "marian": ("Seq2SeqLM", {"pad_token_id": 0, "decoder_start_token_id": 0}),
}
_IMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ImageClassification", {}),
    "dinov2": ("ImageClassification", {"patch_size": 16}),
    "segformer": (
        "SemanticSegmentation",
        {"hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 32},
    ),
    "detr": (
        "ObjectDetection",
        {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
    ),
    "yolos": ("ObjectDetection", {"image_size": [64, 64], "num_detection_tokens": 5}),
    "rt_detr": ("ObjectDetection", {"num_queries": 20}),
    "deformable_detr": ("ObjectDetection", {}),
    "dpt": (
        "DepthEstimation",
        {
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 16, 32, 32],
            "fusion_hidden_size": 32,
            "image_size": 64,
        },
    ),
    "swin2sr": (
        "ImageToImage",
        {"embed_dim": 24, "depths": [2], "num_heads": [2], "image_size": 32, "window_size": 4},
    ),
    "mobilevit": ("SemanticSegmentation", {}),
    "upernet": ("SemanticSegmentation", {}),
}
_AUDIO: dict[str, tuple[str, dict[str, Any]]] = {
    "wav2vec2": ("CTC", {}),
    "hubert": ("CTC", {}),
    "wavlm": ("AudioClassification", {}),
    "audio-spectrogram-transformer": ("AudioClassification", {"max_length": 64, "num_mel_bins": 32}),
    "whisper": (
        "SpeechSeq2Seq",
        {
            "max_source_positions": 50,
            "num_mel_bins": 16,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
    ),
    "encodec": ("", {"num_filters": 4, "hidden_size": 16, "codebook_dim": 16, "codebook_size": 32}),
    "vits": ("TextToWaveform", {}),
    "clap": ("", {}),
}
#: Those that are also run in a half precision, as they are deployed.
_HALVES = {
    "timm/resnet18": torch.float16,
    "timm/vit_tiny_patch16_224": torch.float16,
    "timm/convnext_atto": torch.bfloat16,
    "transformers/bert": torch.float16,
    "transformers/t5": torch.bfloat16,
    "transformers/llama": torch.bfloat16,
    "transformers/mistral": torch.float16,
    "transformers/qwen2": torch.bfloat16,
    "transformers/gpt2": torch.float16,
    "transformers/mixtral": torch.bfloat16,
    "transformers/whisper": torch.float16,
    "diffusers/UNet2DConditionModel": torch.float16,
    "diffusers/AutoencoderKL": torch.float16,
    "diffusers/DiTTransformer2DModel": torch.bfloat16,
}


@dataclass(frozen=True)
class UsedModel:
    """A model whose calls are counted; `kind` is what it is for."""

    name: str
    kind: str
    make: Callable[[], Made]


def used_models() -> Iterator[UsedModel]:
    """All models of the packages, those in half precision after the others."""
    found = list(_all())
    yield from found
    by_name = {one.name: one for one in found}
    for name, dtype in _HALVES.items():
        word = str(dtype).removeprefix("torch.")
        yield UsedModel(f"{name} {word}", by_name[name].kind, partial(_half, by_name[name].make, dtype))


def _all() -> Iterator[UsedModel]:
    for name in _TIMM.split():
        yield UsedModel(f"timm/{name}", "vision", partial(_timm, name))
    for name in _TORCHVISION.split():
        kind, _, short = name.rpartition(":")
        yield UsedModel(f"torchvision/{short}", kind or "vision", partial(_torchvision, short, kind))
    for name, (head, more) in _TEXT.items():
        yield UsedModel(f"transformers/{name}", "text", partial(_text, name, head, more))
    for name, (head, more) in _IMAGES.items():
        kind = {"ObjectDetection": "detection", "SemanticSegmentation": "segmentation"}.get(head, "vision")
        yield UsedModel(f"transformers/{name}", kind, partial(_image, name, head, more))
    for name, (head, more) in _AUDIO.items():
        yield UsedModel(f"transformers/{name}", "audio", partial(_audio, name, head, more))
    for name in ("clip", "siglip"):
        yield UsedModel(f"transformers/{name}", "image and text", partial(_image_and_text, name))
    for name in _DIFFUSION:
        yield UsedModel(f"diffusers/{name}", "diffusion", partial(_diffusion, name))
    for name in ("Unet", "FPN", "DeepLabV3Plus", "PSPNet", "MAnet"):
        yield UsedModel(f"segmentation_models_pytorch/{name}", "segmentation", partial(_segmentation, name))
    for name in ("UNet", "SwinUNETR", "SegResNet"):
        yield UsedModel(f"monai/{name}", "medical", partial(_medical, name))


def _half(make: Callable[[], Made], dtype: torch.dtype) -> Made:
    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    module, args, kwargs = make()
    return module.to(dtype), tuple(map(cast, args)), {name: cast(value) for name, value in kwargs.items()}


def _timm(name: str) -> Made:
    import timm

    module = timm.create_model(name, pretrained=False)
    return module, (torch.randn(1, *module.default_cfg["input_size"]),), {}


def _torchvision(name: str, kind: str) -> Made:
    from torchvision.models import get_model

    weights = {"weights": None, "weights_backbone": None} if kind == "segmentation" else {"weights": None}
    module = get_model(name, **weights)
    if kind == "video":
        return module, (torch.randn(1, 3, 4, 32, 32),), {}
    if kind == "optical_flow":
        return module, (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)), {"num_flow_updates": 2}
    return module, (torch.randn(1, 3, 96, 96),), {}


def _configuration(name: str, more: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    other_names = getattr(kind, "attribute_map", {})
    known = kind().to_dict() | other_names
    small = {key: value for key, value in _SMALL.items() if key in known and other_names.get(key) not in more}
    return kind(**small | more)


def _headed(name: str, head: str, more: dict[str, Any]) -> torch.nn.Module:
    import transformers

    auto = getattr(transformers, f"AutoModelFor{head}" if head else "AutoModel")
    module: torch.nn.Module = auto.from_config(_configuration(name, more))
    return module


def _text(name: str, head: str, more: dict[str, Any]) -> Made:
    words = torch.randint(3, _WORDS, (2, _LENGTH))
    mask = torch.ones_like(words)
    mask[1, 9:] = 0
    given = {"input_ids": words, "attention_mask": mask}
    if head == "Seq2SeqLM":
        given["decoder_input_ids"] = words[:, :5]
    if name == "fnet":
        del given["attention_mask"]
    return _headed(name, head, more), (), given


def _image(name: str, head: str, more: dict[str, Any]) -> Made:
    module = _headed(name, head, more)
    size = getattr(module.config, "image_size", None)
    size = size if isinstance(size, int) else 160
    channels = getattr(module.config, "num_channels", 3)
    return module, (), {"pixel_values": torch.randn(1, channels, size, size)}


def _audio(name: str, head: str, more: dict[str, Any]) -> Made:
    module = _headed(name, head, more)
    if name == "whisper":
        return (
            module,
            (),
            {"input_features": torch.randn(1, 16, 100), "decoder_input_ids": torch.tensor([[1, 2, 3]])},
        )
    if name == "audio-spectrogram-transformer":
        return module, (), {"input_values": torch.randn(1, 64, 32)}
    if name == "encodec":
        return module, (), {"input_values": torch.randn(1, 1, 3200)}
    if name == "vits":
        return module, (), {"input_ids": torch.randint(1, 30, (1, _LENGTH))}
    if name == "clap":
        words = torch.randint(3, _WORDS, (2, _LENGTH))
        return module, (), {"input_ids": words, "input_features": torch.randn(2, 1, 256, 64)}
    return module, (), {"input_values": torch.randn(1, 4000)}


def _image_and_text(name: str) -> Made:
    from transformers import CONFIG_MAPPING, AutoModel

    part = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = CONFIG_MAPPING[name](
        text_config={**part, "vocab_size": _WORDS}, vision_config={**part, "image_size": 64, "patch_size": 16}
    )
    words = torch.randint(3, _WORDS, (2, _LENGTH))
    return AutoModel.from_config(config), (), {"input_ids": words, "pixel_values": torch.randn(2, 3, 64, 64)}


_STEP = torch.tensor([10])
_DIFFUSION: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "UNet2DModel": (
        {"sample_size": 16, "block_out_channels": (32, 64),
         "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
         "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
        {"sample": torch.zeros(1, 3, 16, 16), "timestep": _STEP},
    ),
    "UNet2DConditionModel": (
        {"sample_size": 16, "block_out_channels": (32, 64),
         "cross_attention_dim": 32, "attention_head_dim": 8,
         "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
         "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")},
        {"sample": torch.zeros(1, 4, 16, 16), "timestep": _STEP,
         "encoder_hidden_states": torch.zeros(1, 7, 32)},
    ),
    "AutoencoderKL": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        {"sample": torch.zeros(1, 3, 32, 32)},
    ),
    "VQModel": (
        {"block_out_channels": (32, 64), "down_block_types": ("DownEncoderBlock2D",) * 2,
         "up_block_types": ("UpDecoderBlock2D",) * 2},
        {"sample": torch.zeros(1, 3, 32, 32)},
    ),
    "DiTTransformer2DModel": (
        {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "sample_size": 8},
        {"hidden_states": torch.zeros(1, 4, 8, 8), "timestep": _STEP, "class_labels": torch.tensor([3])},
    ),
    "SD3Transformer2DModel": (
        {"sample_size": 8, "num_layers": 2, "attention_head_dim": 8, "num_attention_heads": 4,
         "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 16,
         "pos_embed_max_size": 8},
        {"hidden_states": torch.zeros(1, 16, 8, 8), "encoder_hidden_states": torch.zeros(1, 7, 32),
         "pooled_projections": torch.zeros(1, 16), "timestep": _STEP},
    ),
    "FluxTransformer2DModel": (
        {"in_channels": 16, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
         "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 16,
         "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": torch.zeros(1, 16, 16), "encoder_hidden_states": torch.zeros(1, 7, 32),
         "pooled_projections": torch.zeros(1, 16), "timestep": torch.tensor([1.0]),
         "img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(7, 3)},
    ),
}  # fmt: skip


def _diffusion(name: str) -> Made:
    import diffusers

    options, given = _DIFFUSION[name]
    drawn = {key: torch.randn_like(v) if v.ndim > 1 and "ids" not in key else v for key, v in given.items()}
    return getattr(diffusers, name)(**options), (), drawn


def _segmentation(name: str) -> Made:
    import segmentation_models_pytorch

    module = getattr(segmentation_models_pytorch, name)("mobilenet_v2", encoder_weights=None)
    return module, (torch.randn(1, 3, 64, 64),), {}


def _medical(name: str) -> Made:
    from monai.networks import nets

    options: dict[str, dict[str, Any]] = {
        "UNet": {
            "spatial_dims": 3,
            "in_channels": 1,
            "out_channels": 2,
            "channels": (4, 8, 16),
            "strides": (2, 2),
        },
        "SwinUNETR": {"in_channels": 1, "out_channels": 2, "feature_size": 12, "spatial_dims": 2},
        "SegResNet": {"spatial_dims": 3, "in_channels": 1, "out_channels": 2, "init_filters": 8},
    }
    size = (64, 64) if name == "SwinUNETR" else (16, 16, 16)
    return getattr(nets, name)(**options[name]), (torch.randn(1, 1, *size),), {}
