"""Architectures of transformers, small and without weights: what `check` says of each, and what the public export does.

    pip install transformers && python ci/architectures.py [NAME ...]
    conformance check ci/architectures.py:llama

Every size that users leave open is open, and inputs share it. An architecture is right where `torch.onnx.export` and
ONNX Runtime give PyTorch's result for the example and at two other sizes. The exit status is 1 where `check` says
something else of one.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers
from torch.export import Dim
from torch.utils import _pytree as pytree

#: A model, its keyword inputs, and by input the names of its open sizes.
Architecture = tuple[torch.nn.Module, Mapping[str, torch.Tensor], Mapping[str, Mapping[int, Dim]]]

#: A result is right within this share of its largest element.
_TOLERANCE = 1e-4
_WORDS, _WIDTH = 50, 32
_COMMON = {"vocab_size": _WORDS, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_TEXT = {**_COMMON, "hidden_size": _WIDTH}
_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_layers": 2, "decoder_layers": 2}
_SEQ2SEQ = {"d_model": _WIDTH, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, **_HEADS}


def _ids(length: int = 7) -> torch.Tensor:
    return torch.randint(3, _WORDS, (2, length))


def _text(model: torch.nn.Module) -> Architecture:
    """A model of tokens and their mask, which share batch and length."""
    open_sizes = {0: Dim("batch"), 1: Dim("length")}
    inputs = {"input_ids": _ids(), "attention_mask": torch.ones(2, 7, dtype=torch.long)}
    return model.eval(), inputs, dict.fromkeys(inputs, open_sizes)


def _encoder_decoder(model: torch.nn.Module) -> Architecture:
    source, target = {0: Dim("batch"), 1: Dim("length")}, {0: Dim("batch"), 1: Dim("target")}
    inputs = {"input_ids": _ids(), "attention_mask": torch.ones(2, 7, dtype=torch.long), "decoder_input_ids": _ids(5)}
    return model.eval(), inputs, {"input_ids": source, "attention_mask": source, "decoder_input_ids": target}


def _image(model: torch.nn.Module) -> Architecture:
    return model.eval(), {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": {0: Dim("batch")}}


def bert() -> Architecture:
    return _text(transformers.BertModel(transformers.BertConfig(**_TEXT)))


def roberta() -> Architecture:
    return _text(transformers.RobertaModel(transformers.RobertaConfig(**_TEXT, pad_token_id=1)))


def distilbert() -> Architecture:
    config = transformers.DistilBertConfig(vocab_size=_WORDS, dim=_WIDTH, n_layers=2, n_heads=2, hidden_dim=64)
    return _text(transformers.DistilBertModel(config))


def electra() -> Architecture:
    return _text(transformers.ElectraModel(transformers.ElectraConfig(**_TEXT, embedding_size=_WIDTH)))


def gpt2() -> Architecture:
    config = transformers.GPT2Config(
        vocab_size=_WORDS, n_positions=64, n_embd=_WIDTH, n_layer=2, n_head=2, use_cache=False
    )
    return _text(transformers.GPT2LMHeadModel(config))


def llama() -> Architecture:
    return _text(transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TEXT, use_cache=False)))


class _Cached(torch.nn.Module):
    """A decoder whose cache goes in and out as tensors, as a runtime keeps it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        key_0: torch.Tensor,
        value_0: torch.Tensor,
        key_1: torch.Tensor,
        value_1: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """The logits, and keys and values of each layer."""
        cache = transformers.DynamicCache()
        for layer, (key, value) in enumerate(((key_0, value_0), (key_1, value_1))):
            cache.update(key, value, layer)
        found = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        return (found.logits, *(t for layer in found.past_key_values.layers for t in (layer.keys, layer.values)))


def llama_with_cache() -> Architecture:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**_TEXT)).eval()
    kept = {name: torch.randn(2, 2, 5, _WIDTH // 2) for name in ("key_0", "value_0", "key_1", "value_1")}
    new, past = {0: Dim("batch"), 1: Dim("length")}, {0: Dim("batch"), 2: Dim("past")}
    return _Cached(model).eval(), {"input_ids": _ids(3), **kept}, {"input_ids": new, **dict.fromkeys(kept, past)}


def qwen2() -> Architecture:
    config = transformers.Qwen2Config(**_TEXT, num_key_value_heads=1, use_cache=False)
    return _text(transformers.Qwen2ForCausalLM(config))


def mistral() -> Architecture:
    config = transformers.MistralConfig(**_TEXT, num_key_value_heads=1, use_cache=False, sliding_window=None)
    return _text(transformers.MistralForCausalLM(config))


def opt() -> Architecture:
    config = transformers.OPTConfig(
        vocab_size=_WORDS,
        hidden_size=_WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=64,
        word_embed_proj_dim=_WIDTH,
        use_cache=False,
    )
    return _text(transformers.OPTForCausalLM(config))


def t5() -> Architecture:
    config = transformers.T5Config(
        vocab_size=_WORDS, d_model=_WIDTH, d_kv=16, d_ff=64, num_layers=2, num_heads=2, use_cache=False
    )
    return _encoder_decoder(transformers.T5ForConditionalGeneration(config))


def bart() -> Architecture:
    tokens = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    config = transformers.BartConfig(vocab_size=_WORDS, **_SEQ2SEQ, **tokens, use_cache=False)
    return _encoder_decoder(transformers.BartModel(config))


def vit() -> Architecture:
    config = transformers.ViTConfig(
        hidden_size=_WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return _image(transformers.ViTModel(config))


def segformer() -> Architecture:
    config = transformers.SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=8,
        num_labels=3,
    )
    return _image(transformers.SegformerForSemanticSegmentation(config))


def wav2vec2() -> Architecture:
    config = transformers.Wav2Vec2Config(
        **_TEXT,
        conv_dim=(16, 16),
        conv_stride=(5, 2),
        conv_kernel=(10, 3),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    )
    open_sizes = {0: Dim("batch"), 1: Dim("time", min=100, max=4000)}
    inputs = {"input_values": torch.randn(2, 400)}
    return transformers.Wav2Vec2Model(config).eval(), inputs, {"input_values": open_sizes}


def whisper_encoder() -> Architecture:
    tokens = {"pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(vocab_size=60, **_SEQ2SEQ, **tokens, max_source_positions=50, num_mel_bins=16)
    model = transformers.WhisperModel(config).encoder.eval()
    return model, {"input_features": torch.randn(2, 16, 100)}, {"input_features": {0: Dim("batch")}}


def mamba() -> Architecture:
    config = transformers.MambaConfig(
        vocab_size=_WORDS, hidden_size=_WIDTH, state_size=8, num_hidden_layers=2, use_cache=False
    )
    open_sizes = {0: Dim("batch"), 1: Dim("length")}
    return transformers.MambaModel(config).eval(), {"input_ids": _ids()}, {"input_ids": open_sizes}


ARCHITECTURES: tuple[Callable[[], Architecture], ...] = (
    *(bert, roberta, distilbert, electra, gpt2, llama, llama_with_cache, qwen2, mistral, opt, t5, bart),
    *(vit, segformer, wav2vec2, whisper_encoder, mamba),
)


def public_export(make: Callable[[], Architecture]) -> tuple[bool, str]:
    """Whether the public export is right at three sizes, and how far off it is, or what it says."""
    model, inputs, open_sizes = make()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            program = torch.onnx.export(
                model, (), kwargs=dict(inputs), dynamic_shapes=dict(open_sizes), dynamo=True, verbose=False
            )
        assert program is not None
        session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
        errors = [_error(model, session, _grown(inputs, open_sizes, more)) for more in (0, 1, 3)]
    except Exception as error:
        return False, str(error).splitlines()[0][:80]
    return max(errors) < _TOLERANCE, f"{max(errors):.1e}"


def _grown(
    inputs: Mapping[str, torch.Tensor], open_sizes: Mapping[str, Mapping[int, Dim]], more: int
) -> dict[str, torch.Tensor]:
    """Other inputs, whose open sizes are larger by `more`."""

    def grown(name: str, tensor: torch.Tensor) -> torch.Tensor:
        shape = [size + more if dim in open_sizes[name] else size for dim, size in enumerate(tensor.shape)]
        if tensor.is_floating_point():
            return torch.randn(shape)
        return torch.ones(shape, dtype=tensor.dtype) if "mask" in name else torch.randint(3, _WORDS, shape)

    return {name: grown(name, tensor) for name, tensor in inputs.items()}


def _error(model: torch.nn.Module, session: onnxruntime.InferenceSession, inputs: Mapping[str, torch.Tensor]) -> float:
    """The largest error of an output as a share of its largest element; infinity for another shape."""
    with torch.no_grad():
        expected = [t for t in pytree.tree_leaves(model(**inputs)) if isinstance(t, torch.Tensor)]
    got = session.run(None, {one.name: inputs[one.name].numpy() for one in session.get_inputs()})
    if [tuple(t.shape) for t in expected] != [array.shape for array in got]:
        return float("inf")
    pairs = [(t.numpy(), array) for t, array in zip(expected, got, strict=True)]
    return max(float(np.abs(e - g).max() / max(np.abs(e).max(), 1e-9)) for e, g in pairs)


def main() -> int:
    """Print a Markdown table; 1 where `check` and the public export disagree."""
    disagree = False
    print("| architecture | public export | `check` | seconds |\n| --- | --- | --- | --- |")
    for make in ARCHITECTURES:
        name = make.__name__
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        is_right, words = public_export(make)
        started = time.monotonic()
        command = [sys.executable, "-m", "harness.app.cli", "check", f"{Path(__file__)}:{name}", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        survives = done.returncode < 2 and bool(json.loads(done.stdout)["survives"])
        said = "survives" if survives else "does not survive" if done.returncode < 2 else done.stderr.splitlines()[-1]
        disagree |= survives != is_right
        seconds = time.monotonic() - started
        print(f"| {name} | {'right' if is_right else 'not right'}: {words} | {said} | {seconds:.0f} |", flush=True)
    return int(disagree)


if __name__ == "__main__":
    sys.exit(main())
