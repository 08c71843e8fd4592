# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.transformers in use: text generation with every kind of cache, 16-bit models, compiled models, lenses,
and the cost of a call. Architectures, masks, training, single calls and observers have files of their own,
test_transformers_*.py."""

import copy
import doctest
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402
from transformers.masking_utils import sdpa_mask  # noqa: E402
from transformers_models import (  # noqa: E402
    GROUPED,
    LAYERS,
    bart,
    bert,
    build,
    drawn,
    forward_calls,
    gemma2,
    gpt_oss,
    left_padded,
    llama,
    mistral,
    result,
    right_padded,
    t5,
    text,
    using,
)

import fovea  # noqa: E402
import fovea.transformers  # noqa: E402
from fovea._observe.calls import observe  # noqa: E402
from fovea._observe.rules import Causal, Computed, Dense  # noqa: E402


@pytest.mark.parametrize("length", [1, 7, 64])
@pytest.mark.parametrize("make", [llama, bert], ids=lambda make: make.__name__)
def test_every_layer_calls_fovea(make, length):
    ids = text(length=length)
    before = forward_calls()
    found = result(make(), "fovea", {"input_ids": ids, "attention_mask": left_padded(ids)})
    assert forward_calls() - before == LAYERS
    assert found.isfinite().all()  # rows of padding too


# Text generation.

GENERATION = {
    "Llama": (llama, {}),
    "Llama, static cache": (llama, {"cache_implementation": "static"}),
    "Llama, no cache": (llama, {"use_cache": False}),
    "Llama, prompt in chunks": (llama, {"prefill_chunk_size": 4}),
    "Llama, beams": (llama, {"num_beams": 3}),
    "Mistral, window": (mistral, {}),
    "Mistral, static cache": (mistral, {"cache_implementation": "static"}),
    "Mistral, prompt in chunks": (mistral, {"prefill_chunk_size": 4}),
    "Gemma 2": (gemma2, {}),
    "Gemma 2, static cache": (gemma2, {"cache_implementation": "static"}),
    "gpt-oss": (gpt_oss, {}),
    "gpt-oss, static cache": (gpt_oss, {"cache_implementation": "static"}),
    "T5": (t5, {}),
    "T5, static cache": (t5, {"cache_implementation": "static"}),
    "BART": (bart, {}),
    "BART, beams": (bart, {"num_beams": 3}),
}


@pytest.mark.parametrize("padding", [None, left_padded], ids=["whole", "padded"])
@pytest.mark.parametrize("name", GENERATION)
@torch.no_grad()
def test_generation(name, padding):
    """Float64 models write the same tokens with Fovea and with plain attention, and their scores agree."""
    make, options = GENERATION[name]
    ids = text(length=11)
    options = {
        "max_new_tokens": 12,
        "min_new_tokens": 12,
        "do_sample": False,
        "disable_compile": True,
        "output_scores": True,
        "return_dict_in_generate": True,
        **options,
    }
    if padding is not None:
        options["attention_mask"] = padding(ids)
    else:
        options["attention_mask"] = torch.ones_like(ids)
    model = make()
    right = using(model, "plain", torch.float64).generate(ids, **options)
    calls = []
    with observe(calls.append):
        found = using(model, "fovea", torch.float64).generate(ids, **options)
    assert len(calls) >= 12 * LAYERS
    assert torch.equal(found.sequences, right.sequences)
    largest = max(score[score.isfinite()].abs().max().item() for score in right.scores)
    for one, other in zip(found.scores, right.scores, strict=True):
        finite = other.isfinite()
        assert (one - other)[finite].abs().max() <= 1e-6 * max(1, largest)  # parts of the models are float32
    assert not [leaf for call in calls for leaf in call.rule.leaves() if isinstance(leaf, (Dense, Computed))]


@pytest.mark.parametrize("make", [llama, gemma2], ids=lambda make: make.__name__)
@torch.no_grad()
def test_generation_with_an_assistant(make):
    """A smaller model, or the text itself, proposes tokens, and rejected ones are removed from the caches."""
    ids = text(batch=1, length=11)
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    model = make()
    assistant = using(build(type(model), model.config, seed=9), "fovea", torch.float64)
    right = using(model, "plain", torch.float64).generate(ids, **options)
    model = using(model, "fovea", torch.float64)
    for further in ({"assistant_model": assistant}, {"prompt_lookup_num_tokens": 3}):
        assert torch.equal(model.generate(ids, **options, **further), right)


@torch.no_grad()
def test_cached_parts_equal_the_whole():
    """A prompt in several parts, on a cache, and the tokens one by one."""
    ids = text(length=20)
    visible = left_padded(ids)
    for make in (llama, mistral, gemma2, gpt_oss):
        model = using(make(), "fovea", torch.float64)
        whole = model(ids, attention_mask=visible).logits
        cache = transformers.DynamicCache(config=model.config)
        parts, start = [], 0
        for length in (6, 5, 1, 3, 1, 1, 3):
            end = start + length
            found = model(ids[:, start:end], attention_mask=visible[:, :end], past_key_values=cache)
            parts.append(found.logits)
            start = end
        off = (torch.cat(parts, 1) - whole)[visible.bool()].abs().max()
        assert off <= 1e-6 * whole.abs().max()


@torch.no_grad()
def test_positions_of_calls():
    """Calls name the positions of their queries and keys; sliding caches drop keys."""
    model = using(mistral(), "fovea")
    ids = text(batch=1, length=10)
    calls = []
    with observe(calls.append):
        model.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
    places = [(call.query_start, call.query.shape[2], call.key_start, call.key.shape[2]) for call in calls[::LAYERS]]
    assert places == [(0, 10, 0, 10), (10, 1, 4, 7), (11, 1, 5, 7), (12, 1, 6, 7)]
    for call in calls:
        region = (call.query_start, call.query.shape[2], call.key_start, call.key.shape[2])
        mask, alignment = call.rule.mask(*region)
        assert (str(mask), alignment) == (str(call.options["mask"]), call.options["alignment"])
    assert str(calls[-1].rule.mask(0, 13, 0, 13)[0]) == "window(6, -1) & causal()"


@torch.no_grad()
def test_positions_of_static_caches():
    """Static caches have empty slots, which no query sees. The copy of a mask that generate() makes keeps its rule."""
    model = using(llama(), "fovea")
    calls = []
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "disable_compile": True}
    with observe(calls.append):
        model.generate(text(batch=1, length=10), cache_implementation="static", **options)
    places = [(call.query_start, call.query.shape[2], call.key_start, call.key.shape[2]) for call in calls[::LAYERS]]
    slots = places[0][3]
    assert slots >= 13
    assert places == [(0, 10, 0, slots), (10, 1, 0, slots), (11, 1, 0, slots), (12, 1, 0, slots)]
    assert all(isinstance(call.rule, Causal) for call in calls)
    assert str(calls[0].options["mask"]) == "causal()"


# 16-bit types.


# T5 in float16 overflows outside of attention, with weights as large as these.
HALVES = [(make, torch.bfloat16) for make in (llama, mistral, gemma2, gpt_oss, t5, bert)]
HALVES += [(make, torch.float16) for make in (llama, mistral, gemma2, gpt_oss, bert)]


@pytest.mark.parametrize(("make", "dtype"), HALVES, ids=lambda one: getattr(one, "__name__", str(one)))
def test_types_of_16_bits(make, dtype, say):
    ids = text()
    visible = right_padded(ids)
    inputs = {"input_ids": ids, "attention_mask": visible}
    rows = visible.bool()
    if make is t5:
        inputs["decoder_input_ids"] = text(length=15)
        rows = torch.ones(2, 15, dtype=torch.bool)
    model = make()
    # The exact result is that of the rounded weights.
    right = result(copy.deepcopy(model).to(dtype), "plain", inputs, torch.float64)
    found = result(model, "fovea", inputs, dtype)
    other = result(model, "sdpa", inputs, dtype)
    other = result(model, "eager", inputs, dtype) if other is None else other
    assert found.dtype == dtype
    off, beside = ((one.double() - right)[rows].abs().max().item() for one in (found, other))
    assert off <= 2 * beside + 1e-6
    say(f"transformers, {make.__name__} in {dtype}: off by {off:.1e}, PyTorch by {beside:.1e}")


# Implementations.


def test_switching_implementations():
    model = llama()
    ids = text()
    with torch.no_grad():
        first = model(ids).logits
        model.set_attn_implementation("fovea")
        assert model.config._attn_implementation == "fovea"
        before = forward_calls()
        model(ids)
        assert forward_calls() - before == LAYERS
        model.set_attn_implementation("sdpa")
        assert torch.equal(model(ids).logits, first)
    config = transformers.LlamaConfig(**GROUPED, attn_implementation="fovea")
    assert transformers.LlamaForCausalLM(config).config._attn_implementation == "fovea"


def test_compiled_models():
    """torch.compile leaves attention and masks to Python."""
    torch._dynamo.reset()
    model = using(llama(), "fovea")
    ids = text()
    inputs = {"input_ids": ids, "attention_mask": left_padded(ids)}
    with torch.no_grad():
        right = model(**inputs).logits
        before = forward_calls()
        found = torch.compile(model, backend="eager")(**inputs).logits
    assert forward_calls() - before == LAYERS
    torch.testing.assert_close(found, right)


# Lenses, documentation, cost.


@pytest.mark.parametrize("padding", [False, True], ids=["whole", "padded"])
@torch.no_grad()
def test_lenses_agree_with_stored_weights(padding, monkeypatch):
    """Compares examples/python/heads.py with the weights that transformers' own attention returns."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "examples" / "python")
    import heads

    ids = text(length=30)
    visible = left_padded(ids)
    given = {"input_ids": ids} | ({"attention_mask": visible} if padding else {})
    stored = using(llama(), "eager")(**given, output_attentions=True).attentions
    recorder = heads.Recorder(fovea.Lenses(statistics=True, top=3))
    model = llama()
    heads.watch(model, recorder)
    model(**given)
    assert sorted(recorder.seen) == list(range(LAYERS))
    # Excludes padding queries, whose weights depend on the implementation.
    rows = (visible.bool() if padding else torch.ones_like(ids).bool())[:, None].expand(2, 4, 30).numpy()
    for layer, seen in recorder.seen.items():
        weights = stored[layer].double().numpy()
        entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(-1)
        np.testing.assert_allclose(seen.entropy[rows], entropy[rows], atol=1e-4)
        np.testing.assert_allclose(seen.top_weights[rows], -np.sort(-weights, axis=-1)[rows][:, :3], atol=1e-5)


def test_example_in_the_docstring():
    test = doctest.DocTestParser().get_doctest(
        fovea.transformers.__doc__, {"torch": torch}, "fovea.transformers", None, 0
    )
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def test_only_fovea_transformers_imports_transformers():
    program = (
        "import sys, fovea, fovea.torch; assert 'transformers' not in sys.modules; "
        "import fovea.transformers; assert 'transformers' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def microseconds(run, count):
    """Returns the time of a call: the best of several runs, in turns with other processes."""
    run()
    best = float("inf")
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(count):
            run()
        best = min(best, (time.perf_counter() - start) / count)
    return 1e6 * best


@torch.no_grad()
def test_cost_of_a_call(say):
    """One query on 64 keys: the call of a token, which the interface must not dominate."""
    module = torch.nn.Module()
    module.num_key_value_groups = 4
    query, key, value = drawn((1, 8, 1, 64), (1, 2, 64, 64), (1, 2, 64, 64))
    mask = fovea.transformers.mask(1, 1, 64, 63)
    engine = microseconds(lambda: fovea.attention(query, key, value, scale=0.125), 500)
    found = microseconds(lambda: fovea.transformers.attention(module, query, key, value, mask, scaling=0.125), 500)
    sdpa = microseconds(lambda: sdpa_attention_forward(module, query, key, value, None, scaling=0.125), 500)
    masking = microseconds(lambda: fovea.transformers.mask(1, 1, 64, 63).mask(), 200)
    theirs = microseconds(lambda: sdpa_mask(1, 1, 64, 63, allow_is_causal_skip=False), 200)
    say(
        f"transformers, 1 query on 64 keys: {found:.1f} us, of which {engine:.1f} in the engine; sdpa {sdpa:.1f} us; "
        f"the mask of a step {masking:.1f} us, sdpa's {theirs:.1f} us"
    )
    # Factors of 2 and 3 for other load; on an idle machine both are below 1.
    assert found < 2 * sdpa
    assert masking < 3 * theirs


@pytest.mark.parametrize("padded", [False, True], ids=["causal", "padded"])
@torch.no_grad()
def test_not_slower_than_sdpa(padded, say):
    module = torch.nn.Module()
    query, key, value = drawn((2, 8, 512, 64), (2, 8, 512, 64), (2, 8, 512, 64))
    visible = left_padded(torch.ones(2, 512)).bool() if padded else None
    mask = fovea.transformers.mask(2, 512, 512, attention_mask=visible)
    theirs = sdpa_mask(2, 512, 512, attention_mask=visible)
    found = microseconds(lambda: fovea.transformers.attention(module, query, key, value, mask), 1)
    sdpa = microseconds(lambda: sdpa_attention_forward(module, query, key, value, theirs), 1)
    say(f"transformers, 512 tokens{', padded' * padded}, 2 x 8 heads: {found:.0f} us, sdpa {sdpa:.0f} us")
    assert found < 1.5 * sdpa  # of which 0.5 for other load
