# SPDX-License-Identifier: Apache-2.0
"""Tests recordings of cross-attention whose queries come in parts, and whose mask hides keys: the weights are those of
the formula in float64, and those that transformers stores."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_record_architectures import TOLERANCE, largest_error, stored_weights  # noqa: E402
from test_transformers_architectures import ENCODER_DECODERS  # noqa: E402
from transformers_models import build, drawn, left_padded, right_padded, text  # noqa: E402

import fovea  # noqa: E402
from fovea._observe.rules import Documents, Region  # noqa: E402
from fovea._recording.joined_rule import _extended  # noqa: E402

QUERIES = 6


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


class Cross(torch.nn.Module):
    """Attention to a memory, with a mask."""

    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)
        self.queries = []

    def forward(self, x, memory, mask):
        query, self.keys = (one.unflatten(-1, (2, 8)).transpose(1, 2) for one in (self.query(x), self.key(memory)))
        self.queries.append(query)
        return torch.nn.functional.scaled_dot_product_attention(query, self.keys, self.keys, attn_mask=mask)

    def weights(self, mask):
        """Returns the weights of all calls in float64; 0 in rows that see nothing."""
        scores = torch.cat(self.queries, 2).double() @ self.keys.double().mT / 8**0.5
        return scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0).numpy()


def decoder():
    torch.manual_seed(3)
    return torch.nn.ModuleDict({"cross_attn": Cross()}).eval()


def masks(batch, keys):
    """Returns bool masks [batch, heads or 1, QUERIES or 1, keys] by name."""
    query, key = torch.arange(QUERIES)[:, None], torch.arange(keys)
    last = torch.arange(batch)[:, None, None, None] == batch - 1
    generator = torch.Generator().manual_seed(1)
    drawn_bools = torch.rand(batch, 2, QUERIES, keys, generator=generator) < 0.6
    return {
        "all": torch.ones(batch, 1, 1, keys, dtype=torch.bool),
        "right": (key < keys - keys // 3) | ~last,
        "left": (key >= keys // 3) | ~last,
        "both": ((key >= 1) & (key < keys - 1)).expand(batch, 1, 1, keys),
        "first key only": (key < 1).expand(batch, 1, 1, keys),
        "documents": (query // 2 == key * 3 // keys).expand(batch, 1, QUERIES, keys),
        "window": ((query - key).abs() < 3).expand(batch, 1, QUERIES, keys),
        "causal": (key <= query).expand(batch, 1, QUERIES, keys),
        "hidden rows": ((query >= 2) & (key < keys - 1)).expand(batch, 1, QUERIES, keys),
        "dense": drawn_bools[:, :1],
        "per head": drawn_bools,
    }


@torch.no_grad()
@pytest.mark.parametrize("compute", ["fovea", "original"])
@pytest.mark.parametrize("keys", [9, 4])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("parts", [(6,), (1,) * 6, (5, 1), (3, 1, 2), (1, 1, 4), (4, 2)])
def test_parts_of_plain_pytorch(parts, batch, keys, compute, path):
    x, memory = drawn((batch, QUERIES, 16), (batch, keys, 16))
    for name, mask in masks(batch, keys).items():
        model = decoder()
        whole = mask.expand(-1, -1, QUERIES, -1)
        with fovea.record(model, path, compute=compute, progress=False):
            for one, shown in zip(x.split(parts, 1), whole.split(parts, 2), strict=True):
                model.cross_attn(one, memory, shown if mask.shape[2] > 1 else mask)
        (each,) = fovea.Recording(path)
        assert each.kind == "cross"
        assert each.shape == (batch, 2, QUERIES, keys)
        expected = model.cross_attn.weights(whole)
        found = [[np.asarray(each[item, head], np.float64) for head in range(2)] for item in range(batch)]
        assert np.abs(np.array(found) - expected).max() <= TOLERANCE, name


@torch.no_grad()
@pytest.mark.parametrize("parts", [(6,), (3, 1, 2), (1, 1, 4)])
def test_selected_heads_of_parts(parts, path):
    x, memory = drawn((1, QUERIES, 16), (1, 9, 16))
    for mask in masks(1, 9).values():
        model = decoder()
        whole = mask.expand(-1, -1, QUERIES, -1)
        with fovea.record(model, path, heads=[1], progress=False):
            for one, shown in zip(x.split(parts, 1), whole.split(parts, 2), strict=True):
                model.cross_attn(one, memory, shown)
        found = np.asarray(fovea.Recording(path)[0][1], np.float64)
        assert np.abs(found - model.cross_attn.weights(whole)[0, 1]).max() <= TOLERANCE


def test_many_steps_share_their_padding(path):
    """One mask, not one for each step: more than 8 different ones are refused."""
    x, memory = drawn((2, 40, 16), (2, 9, 16))
    mask = masks(2, 9)["right"]
    model = decoder()
    with torch.no_grad(), fovea.record(model, path, progress=False):
        for one in x.split((3, *[1] * 37), 1):
            model.cross_attn(one, memory, mask.clone())
    (each,) = fovea.Recording(path)
    assert repr(each.options["mask"]) == "documents(ids)"
    found = [[np.asarray(each[item, head], np.float64) for head in range(2)] for item in range(2)]
    assert np.abs(np.array(found) - model.cross_attn.weights(mask.expand(-1, -1, 40, -1))).max() <= TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize(("compute", "how"), [("fovea", None), ("original", "sdpa"), ("original", "eager")])
@pytest.mark.parametrize("padded", [left_padded, right_padded])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["BART", "T5"])
def test_generation_with_padding(name, batch, padded, compute, how, path):
    model = ENCODER_DECODERS[name]()
    if name == "T5":  # has no scale
        for parameter in model.parameters():
            parameter.data.mul_(0.25 if parameter.dim() > 1 else 1)
    if how is not None:
        model.set_attn_implementation(how)
    ids = text(batch=batch, length=11)
    padding = padded(ids)
    new = {"do_sample": False, "max_new_tokens": 15, "min_new_tokens": 15, "decoder_start_token_id": 0}
    with fovea.record(model, path, compute=compute, progress=False):
        out = model.generate(ids, attention_mask=padding, **new)
    given = {"input_ids": ids, "attention_mask": padding, "decoder_input_ids": out[:, :-1]}
    recording = fovea.Recording(path)
    assert recording.layer(0, "cross").shape == (batch, 4, 15, 11)
    assert largest_error(recording, stored_weights(model, given), padding) <= TOLERANCE


def mllama():
    config = transformers.models.mllama.configuration_mllama.MllamaTextConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        cross_attention_layers=[1],
        pad_token_id=0,
    )
    model = build(transformers.MllamaForCausalLM, config)
    for parameter in model.parameters():
        if parameter.numel() == 1:  # gates of cross-attention
            parameter.data.fill_(1)
    return model


@torch.no_grad()
@pytest.mark.parametrize("compute", ["fovea", "original"])
@pytest.mark.parametrize("parts", [(8,), (5, 1, 1, 1), (1, 1, 6)])
def test_a_decoder_with_a_cache(parts, compute, path):
    """Its mask of floats has all queries, of which each part passes its own."""
    model = mllama()
    ids = text(batch=1, length=8)
    (image,) = drawn((1, 7, 32))
    visible = torch.ones(8, 7, dtype=torch.bool)
    visible[:, 5:] = False
    visible[:4, 3:] = False  # a second image behind these tokens
    mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min)[None, None]
    rows = torch.ones(1, 1, 8, 1)
    inputs = {"cross_attention_mask": mask, "full_text_row_masked_out_mask": rows}
    stored = model_weights(model, {"input_ids": ids, "cross_attention_states": image, **inputs})
    with fovea.record(model, path, compute=compute, progress=False):
        cache, begin = transformers.DynamicCache(), 0
        for length in parts:
            own = {name: one[:, :, begin : begin + length] for name, one in inputs.items()}
            states = {"cross_attention_states": image} if begin == 0 else {}
            model(ids[:, begin : begin + length], past_key_values=cache, use_cache=True, **states, **own)
            begin += length
    recording = fovea.Recording(path)
    assert [each.kind for each in recording] == ["self", "cross", "self"]
    for each, expected in zip(recording, stored, strict=True):
        for head in range(4):
            assert np.abs(np.asarray(each[head]) - expected[0, head].numpy()).max() <= TOLERANCE


def model_weights(model, inputs):
    model.set_attn_implementation("eager")
    found = model(**inputs, output_attentions=True, use_cache=False).attentions
    model.set_attn_implementation("sdpa")
    return found


@torch.no_grad()
def test_eager_attention_without_a_mask_is_not_causal(path):
    """Unlike sdpa, which is if the module says so."""
    model = mllama()
    model.set_attn_implementation("eager")
    (image,) = drawn((1, 7, 32))
    inputs = {"input_ids": text(batch=1, length=9), "cross_attention_states": image}
    stored = model(**inputs, output_attentions=True).attentions
    with fovea.record(model, path, compute="original", progress=False):
        model(**inputs)
    for each, expected in zip(fovea.Recording(path), stored, strict=True):
        for head in range(4):
            assert np.abs(np.asarray(each[head]) - expected[0, head].numpy()).max() <= TOLERANCE


def test_positions_that_ids_do_not_have_see_nothing():
    """-1 is the id of hidden keys: it may not be that of queries that a rule does not know."""
    rule = _extended(Documents(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([[0, 0, -1]])), Region(0, 3, 0, 4))
    shown = rule.visible(torch.zeros(1, dtype=torch.int64), torch.arange(3)[:, None], torch.arange(4))
    assert shown.int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
