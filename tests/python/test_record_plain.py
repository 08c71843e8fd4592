# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.record() of plain PyTorch: its layers, functions without a module, and masks that change."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

from test_record_architectures import TOLERANCE  # noqa: E402

import fovea  # noqa: E402


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


class Plain(torch.nn.Module):
    """Two kinds of attention of PyTorch."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.second = torch.nn.TransformerEncoderLayer(32, 2, 48, batch_first=True, dropout=0.0)

    def forward(self, x):
        x = x + self.first(x, x, x, need_weights=False)[0]
        return self.second(x, is_causal=True, src_mask=torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1]))


@torch.no_grad()
@pytest.mark.parametrize("compute", ["fovea", "original"])
def test_plain_pytorch(compute, path):
    model = Plain().eval()
    x = torch.randn(2, 13, 32)
    expected = model(x)
    with fovea.record(model, path, compute=compute, progress=False):
        found = model(x)
    assert (found - expected).abs().max() < 1e-5
    recording = fovea.Recording(path)
    assert list(recording.attentions) == ["first", "second.self_attn"]
    weights = model.first(x, x, x, average_attn_weights=False)[1]
    for item in range(2):
        for head in range(4):
            assert np.abs(np.asarray(recording["first"][item, head]) - weights[item, head].numpy()).max() <= TOLERANCE


@torch.no_grad()
def test_fewer_queries_than_keys(path):
    model = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    query, memory = torch.randn(1, 5, 32), torch.randn(1, 20, 32)
    with fovea.record(model, path, progress=False):
        model(query, memory, memory)
    weights = model(query, memory, memory, average_attn_weights=False)[1][0]
    each = fovea.Recording(path)[0]
    assert each.shape == (1, 4, 5, 20)
    assert max(np.abs(np.asarray(each[head]) - weights[head].numpy()).max() for head in range(4)) <= TOLERANCE


def test_a_function_without_a_module(path):
    query, key, value = torch.randn(3, 1, 2, 9, 8)
    with fovea.record(torch.nn.Identity(), path, progress=False):
        torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert "causal" in repr(fovea.Recording(path)["attention"])


class Changing(torch.nn.Module):
    """Attends with a mask that it changes between the calls, in ways that PyTorch does not count."""

    def __init__(self, change):
        super().__init__()
        self.change = change
        self.register_buffer("mask", torch.ones(9, 9, dtype=torch.bool))

    def forward(self, query):
        for width in (2, 5):
            self.change(self.mask, (torch.arange(9)[:, None] - torch.arange(9)).abs() < width)
            query = torch.nn.functional.scaled_dot_product_attention(query, query, query, self.mask)
        return query


@pytest.mark.parametrize("compute", ["fovea", "original"])
@pytest.mark.parametrize("by", ["data", "numpy"])
def test_a_mask_that_changes_unseen(by, compute, path):
    def change(mask, to):
        if by == "data":
            mask.data.copy_(to)
        else:
            mask.numpy()[:] = to.numpy()

    model, query = Changing(change), torch.randn(1, 2, 9, 16)
    expected = model(query)
    with fovea.record(model, path, compute=compute, progress=False):
        found = model(query)
    assert (found - expected).abs().max() < 1e-5
    texts = [repr(each) for each in fovea.Recording(path).attentions.values()]
    assert "window(1, 1)" in texts[0]
    assert "window(4, 4)" in texts[1]
