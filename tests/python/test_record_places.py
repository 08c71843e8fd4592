# SPDX-License-Identifier: Apache-2.0
"""Tests the names, layers and kinds of attentions in recordings of fovea.record(): modules that several layers share,
stages, stacks of plain PyTorch, and attentions outside of numbered layers."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_record_architectures import TOLERANCE, largest_error, recorded, stored_weights  # noqa: E402
from test_transformers_architectures import VISION, of  # noqa: E402
from transformers_models import SIZES, text  # noqa: E402

import fovea  # noqa: E402

GROUPS = {
    "two groups": {"num_hidden_groups": 2, "num_hidden_layers": 4},
    "groups of unequal length": {"num_hidden_groups": 3, "num_hidden_layers": 5},
    "two attentions in a group": {"num_hidden_groups": 2, "num_hidden_layers": 4, "inner_group_num": 2},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


@pytest.mark.parametrize("name", GROUPS)
def test_groups_of_shared_layers(name, path):
    model = of("AlbertModel", embedding_size=32, **SIZES | GROUPS[name])()
    inputs = {"input_ids": text()}
    stored = stored_weights(model, inputs)
    recording = recorded(model, inputs, path)
    assert [each.layer for each in recording] == list(range(len(stored["self"])))
    assert largest_error(recording, stored) <= TOLERANCE
    chosen = recorded(model, inputs, path, layers=[2, 3])
    for layer in (2, 3):
        difference = np.asarray(chosen[layer][1, 2]) - stored["self"][layer][1, 2].numpy()
        assert np.abs(difference).max() <= TOLERANCE


class Chain(torch.nn.Module):
    """Layers of self-attention, among which a module may occur several times."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, x, x, need_weights=False)[0]
        return x


def attention():
    return torch.nn.MultiheadAttention(16, 2, batch_first=True)


def run(model, path, *inputs, times=1, **options):
    with torch.no_grad(), fovea.record(model.eval(), path, progress=False):
        for _ in range(times):
            model(*inputs, **options)
    return fovea.Recording(path)


def test_a_module_in_several_places(path):
    torch.manual_seed(2)
    first, second = attention(), attention()
    x = torch.randn(1, 7, 16)
    recording = run(Chain(first, second, first, second), path, x)
    assert [(each.name, each.layer) for each in recording] == [(f"layers.{layer}", layer) for layer in range(4)]
    for layer, module in enumerate((first, second, first, second)):
        context, weights = module(x, x, x, average_attn_weights=False)
        for head in range(2):
            difference = np.asarray(recording[layer][head]) - weights[0, head].detach().numpy()
            assert np.abs(difference).max() <= TOLERANCE
        x = x + context


def test_a_model_that_runs_twice_in_a_pass(path):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.chain = Chain(attention(), attention())

        def forward(self, x):
            return self.chain(self.chain(x))

    recording = run(Twice(), path, torch.randn(1, 7, 16))
    assert [(each.name, each.layer) for each in recording] == [
        ("chain.layers.0", 0),
        ("chain.layers.1", 1),
        ("chain.layers.0.1", 2),
        ("chain.layers.1.1", 3),
    ]
    np.testing.assert_allclose(recording.rollout(-1).sum(), 1, atol=1e-6)


def test_attentions_without_numbers_follow_one_another(path):
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.chain, self.last = attention(), Chain(attention(), attention()), attention()

        def forward(self, x):
            x = self.chain(self.first(x, x, x)[0])
            return self.last(x, x, x)[0]

    recording = run(Plain(), path, torch.randn(1, 7, 16))
    assert [(each.name, each.layer) for each in recording] == [
        ("first", 0),
        ("chain.layers.0", 0),
        ("chain.layers.1", 1),
        ("last", 2),
    ]


def test_the_pooling_of_an_image_follows_its_layers(path):
    recording = recorded(VISION["SigLIP vision"](), {"pixel_values": torch.randn(1, 3, 24, 24)}, path)
    assert [each.layer for each in recording] == [0, 1, 2]
    assert "head" in recording[2].name


@pytest.mark.parametrize("heads", [None, [1, 3]])
def test_kinds_of_a_transformer_of_pytorch(heads, path):
    torch.manual_seed(1)
    model = torch.nn.Transformer(32, 4, 2, 2, 48, batch_first=True, dropout=0.0).eval()
    source, target = torch.randn(2, 7, 32), torch.randn(2, 5, 32)
    causal = model.generate_square_subsequent_mask(5)
    with torch.no_grad(), fovea.record(model, path, progress=False, heads=heads):
        model(source, target, tgt_mask=causal, tgt_is_causal=True)
    recording = fovea.Recording(path)
    assert [(each.kind, each.layer, each.shape[2:]) for each in recording] == [
        ("encoder", 0, (7, 7)),
        ("encoder", 1, (7, 7)),
        ("decoder", 0, (5, 5)),
        ("cross", 0, (5, 7)),
        ("decoder", 1, (5, 5)),
        ("cross", 1, (5, 7)),
    ]
    assert recording.layer(1, "cross").name == "decoder.layers.1.multihead_attn"
    with torch.no_grad():
        layer = model.encoder.layers[0]
        weights = layer.self_attn(source, source, source, average_attn_weights=False)[1]
    difference = np.asarray(recording.layer(0, "encoder")[1, 3]) - weights[1, 3].numpy()
    assert np.abs(difference).max() <= TOLERANCE


def test_kinds_of_one_stack_of_pytorch(path):
    encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2)
    assert [each.kind for each in run(encoder, path, torch.randn(1, 5, 16))] == ["self", "self"]
    decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(16, 2, 24, batch_first=True), 1)
    recording = run(decoder, path, torch.randn(1, 5, 16), torch.randn(1, 7, 16))
    assert [(each.kind, each.layer) for each in recording] == [("decoder", 0), ("cross", 0)]
