# SPDX-License-Identifier: Apache-2.0
"""Small models of transformers with random weights, and attention in plain float64 as their oracle."""

import copy
import dataclasses
import math

import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

import fovea.transformers

VOCABULARY = 97
LAYERS = 2
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
}
TWO_KINDS = {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}
GROUPED = SIZES | {"num_key_value_heads": 2, "pad_token_id": 0}
DEEPSEEK = SIZES | {
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}


def plain(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    softcap=None,
    s_aux=None,
    position_bias=None,
    **_,
):
    """Attention step by step. Unlike "eager", whose softmax is float32 in most models, it keeps float64; and a fully
    masked query gives 0."""
    assert dropout == 0
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scaling is None else scaling)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if causal and query.shape[2] > 1:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    elif attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, -math.inf)
    else:
        scores = scores + attention_mask
        scores = scores.masked_fill(attention_mask <= torch.finfo(attention_mask.dtype).min / 2, -math.inf)
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)], -1)
    weights = scores.softmax(-1).nan_to_num(0)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("plain", plain)
AttentionMaskInterface.register("plain", sdpa_mask)


def text(batch=2, length=24, seed=3):
    return torch.randint(1, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def drawn(*shapes, dtype=torch.float32):
    """Returns normal tensors, always the same."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def left_padded(ids):
    """Returns a padding mask that hides a third of the last item."""
    visible = torch.ones_like(ids)
    visible[-1, : ids.shape[1] // 3] = 0
    return visible


def right_padded(ids):
    return left_padded(ids).flip(1)


def build(kind, config, seed=1):
    torch.manual_seed(seed)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)  # otherwise all heads attend uniformly
    return model


def llama(**options):
    return build(transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED, **options))


def gemma2(**options):
    config = transformers.Gemma2Config(head_dim=16, attn_logit_softcapping=0.5, **TWO_KINDS, **GROUPED, **options)
    return build(transformers.Gemma2ForCausalLM, config)


def gpt_oss():
    config = transformers.GptOssConfig(head_dim=16, num_local_experts=4, num_experts_per_tok=2, **TWO_KINDS, **GROUPED)
    model = build(transformers.GptOssForCausalLM, config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.normal_(generator=torch.Generator().manual_seed(2))
    return model


def mistral():
    return build(transformers.MistralForCausalLM, transformers.MistralConfig(sliding_window=7, **GROUPED))


def t5(**options):
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=64,
        d_kv=16,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        **options,
    )
    return build(transformers.T5ForConditionalGeneration, config)


def bart():
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=2, pad_token_id=0, **heads
    )
    return build(transformers.BartForConditionalGeneration, config)


def bert():
    return build(transformers.BertModel, transformers.BertConfig(**SIZES))


def forward_calls():
    """Returns the number of forward passes of the engine so far."""
    return fovea._fovea._forward_calls()


def using(model, how, dtype=torch.float32):
    """Returns a copy of the model with another attention implementation and type."""
    model = copy.deepcopy(model).to(dtype)
    if hasattr(model, "set_experts_implementation") and dtype == torch.float64:
        model.set_experts_implementation("eager")  # the faster implementations lack float64
    model.set_attn_implementation(how)
    return model


@torch.no_grad()
def result(model, how, inputs, dtype=torch.float32):
    """Returns the first output, or None if the model refuses the implementation."""
    try:
        model = using(model, how, dtype)
    except ValueError:
        if how == "sdpa":
            return None
        raise
    inputs = {
        name: one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in inputs.items()
    }
    return model(**inputs)[0]


@dataclasses.dataclass(frozen=True)
class Errors:
    """Largest errors with respect to plain float64, among rows that are no padding."""

    found: float
    others: float  # sdpa in float32, or eager where the model refuses sdpa
    exact: float  # Fovea in float64
    eager: float  # eager in float64, whose softmax is float32 in most models
    size: float  # largest magnitude of the output

    def check(self):
        # The project's rule, with a factor of 2, because two float32 results differ by luck.
        assert self.found <= 2 * self.others + 1e-6, self
        assert self.exact <= 1e-12 * max(1, self.size), self
        assert self.eager <= 1e-5 * max(1, self.size), self


def errors(model, inputs, rows=None):
    """Compares implementations; `rows` is a bool mask over the first dimensions of the output."""
    right = result(model, "plain", inputs, torch.float64)
    rows = torch.ones(right.shape[:1], dtype=torch.bool) if rows is None else rows.bool()
    assert right[rows].isfinite().all()

    def off(one):
        return (one.double() - right)[rows].abs().max().item()

    eager = result(model, "eager", inputs, torch.float64)
    sdpa = result(model, "sdpa", inputs)
    sdpa = result(model, "eager", inputs) if sdpa is None else sdpa
    return Errors(
        found=off(result(model, "fovea", inputs)),
        others=off(sdpa),
        exact=off(result(model, "fovea", inputs, torch.float64)),
        eager=(eager - right)[rows].nan_to_num(0).abs().max().item(),
        size=right[rows].abs().max().item(),
    )
