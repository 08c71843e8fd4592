# SPDX-License-Identifier: Apache-2.0
"""Tests what observers of a model of transformers receive, and which modules escape them because they bypass the
attention interface."""

import threading

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers_models import (  # noqa: E402
    LAYERS,
    SIZES,
    VOCABULARY,
    bart,
    bert,
    build,
    gemma2,
    gpt_oss,
    left_padded,
    llama,
    mistral,
    t5,
    text,
    using,
)

import fovea  # noqa: E402
import fovea.transformers  # noqa: E402
from fovea._observe.calls import AttentionCall, observe, observed  # noqa: E402

# Observers.


@pytest.mark.parametrize("make", [llama, mistral, gemma2, gpt_oss, t5, bart, bert], ids=lambda make: make.__name__)
@torch.no_grad()
def test_calls_reproduce_the_context(make):
    """The tensors and options of a call give its context and its lse again."""
    ids = text()
    model = using(make(), "fovea")
    inputs = {"input_ids": ids, "attention_mask": left_padded(ids)}
    if make in (t5, bart):
        inputs["decoder_input_ids"] = text(length=15)
    calls, contexts = [], []
    original = fovea.transformers._attend

    def attend(*args):
        found = original(*args)
        contexts.append(found[0])
        return found

    fovea.transformers._attend = attend
    try:
        with observe(calls.append):
            model(**inputs)
    finally:
        fovea.transformers._attend = original
    assert len(calls) == len(contexts) == (3 * LAYERS if make in (t5, bart) else LAYERS)
    names = {module: name for name, module in model.named_modules()}
    for call, context in zip(calls, contexts, strict=True):
        assert isinstance(call, AttentionCall)
        assert "att" in names[call.module].lower()
        assert call.options.keys() == {"mask", "alignment", "scale", "softcap", "bias", "relative", "sinks"}
        again, lse = fovea.attention(call.query, call.key, call.value, return_lse=True, **call.options)
        assert torch.equal(again.transpose(1, 2), context)
        assert torch.equal(lse, call.lse)
        assert not call.query.requires_grad


def test_observers_in_training():
    """Calls have detached tensors and lse without dropout."""
    model = using(llama(attention_dropout=0.5), "fovea").train()
    calls = []
    with observe(calls.append):
        model(text(), labels=text()).loss.backward()
    for call in calls:
        assert not any(one.requires_grad for one in (call.query, call.key, call.value, call.lse))
        lse = fovea.attention(call.query, call.key, call.value, return_lse=True, **call.options)[1]
        torch.testing.assert_close(call.lse, lse)


@torch.no_grad()
def test_observers_nest_and_end():
    model = using(llama(), "fovea")
    outer, inner, elsewhere = [], [], []
    with observe(outer.append):
        model(text())
        with observe(inner.append):
            model(text())
        thread = threading.Thread(target=lambda: elsewhere.append(observed()))
        thread.start()
        thread.join()
    assert (len(outer), len(inner), elsewhere) == (2 * LAYERS, LAYERS, [False])

    def fail(call):
        raise KeyError(call.lse.shape)

    with pytest.raises(KeyError), observe(fail):
        model(text())
    assert not observed()
    model(text())
    assert len(outer) == 2 * LAYERS


@torch.no_grad()
def test_lse_is_computed_for_observers_only(monkeypatch):
    asked = []
    real = fovea._fovea.attention

    class Engine:
        def attention(self, *args, **options):
            asked.append(options.get("return_lse", False))
            return real(*args, **options)

    monkeypatch.setattr(fovea.transformers, "_engine", Engine())
    model = using(llama(), "fovea")
    model(text())
    with observe(lambda call: None):
        model(text())
    assert asked == [False] * LAYERS + [True] * LAYERS


# Modules that bypass the interface.


def small(name, **options):
    return build(getattr(transformers, f"{name}Model"), getattr(transformers, f"{name}Config")(**options))


BYPASSING = {
    "GPT-J": lambda: small("GPTJ", vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, rotary_dim=8),
    "BLOOM": lambda: small("Bloom", vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4),
    "DeBERTa": lambda: small("DebertaV2", **SIZES),
    "Falcon": lambda: small(
        "Falcon", vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4
    ),
    "MPT": lambda: small("Mpt", vocab_size=VOCABULARY, d_model=64, n_heads=4, n_layers=2),
    "MPNet": lambda: small("MPNet", **SIZES),
    "GPT-Neo": lambda: small(
        "GPTNeo", vocab_size=VOCABULARY, hidden_size=64, num_heads=4, num_layers=2, attention_types=[[["global"], 2]]
    ),
    "XLNet": lambda: small("XLNet", vocab_size=VOCABULARY, d_model=64, n_layer=2, n_head=4, d_inner=96),
}


def run_modules(model, inputs):
    """Returns the modules that called Fovea, and those whose forward() ran."""
    called, ran = [], []
    hooks = [
        module.register_forward_pre_hook(lambda module, _: ran.append(module))
        for module in fovea.transformers.attention_modules(model).values()
    ]
    with observe(lambda call: called.append(call.module)), torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return called, ran


@pytest.mark.parametrize("name", BYPASSING)
def test_bypassing_modules_are_missed(name):
    model = BYPASSING[name]()
    with torch.no_grad():
        before = model(text())[0]
    model.set_attn_implementation("fovea")  # warns only
    with torch.no_grad():
        assert torch.equal(model(text())[0], before)
    called, ran = run_modules(model, {"input_ids": text()})
    assert called == []
    missed = fovea.transformers.missed_modules(model, called, ran)
    assert len(missed) == LAYERS
    assert missed == fovea.transformers.missed_modules(model, called)
    assert {name for name, _ in model.named_modules()} >= set(missed)


@pytest.mark.parametrize("make", [llama, gemma2, gpt_oss, t5, bart, bert], ids=lambda make: make.__name__)
def test_no_module_is_missed(make):
    model = using(make(), "fovea")
    inputs = {"input_ids": text()} | ({"decoder_input_ids": text(length=5)} if make in (t5, bart) else {})
    called, ran = run_modules(model, inputs)
    assert fovea.transformers.missed_modules(model, called) == []
    assert fovea.transformers.missed_modules(model, called, ran) == []
    every = fovea.transformers.attention_modules(model)
    assert len(every) == (3 * LAYERS if make in (t5, bart) else LAYERS)
    assert fovea.transformers.missed_modules(model, called[1:]) == [next(iter(every))]


def test_albert_calls_one_module_per_layer():
    config = transformers.AlbertConfig(embedding_size=32, **SIZES)
    model = using(build(transformers.AlbertModel, config), "fovea")
    called, ran = run_modules(model, {"input_ids": text()})
    assert len(called) == LAYERS
    assert len(set(called)) == 1
    assert fovea.transformers.missed_modules(model, called, ran) == []


def test_a_branch_that_does_not_run():
    config = transformers.CLIPConfig(
        text_config=dict(SIZES), vision_config={**SIZES, "image_size": 24, "patch_size": 4}, projection_dim=16
    )
    model = using(build(transformers.CLIPModel, config), "fovea")
    called, ran = [], []
    hooks = [
        module.register_forward_pre_hook(lambda module, _: ran.append(module))
        for module in fovea.transformers.attention_modules(model).values()
    ]
    with observe(lambda call: called.append(call.module)), torch.no_grad():
        model.get_text_features(input_ids=text())
    assert len(hooks) == 2 * LAYERS
    assert fovea.transformers.missed_modules(model, called, ran) == []
    assert len(fovea.transformers.missed_modules(model, called)) == LAYERS
