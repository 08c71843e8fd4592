# SPDX-License-Identifier: Apache-2.0
"""Tests Fovea as an attention implementation of transformers: small models of that library with random weights give
the same results and train in the same way as with PyTorch's attention; lenses agree with the weights that transformers
stores."""

import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers.masking_utils import AttentionMaskInterface, sdpa_mask  # noqa: E402

import fovea  # noqa: E402

TOLERANCE = 1e-5
LAYERS = 2


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None, **_):
    """Takes query [batch, heads, length, dim]; returns the context [batch, length, heads, dim], and no weights."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    context = fovea.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        is_causal=bool(causal) and attention_mask is None and query.shape[2] > 1,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return context.transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("fovea", attend)
AttentionMaskInterface.register("fovea", sdpa_mask)


SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS}


def llama(how):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=2, pad_token_id=0, **SIZES)
    config._attn_implementation = how
    return transformers.LlamaForCausalLM(config).eval()


def bert(how):
    torch.manual_seed(2)
    config = transformers.BertConfig(num_attention_heads=4, **SIZES)
    config._attn_implementation = how
    return transformers.BertModel(config).eval()


def tokens(batch, length):
    torch.manual_seed(3)
    ids = torch.randint(1, 97, (batch, length))
    padded = torch.ones_like(ids)
    padded[-1, : length // 3] = 0
    return ids, padded


@torch.no_grad()
def outputs(make, how, **given):
    """Returns the first output, and the number of engine calls."""
    model = make(how)
    before = fovea._fovea._forward_calls()
    return model(**given)[0], fovea._fovea._forward_calls() - before


@pytest.mark.parametrize("padding", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("length", [1, 7, 64])
@pytest.mark.parametrize("make", [llama, bert], ids=lambda make: make.__name__)
def test_models_agree(make, length, padding, say):
    ids, padded = tokens(2, length)
    given = {"input_ids": ids} | ({"attention_mask": padded} if padding else {})
    right, none = outputs(make, "sdpa", **given)
    found, calls = outputs(make, "fovea", **given)
    assert (none, calls) == (0, LAYERS)
    rows = padded.bool() if padding else torch.ones_like(ids).bool()
    error = (found - right)[rows].abs().max().item()
    assert error <= TOLERANCE
    if length == 64 and padding:
        say(f"transformers {transformers.__version__}, {make.__name__} of {LAYERS} layers: off sdpa by {error:.1e}")


@torch.no_grad()
def test_generation_agrees():
    """Generation with a cache: first prompts of different lengths, then one token at a time."""
    ids, padded = tokens(2, 9)
    options = {"attention_mask": padded, "max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False}
    right = llama("sdpa").generate(ids, **options)
    before = fovea._fovea._forward_calls()
    found = llama("fovea").generate(ids, **options)
    assert fovea._fovea._forward_calls() - before == 12 * LAYERS
    assert torch.equal(found, right)


@pytest.mark.parametrize("padding", [False, True], ids=["whole", "padded"])
@torch.no_grad()
def test_lenses_agree_with_stored_weights(padding, monkeypatch):
    """Compares examples/python/heads.py with the weights that transformers' own attention returns."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "examples" / "python")
    import heads

    ids, padded = tokens(2, 30)
    given = {"input_ids": ids} | ({"attention_mask": padded} if padding else {})
    stored = llama("eager")(**given, output_attentions=True).attentions
    recorder = heads.Recorder(fovea.Lenses(statistics=True, top=3))
    model = llama("sdpa")
    heads.watch(model, recorder)
    model(**given)
    assert sorted(recorder.seen) == list(range(LAYERS))
    # Excludes padding queries, whose weights depend on the implementation.
    rows = (padded.bool() if padding else torch.ones_like(ids).bool())[:, None].expand(2, 4, 30).numpy()
    for layer, seen in recorder.seen.items():
        weights = stored[layer].double().numpy()
        entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
        np.testing.assert_allclose(seen.entropy[rows], entropy[rows], atol=1e-4)
        np.testing.assert_allclose(seen.top_weights[rows], -np.sort(-weights, axis=-1)[rows][:, :3], atol=1e-5)


STEPS = 20


def losses(how, padding, attention_dropout=0.0):
    """Returns the losses of training on one batch, and the numbers of forward and backward engine calls."""
    model = llama(how).train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = attention_dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids, padded = tokens(4, 24)
    given = {"attention_mask": padded} if padding else {}
    labels = ids.masked_fill(~padded.bool(), -100) if padding else ids
    found = []
    before = fovea._fovea._forward_calls(), fovea._fovea._backward_calls()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels, **given).loss
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    after = fovea._fovea._forward_calls(), fovea._fovea._backward_calls()
    return torch.tensor(found), (after[0] - before[0], after[1] - before[1])


@pytest.mark.parametrize("padding", [False, True], ids=["whole", "padded"])
def test_training_agrees(padding, say):
    right, none = losses("sdpa", padding)
    found, calls = losses("fovea", padding)
    assert none == (0, 0)
    assert calls == (STEPS * LAYERS, STEPS * LAYERS)
    assert right[-1] < right[0] - 1  # the model learns
    error = (found - right).abs().max().item()
    assert error <= 1e-4
    if padding:
        say(
            f"transformers {transformers.__version__}, llama of {LAYERS} layers: {STEPS} steps of training, loss from "
            f"{right[0]:.3f} to {right[-1]:.3f}, off sdpa's by {error:.1e}"
        )


def test_training_with_dropout():
    """The same seed gives the same losses, and the model learns."""
    fovea.manual_seed(1)
    found, calls = losses("fovea", True, attention_dropout=0.2)
    assert calls == (STEPS * LAYERS, STEPS * LAYERS)
    assert found[-1] < found[0] - 1
    fovea.manual_seed(1)
    assert torch.equal(losses("fovea", True, attention_dropout=0.2)[0], found)
    fovea.manual_seed(2)
    assert not torch.equal(losses("fovea", True, attention_dropout=0.2)[0], found)
