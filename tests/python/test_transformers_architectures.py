# SPDX-License-Identifier: Apache-2.0
"""Runs models of many architectures with random weights on Fovea, and compares their outputs with attention in plain
float64, and with PyTorch's."""

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers_models import (  # noqa: E402
    DEEPSEEK,
    GROUPED,
    SIZES,
    TWO_KINDS,
    VOCABULARY,
    build,
    errors,
    left_padded,
    result,
    right_padded,
    text,
)

from fovea._observe.calls import observe  # noqa: E402
from fovea._observe.rules import Computed, Dense  # noqa: E402

PATCHES = SIZES | {"image_size": 24, "patch_size": 4}


def of(name, config=None, **options):
    """Returns a model and its configuration by the names of transformers."""
    kind = getattr(transformers, name)
    config = config or name.removesuffix("ForCausalLM").removesuffix("Model").removesuffix("ForConditionalGeneration")
    return lambda: build(kind, getattr(transformers, f"{config}Config")(**options))


DECODERS = {
    "Llama": of("LlamaForCausalLM", **GROUPED),
    "Mistral, window": of("MistralForCausalLM", sliding_window=7, **GROUPED),
    "Qwen2": of("Qwen2ForCausalLM", **GROUPED),
    "Qwen2, window": of("Qwen2ForCausalLM", use_sliding_window=True, max_window_layers=1, sliding_window=7, **GROUPED),
    "Qwen3": of("Qwen3ForCausalLM", head_dim=16, **GROUPED),
    "Gemma": of("GemmaForCausalLM", head_dim=16, **GROUPED),
    "Gemma 2, softcap": of("Gemma2ForCausalLM", head_dim=16, attn_logit_softcapping=0.5, **TWO_KINDS, **GROUPED),
    "Gemma 3": of("Gemma3ForCausalLM", "Gemma3Text", head_dim=16, **TWO_KINDS, **GROUPED),
    "gpt-oss, sinks": of(
        "GptOssForCausalLM", head_dim=16, num_local_experts=4, num_experts_per_tok=2, **TWO_KINDS, **GROUPED
    ),
    "GPT-2": of("GPT2LMHeadModel", "GPT2", vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4),
    "GPT-NeoX": of("GPTNeoXForCausalLM", **SIZES),
    "Phi": of("PhiForCausalLM", **GROUPED),
    "Phi 3": of("Phi3ForCausalLM", **GROUPED),
    "OLMo 2": of("Olmo2ForCausalLM", **GROUPED),
    "Cohere": of("CohereForCausalLM", **GROUPED),
    "Cohere 2": of("Cohere2ForCausalLM", **TWO_KINDS, **GROUPED),
    "StarCoder2": of("Starcoder2ForCausalLM", sliding_window=7, **GROUPED),
    "Mixtral": of("MixtralForCausalLM", num_local_experts=4, **GROUPED),
    "Granite": of("GraniteForCausalLM", **GROUPED),
    "OPT": of(
        "OPTForCausalLM", vocab_size=VOCABULARY, hidden_size=64, ffn_dim=96, num_hidden_layers=2, num_attention_heads=4
    ),
    "BioGPT": of("BioGptForCausalLM", **SIZES),
    "Gemma 3n": of(
        "Gemma3nForCausalLM",
        "Gemma3nText",
        head_dim=16,
        num_kv_shared_layers=0,
        activation_sparsity_pattern=[0.0, 0.0],
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCABULARY,
        laurel_rank=4,
        **TWO_KINDS,
        **GROUPED | {"intermediate_size": [96, 96]},
    ),
    "Llama 4, chunks": of(
        "Llama4ForCausalLM",
        "Llama4Text",
        head_dim=16,
        attention_chunk_size=8,
        layer_types=["chunked_attention", "full_attention"],
        intermediate_size_mlp=96,
        moe_layers=[],
        **GROUPED,
    ),
    "GPT BigCode": of("GPTBigCodeForCausalLM", vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4),
    "BERT as decoder": of("BertLMHeadModel", "Bert", is_decoder=True, **SIZES),
    "SmolLM3": of("SmolLM3ForCausalLM", **GROUPED),
    "GLM": of("GlmForCausalLM", head_dim=16, **GROUPED),
    "Nemotron": of("NemotronForCausalLM", **GROUPED),
    "StableLM": of("StableLmForCausalLM", **GROUPED),
    "EXAONE 4, window": of("Exaone4ForCausalLM", sliding_window_pattern=2, **TWO_KINDS, **GROUPED),
    "DeepSeek V3": of("DeepseekV3ForCausalLM", **DEEPSEEK),
}
ENCODERS = {
    "BERT": of("BertModel", **SIZES),
    "RoBERTa": of("RobertaModel", **SIZES),
    "DistilBERT": of("DistilBertModel", vocab_size=VOCABULARY, dim=64, hidden_dim=96, n_layers=2, n_heads=4),
    "ALBERT": of("AlbertModel", embedding_size=32, **SIZES),
    "ELECTRA": of("ElectraModel", embedding_size=32, **SIZES),
    "ModernBERT": of(
        "ModernBertModel",
        local_attention=6,
        global_attn_every_n_layers=2,
        reference_compile=False,
        pad_token_id=0,
        **SIZES,
    ),
    "ESM": of("EsmModel", pad_token_id=0, mask_token_id=4, position_embedding_type="rotary", **SIZES),
    "XLM-RoBERTa": of("XLMRobertaModel", **SIZES),
    "CLIP text": of("CLIPTextModel", "CLIPText", **SIZES),
    "SigLIP text": of("SiglipTextModel", "SiglipText", **SIZES),
}
SEQ2SEQ = {"vocab_size": VOCABULARY, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "pad_token_id": 0}
SEQ2SEQ |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
T5 = {"vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
ENCODER_DECODERS = {
    "T5": of("T5ForConditionalGeneration", **T5),
    "MT5": of("MT5ForConditionalGeneration", **T5),
    "Switch": of("SwitchTransformersForConditionalGeneration", **T5, num_experts=2),
    "UMT5": of("UMT5ForConditionalGeneration", **T5),
    "BART": of("BartForConditionalGeneration", **SEQ2SEQ),
    "mBART": of("MBartForConditionalGeneration", **SEQ2SEQ),
    "Marian": of("MarianMTModel", "Marian", decoder_start_token_id=0, **SEQ2SEQ),
    "Pegasus": of("PegasusForConditionalGeneration", **SEQ2SEQ),
    "M2M100": of("M2M100ForConditionalGeneration", **SEQ2SEQ),
}
VISION = {
    "ViT": of("ViTModel", **PATCHES),
    "DeiT": of("DeiTModel", **PATCHES),
    "CLIP vision": of("CLIPVisionModel", "CLIPVision", **PATCHES),
    "SigLIP vision": of("SiglipVisionModel", "SiglipVision", **PATCHES),
    "DINOv2": of("Dinov2Model", **PATCHES),
    "DINOv3": of("DINOv3ViTModel", "DINOv3ViT", **PATCHES),
    "BEiT": of("BeitModel", **PATCHES),
    "VideoMAE": of("VideoMAEModel", num_frames=4, **PATCHES),
}


def check(name, model, inputs, say, rows=None, elements=False):
    """`elements`: the model has masks or biases without a rule."""
    found = errors(model, inputs, rows)
    found.check()
    calls = []
    with observe(calls.append):
        result(model, "fovea", inputs)
    assert calls
    for call in calls if not elements else ():
        assert not [leaf for leaf in call.rule.leaves() if isinstance(leaf, (Dense, Computed))], call.rule
        assert call.options["bias"] is None
    say(f"transformers, {name}: off by {found.found:.1e}, PyTorch by {found.others:.1e}; float64 by {found.exact:.0e}")


@pytest.mark.parametrize("name", DECODERS)
def test_decoder(name, say):
    ids = text()
    model = DECODERS[name]()
    visible = left_padded(ids)
    errors(model, {"input_ids": ids}).check()
    check(name, model, {"input_ids": ids, "attention_mask": visible}, say, visible)


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name, say):
    ids = text()
    model = ENCODERS[name]()
    visible = right_padded(ids)
    errors(model, {"input_ids": ids}).check()
    check(name, model, {"input_ids": ids, "attention_mask": visible}, say, visible)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_encoder_decoder(name, say):
    ids, answer = text(), text(length=15, seed=4)
    inputs = {"input_ids": ids, "attention_mask": right_padded(ids), "decoder_input_ids": answer}
    check(name, ENCODER_DECODERS[name](), inputs, say)


@pytest.mark.parametrize("name", VISION)
def test_vision(name, say):
    frames = (4,) if name == "VideoMAE" else ()
    pixels = torch.randn(2, *frames, 3, 24, 24, generator=torch.Generator().manual_seed(5))
    check(name, VISION[name](), {"pixel_values": pixels}, say)


def test_whisper(say):
    config = transformers.WhisperConfig(num_mel_bins=8, max_source_positions=40, **SEQ2SEQ)
    inputs = {"input_features": torch.randn(2, 8, 80), "decoder_input_ids": text(length=15)}
    check("Whisper", build(transformers.WhisperForConditionalGeneration, config), inputs, say)


def test_wav2vec2(say):
    config = transformers.Wav2Vec2Config(
        conv_dim=(16,),
        conv_stride=(5,),
        conv_kernel=(10,),
        num_feat_extract_layers=1,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        **SIZES,
    )
    check("Wav2Vec2", build(transformers.Wav2Vec2Model, config), {"input_values": torch.randn(2, 200)}, say)


def test_paligemma(say):
    """The image and the prompt are a prefix: bidirectional, while the answer is causal."""
    vision = {**PATCHES, "vision_use_head": False, "model_type": "siglip_vision_model"}
    config = transformers.PaliGemmaConfig(
        vision_config=vision,
        text_config={"model_type": "gemma", "head_dim": 16, **GROUPED},
        image_token_index=VOCABULARY - 1,
        projection_dim=64,
        hidden_size=64,
    )
    images = 36  # patches of an image
    ids = text(length=20).clamp(max=VOCABULARY - 2)
    ids = torch.cat([torch.full((2, images), VOCABULARY - 1), ids], 1)
    types = torch.zeros_like(ids)
    types[:, images + 8 :] = 1
    inputs = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 24, 24), "attention_mask": torch.ones_like(ids)}
    model = build(transformers.PaliGemmaForConditionalGeneration, config)
    check("PaliGemma", model, inputs | {"token_type_ids": types}, say)


def with_images(ids, token, places=36):
    """Returns the tokens of a text with the places of an image."""
    ids = ids.clamp(max=VOCABULARY - 4)
    ids[:, 3 : 3 + places] = token
    return ids


def llava():
    config = transformers.LlavaConfig(
        text_config={"model_type": "llama", **GROUPED},
        vision_config={"model_type": "clip_vision_model", **PATCHES},
        image_token_index=VOCABULARY - 1,
        vision_feature_select_strategy="default",
    )
    return build(transformers.LlavaForConditionalGeneration, config), {}


def gemma3():
    """Images in the text see themselves in both directions."""
    config = transformers.Gemma3Config(
        text_config={**GROUPED, "head_dim": 16, **TWO_KINDS},
        vision_config={**PATCHES, "vision_use_head": False},
        mm_tokens_per_image=36,
        image_token_index=VOCABULARY - 1,
        boi_token_index=VOCABULARY - 2,
        eoi_token_index=VOCABULARY - 3,
    )
    types = torch.zeros(2, 46, dtype=torch.int64)
    types[:, 3:39] = 1
    return build(transformers.Gemma3ForConditionalGeneration, config), {"token_type_ids": types}


@pytest.mark.parametrize("make", [llava, gemma3], ids=lambda make: make.__name__)
def test_images_in_texts(make, say):
    ids = with_images(text(length=46), VOCABULARY - 1)
    visible = torch.ones_like(ids)
    visible[1, :2] = 0
    model, further = make()
    pixels = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(5))
    inputs = {"input_ids": ids, "pixel_values": pixels, "attention_mask": visible, **further}
    check(f"{make.__name__}, images in texts", model, inputs, say, visible)


def test_qwen2_5_vl(say):
    """The encoder of images has windows, in one call each."""
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            **GROUPED,
            "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4},
        },
        vision_config={
            "depth": 2,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_heads": 4,
            "patch_size": 4,
            "window_size": 16,
            "out_hidden_size": 64,
            "fullatt_block_indexes": [1],
            "temporal_patch_size": 1,
        },
        image_token_id=VOCABULARY - 1,
    )
    ids = with_images(text(1, 20), VOCABULARY - 1, 9)
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(36, 48, generator=torch.Generator().manual_seed(5)),
        "image_grid_thw": torch.tensor([[1, 6, 6]]),
        "mm_token_type_ids": (ids == VOCABULARY - 1).long(),
    }
    check("Qwen2.5-VL", build(transformers.Qwen2_5_VLForConditionalGeneration, config), inputs, say)


def test_mllama(say):
    """Masks of cross attention that belong to the model: which tokens see which image."""
    config = transformers.MllamaConfig(
        text_config={
            **GROUPED,
            "num_hidden_layers": 3,
            "cross_attention_layers": [1],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "attention_heads": 4,
            "image_size": 24,
            "patch_size": 4,
            "vision_output_dim": 128,
            "intermediate_layers_indices": [0],
            "max_num_tiles": 1,
            "supported_aspect_ratios": [[1, 1]],
        },
        image_token_index=VOCABULARY - 1,
    )
    shown = torch.zeros(1, 20, 1, 1, dtype=torch.int64)
    shown[:, 5:] = 1
    inputs = {
        "input_ids": text(1, 20),
        "pixel_values": torch.randn(1, 1, 1, 3, 24, 24, generator=torch.Generator().manual_seed(5)),
        "aspect_ratio_ids": torch.ones(1, 1, dtype=torch.int64),
        "aspect_ratio_mask": torch.ones(1, 1, 1, dtype=torch.int64),
        "cross_attention_mask": shown,
    }
    model = build(transformers.MllamaForConditionalGeneration, config)
    check("Mllama", model, inputs, say, elements=True)


def test_parakeet(say):
    """The positions are a bias that depends on the queries, passed as a mask of floats."""
    config = transformers.ParakeetEncoderConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_mel_bins=16,
        subsampling_conv_channels=8,
    )
    features = torch.randn(1, 80, 16, generator=torch.Generator().manual_seed(5))
    model = build(transformers.ParakeetEncoder, config)
    check("Parakeet", model, {"input_features": features}, say, elements=True)


def test_swin(say):
    """Windows of patches: the mask of shifted windows and the positions are a bias."""
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    check("Swin", build(transformers.SwinModel, config), {"pixel_values": pixels}, say, elements=True)


def test_count():
    """The number of architectures does not shrink unnoticed."""
    assert len(DECODERS) + len(ENCODERS) + len(ENCODER_DECODERS) + len(VISION) + 9 >= 65
