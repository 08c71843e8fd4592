# SPDX-License-Identifier: Apache-2.0
"""Tests single calls of the attention function of fovea.transformers: its options, T5's table, and what is refused."""

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402
from transformers.utils.generic import is_flash_attention_requested  # noqa: E402
from transformers_models import (  # noqa: E402
    DEEPSEEK,
    build,
    drawn,
    llama,
    plain,
    result,
    t5,
    text,
    using,
)

import fovea  # noqa: E402
import fovea.transformers  # noqa: E402
from fovea._observe.calls import observe  # noqa: E402

# Calls of the attention function.

CALLS = {
    "plain": {},
    "scaling": {"scaling": 0.3},
    "softcap": {"softcap": 0.7},
    "no softcap": {"softcap": 0},
    "sinks": {"s_aux": torch.tensor([0.5, -1.0, 2.0, 0.0])},
    "bias": {"position_bias": drawn((1, 4, 5, 9))[0]},
    "bias of items": {"position_bias": drawn((2, 4, 5, 9))[0], "scaling": 1.0},
    "zero bias": {"position_bias": torch.zeros(1, 4, 5, 9)},
    "ignored": {"sliding_window": 2, "position_ids": torch.arange(5), "indices": None, "cache": None},
    "all": {"scaling": 0.3, "softcap": 0.7, "s_aux": torch.ones(4), "position_bias": drawn((1, 1, 5, 9))[0]},
}


@pytest.mark.parametrize("masked", ["rule", "bools", "floats", "bias", None])
@pytest.mark.parametrize("name", CALLS)
@torch.no_grad()
def test_options_of_a_call(name, masked):
    query, key, value, bias = drawn((2, 4, 5, 8), (2, 2, 9, 8), (2, 2, 9, 6), (2, 1, 5, 9), dtype=torch.float64)
    module = torch.nn.Module()
    module.is_causal = False
    rule = fovea.transformers.mask(2, 5, 9, 4)
    shown = rule.elements()
    floats = torch.zeros(2, 1, 5, 9, dtype=torch.float64).masked_fill(~shown, torch.finfo(torch.float64).min)
    mask = {"rule": rule, "bools": shown, "floats": floats, "bias": bias, None: None}[masked]
    options = {
        key: one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for key, one in CALLS[name].items()
    }
    found, weights = fovea.transformers.attention(module, query, key, value, mask, **options)
    right, _ = plain(module, query, key, value, shown if masked == "rule" else mask, **options)
    assert weights is None
    assert (found.shape, found.is_contiguous()) == ((2, 5, 4, 6), True)
    torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_gradients_of_a_call():
    """Sinks, biases, masks of floats and a scale may require a gradient."""
    module = torch.nn.Module()
    shapes = (2, 4, 5, 8), (2, 2, 9, 8), (2, 2, 9, 6), (4,), (1, 4, 5, 9), (2, 1, 5, 9), ()
    tensors = [one.double().requires_grad_() for one in drawn(*shapes)]

    def loss(attend):
        query, key, value, s_aux, bias, mask, scale = tensors
        options = {"s_aux": s_aux, "position_bias": bias, "scaling": scale, "softcap": 3.0}
        context = attend(module, query, key, value, mask, **options)[0]
        return torch.autograd.grad(context.square().sum(), tensors)

    for found, right in zip(loss(fovea.transformers.attention), loss(plain), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_packed_sequences_with_their_lengths():
    """What collators pass for packed sequences: positions, and lengths that only flash attention reads."""
    model = using(llama(), "fovea")
    ids = text(batch=1, length=12)
    lengths = torch.tensor([0, 5, 12], dtype=torch.int32)
    packed = {"position_ids": torch.cat([torch.arange(5), torch.arange(7)])[None], "use_cache": False}
    found = model(ids, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths, **packed).logits
    right = torch.cat([model(ids[:, :5]).logits, model(ids[:, 5:]).logits], 1)
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="cu_seq_lens_q: expected a mask that separates 2 sequences"):
        model(ids, cu_seq_lens_q=lengths)


@torch.no_grad()
def test_causal_without_a_mask():
    """As "sdpa" does: causal if the keyword, or else the module, says so; aligned top left; not for one query."""
    module = torch.nn.Module()
    for q_len, kv_len in ((6, 6), (4, 6), (1, 6)):
        query, key, value = drawn((1, 2, q_len, 8), (1, 2, kv_len, 8), (1, 2, kv_len, 8))
        for own in (None, True, False):
            for keyword in (None, True, False):
                if own is not None:
                    module.is_causal = own
                given = {} if keyword is None else {"is_causal": keyword}
                found = fovea.transformers.attention(module, query, key, value, None, **given)[0]
                right = sdpa_attention_forward(module, query, key, value, None, **given)[0]
                torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)
        del module.is_causal


@torch.no_grad()
def test_queries_for_all_items():
    """Learned queries have batch 1."""
    query, key, value = drawn((1, 2, 3, 8), (4, 2, 5, 8), (4, 2, 5, 8))
    module = torch.nn.Module()
    found = fovea.transformers.attention(module, query, key, value, None, is_causal=False)[0]
    right = sdpa_attention_forward(module, query, key, value, None, is_causal=False)[0]
    assert found.shape == (4, 3, 2, 8)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_fully_masked_rows():
    query, key, value = drawn((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    visible = torch.tensor([[False, False, True, True]])
    mask = fovea.transformers.mask(1, 4, 4, attention_mask=visible)
    found = fovea.transformers.attention(torch.nn.Module(), query, key, value, mask)[0]
    assert found.isfinite().all()
    assert not found[0, :2].any()
    assert found[0, 2:].all()


def test_what_is_refused():
    query, key, value = drawn((1, 4, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8))
    module = torch.nn.Module()

    def call(*tensors, **options):
        return fovea.transformers.attention(module, *(tensors or (query, key, value)), None, **options)

    for options, parts in (
        ({"indices": torch.zeros(1, 5, 2)}, "indices: expected None .*, got a value; sparse attention"),
        ({"block_indices": torch.zeros(1)}, "block_indices: expected None"),
        ({"sinks": torch.zeros(1, 4, 5, 1)}, "sinks: expected None .* s_aux has one per head"),
        ({"cache": object()}, "cache: expected None .* paged caches"),
        ({"output_attentions": True}, "output_attentions: expected False"),
        ({"cu_seq_lens_q": torch.tensor([0, 2, 5])}, "cu_seq_lens_q: expected a mask that separates 2 sequences"),
        ({"s_aux": torch.zeros(3)}, "sinks: expected"),
        ({"softcap": -1.0}, "softcap: expected"),
        ({"dropout": 1.0}, "probability: expected"),
        ({"position_bias": torch.ones(1, 4, 5, 6)}, "bias: expected"),
    ):
        with pytest.raises(ValueError, match=parts):
            call(**options)
    meta = [one.to("meta") for one in (query, key, value)]
    for tensors in (meta, (query, *meta[1:])):
        with pytest.raises(ValueError, match=r"query, key: expected tensors on the CPU .*, got meta"):
            call(*tensors)
    with pytest.raises(ValueError, match=r"device: expected the CPU .*, got meta"):
        fovea.transformers.mask(1, 5, 5, device="meta")


def test_models_that_select_keys_are_refused():
    """DeepSeek V3.2 folds a choice of keys into its masks."""
    config = transformers.DeepseekV32Config(index_n_heads=2, index_head_dim=16, index_topk=8, **DEEPSEEK)
    model = build(transformers.DeepseekV32ForCausalLM, config)
    with pytest.raises(ValueError, match="indices: expected None"):
        result(model, "fovea", {"input_ids": text()})


def test_the_name_has_no_further_meaning():
    """transformers treats names with "flash" and some others differently."""
    model = using(llama(), "fovea")
    assert not is_flash_attention_requested(model.config)
    assert not is_flash_attention_requested(requested_attention_implementation="fovea")
    assert model.config._attn_implementation == "fovea"


# T5's table.


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_tables_replace_biases(mode):
    model = using(t5(), "fovea")
    calls = []
    with observe(calls.append), mode():
        found = model(input_ids=text(), decoder_input_ids=text(length=15))[0]
    tables = [call.options["relative"] for call in calls]
    assert [table is not None for table in tables] == [True, True, True, False, True, False]
    assert all(call.options["bias"] is None for call in calls)
    assert [table.bidirectional for table in tables if table is not None] == [True, True, False, False]
    right = result(model, "plain", {"input_ids": text(), "decoder_input_ids": text(length=15)})
    assert (found - right).abs().max() <= 1e-4 * right.abs().max()


@torch.no_grad()
def test_biases_that_differ_from_the_table():
    """A bias that the table does not give exactly is passed as it is."""
    model = using(t5(), "fovea")
    module = model.encoder.block[0].layer[0].SelfAttention
    query, key = drawn((1, 4, 9, 16), (1, 4, 9, 16))
    bias = module.compute_bias(9, 9)
    for change in (None, (0, 0, 0, 3), (0, 1, 4, 4), (0, 3, 8, 0)):
        other = bias.clone()
        if change is not None:
            other[change] += 0.5
        calls = []
        with observe(calls.append):
            found = fovea.transformers.attention(module, query, key, key, None, scaling=1.0, position_bias=other)[0]
        assert (calls[0].options["relative"] is None) == (change is not None)
        right = plain(module, query, key, key, None, scaling=1.0, position_bias=other)[0]
        torch.testing.assert_close(found, right)
