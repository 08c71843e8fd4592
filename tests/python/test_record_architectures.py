# SPDX-License-Identifier: Apache-2.0
"""Records models of many architectures with random weights: the weights recomputed from the recordings are those that
transformers stores with output_attentions=True."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_transformers_architectures import DECODERS, ENCODER_DECODERS, ENCODERS, VISION  # noqa: E402
from transformers_models import left_padded, right_padded, text, using  # noqa: E402

import fovea  # noqa: E402

TOLERANCE = 1e-5
# Models without a scale have scores of several hundred with the larger weights of build(), which float32 rounds too
# coarsely; they are taken as transformers initialises them.
UNSCALED = ("T5", "MT5", "UMT5", "Switch", "SigLIP text", "SigLIP vision")
# Kinds of attention, and where transformers returns their weights.
STORED = {
    "self": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}


@torch.no_grad()
def stored_weights(model, inputs):
    """Returns the weights of the model in plain float64, by the kind of attention, one tensor per layer."""
    model = using(model, "eager", torch.float64)
    given = {name: one.double() if one.is_floating_point() else one for name, one in inputs.items()}
    outputs = model(**given, output_attentions=True)
    return {kind: getattr(outputs, name, None) for kind, name in STORED.items()}


@torch.no_grad()
def recorded(model, inputs, path, **options):
    with fovea.record(model, path, progress=False, **options):
        model(**inputs)
    return fovea.Recording(path)


def largest_error(recording, stored, rows=None):
    """Returns the largest difference of any weight; rows [batch, q_len] of padding do not count."""
    worst = 0.0
    for kind, layers in stored.items():
        # The pooling of SigLIP, whose weights transformers does not return, is in "head".
        own = [each for each in recording if each.kind == kind and "head" not in each.name]
        if layers is None:
            assert not own
            continue
        assert len(own) == len(layers)
        for each, expected in zip(own, layers, strict=True):
            batch, heads, q_len, kv_len = each.shape
            assert tuple(expected.shape) == (batch, heads, q_len, kv_len)
            for item in range(batch):
                seen = (
                    slice(None)
                    if rows is None or kind == "cross" or rows.shape[1] != q_len
                    else rows[item].bool().numpy()
                )
                for head in range(heads):
                    found = np.asarray(each[item, head], dtype=np.float64)
                    difference = np.abs(found - expected[item, head].numpy())[seen]
                    worst = max(worst, difference.max(initial=0.0))
    return worst


def check(name, make, inputs, tmp_path, say, rows=None):
    model = make()
    if name in UNSCALED:
        for parameter in model.parameters():
            parameter.data.mul_(0.25 if parameter.dim() > 1 else 1)
    recording = recorded(model, inputs, tmp_path / "run.safetensors")
    worst = largest_error(recording, stored_weights(model, inputs), rows)
    say(f"recorded {name}: {len(recording)} attentions, largest error of a weight {worst:.1e}")
    assert worst <= TOLERANCE
    return recording


@pytest.mark.parametrize("name", DECODERS)
def test_decoders(name, tmp_path, say):
    ids = text()
    padding = left_padded(ids)
    recording = check(name, DECODERS[name], {"input_ids": ids, "attention_mask": padding}, tmp_path, say, padding)
    for each in recording:
        assert each.query_tokens(1).ids == ids[1].tolist()
        assert each.key_tokens(0) is recording.tokens["text.0"]


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name, tmp_path, say):
    ids = text()
    padding = right_padded(ids)
    recording = check(name, ENCODERS[name], {"input_ids": ids, "attention_mask": padding}, tmp_path, say, padding)
    assert [each.layer for each in recording] == [0, 1]


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_encoder_decoders(name, tmp_path, say):
    ids, answer = text(), text(length=9, seed=4)
    padding = right_padded(ids)
    inputs = {"input_ids": ids, "attention_mask": padding, "decoder_input_ids": answer}
    recording = check(name, ENCODER_DECODERS[name], inputs, tmp_path, say, padding)
    for each in recording:
        queries, keys = each.query_tokens(1), each.key_tokens(1)
        assert queries.ids == (ids if each.kind == "encoder" else answer)[1].tolist()
        assert keys.ids == (answer if each.kind == "decoder" else ids)[1].tolist()


@pytest.mark.parametrize("name", VISION)
def test_vision(name, tmp_path, say):
    torch.manual_seed(5)
    shape = (2, 4, 3, 24, 24) if name == "VideoMAE" else (2, 3, 24, 24)
    recording = check(name, VISION[name], {"pixel_values": torch.randn(shape)}, tmp_path, say)
    if name in ("ViT", "CLIP vision", "DINOv2"):
        assert recording.tokens["patches"].grid == (6, 6)
        assert recording.tokens["patches"][7] == "row 1, column 0"
