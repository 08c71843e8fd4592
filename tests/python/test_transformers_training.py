# SPDX-License-Identifier: Apache-2.0
"""Tests training with fovea.transformers: gradients, losses, dropout and checkpoints, compared with attention in plain
float64 and with PyTorch's."""

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers_models import (  # noqa: E402
    GROUPED,
    LAYERS,
    bart,
    forward_calls,
    gemma2,
    gpt_oss,
    left_padded,
    llama,
    mistral,
    right_padded,
    t5,
    text,
    using,
)

import fovea  # noqa: E402
import fovea.transformers  # noqa: E402


def gradients(model, how, inputs, dtype):
    model = using(model, how, dtype)
    model(**inputs).loss.backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("make", [llama, mistral, gemma2, gpt_oss, t5, bart], ids=lambda make: make.__name__)
def test_gradients(make, say):
    ids = text()
    inputs = {"input_ids": ids, "attention_mask": right_padded(ids), "labels": ids}
    model = make()
    right = gradients(model, "plain", inputs, torch.float64)
    exact = gradients(model, "fovea", inputs, torch.float64)
    found = gradients(model, "fovea", inputs, torch.float32)
    try:
        other = gradients(model, "sdpa", inputs, torch.float32)
    except ValueError:
        other = gradients(model, "eager", inputs, torch.float32)
    assert found.keys() == right.keys() == exact.keys()
    shares = []
    for name, gradient in right.items():
        off, beside, far = ((one[name].double() - gradient).abs().max().item() for one in (found, other, exact))
        size = gradient.abs().max().item()
        # Limits the bound: eager attention gives equal weights to a query that sees no key, where 0 is correct.
        beside = min(beside, 1e-4 * size)
        # Gradients of some tensors are 0 in exact arithmetic, such as those of the biases of keys.
        # Includes roundings of lse: with few queries, the two passes add products in different orders.
        assert off <= 2 * beside + 2e-5 * size + 1e-7, name
        assert far <= 1e-6 * size + 1e-7, name
        shares.append(off / max(beside, 1e-9))
    special = {"gpt_oss": "sinks", "t5": "relative_attention_bias"}.get(make.__name__, "weight")
    assert any(special in name and right[name].abs().max() > 0 for name in right)
    say(f"transformers, gradients of {make.__name__}: at most {max(shares):.1f} times PyTorch's error")


STEPS = 20


def losses(how, padding, attention_dropout=0.0):
    """Returns the losses of training on one batch, and the numbers of forward and backward engine calls."""
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED))
    model.set_attn_implementation(how)
    for layer in model.train().model.layers:
        layer.self_attn.attention_dropout = attention_dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids = text(4)
    given = {"attention_mask": left_padded(ids)} if padding else {}
    labels = ids.masked_fill(~left_padded(ids).bool(), -100) if padding else ids
    found = []
    before = forward_calls(), fovea._fovea._backward_calls()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels, **given).loss
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found), (forward_calls() - before[0], fovea._fovea._backward_calls() - before[1])


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
    """PyTorch's seed gives the same losses, and the model learns."""
    found, calls = losses("fovea", True, attention_dropout=0.2)
    assert calls == (STEPS * LAYERS, STEPS * LAYERS)
    assert found[-1] < found[0] - 1
    assert torch.equal(losses("fovea", True, attention_dropout=0.2)[0], found)
    assert not torch.equal(losses("fovea", True)[0], found)


@torch.no_grad()
def test_dropout_depends_on_the_seed():
    query, key, value = torch.randn(3, 1, 2, 9, 8)
    module = torch.nn.Module()

    def drop(seed):
        torch.manual_seed(seed)
        return fovea.transformers.attention(module, query, key, value, None, dropout=0.5)[0]

    assert torch.equal(drop(1), drop(1))
    assert not torch.equal(drop(1), drop(2))
    torch.manual_seed(1)
    first = fovea.transformers.attention(module, query, key, value, None, dropout=0.5)[0]
    assert torch.equal(first, drop(1))
    assert not torch.equal(fovea.transformers.attention(module, query, key, value, None, dropout=0.5)[0], first)
    # The mean over many draws is the context without dropout.
    mean = sum(drop(seed) for seed in range(1000)) / 1000
    torch.testing.assert_close(mean, drop_free(module, query, key, value), atol=0.2, rtol=0)


def drop_free(module, *tensors):
    return fovea.transformers.attention(module, *tensors, None)[0]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("make", [llama, t5], ids=lambda make: make.__name__)
def test_gradient_checkpointing(make, reentrant):
    """Recomputed layers drop the same weights, and masks keep their rules."""
    ids = text()
    inputs = {"input_ids": ids, "attention_mask": left_padded(ids), "labels": ids}

    def run(checkpointing):
        model = using(make(), "fovea").train()
        for module in model.modules():
            if hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.3
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(5)
        model(**inputs, use_cache=False).loss.backward()
        return {name: one.grad for name, one in model.named_parameters()}

    kept, recomputed = run(False), run(True)
    for name, gradient in kept.items():
        assert (gradient - recomputed[name]).abs().max() <= 1e-4 * gradient.abs().max(), name
