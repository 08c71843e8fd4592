# SPDX-License-Identifier: Apache-2.0
"""Tests training: the loss, Adam, clipping and schedules against NumPy, parameter files, a model that learns, and the
examples of docs/nn.md."""

import pathlib
import re

import numpy as np
import pytest
from problems import raises
from test_nn import differences, normal, page, python

from fovea import nn


def test_cross_entropy():
    loss = nn.CrossEntropy(ignored=-1, label_smoothing=0.1)
    logits = normal(2, 3, 4)
    targets = np.array([[0, 3, -1], [1, -1, 2]])
    found = loss.forward(logits, targets)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    counts = targets >= 0
    wanted = np.take_along_axis(log_p, np.maximum(targets, 0)[..., None], -1)[..., 0]
    expected = -(0.9 * wanted + 0.1 * log_p.mean(-1))[counts].mean()
    assert np.isclose(found, expected, rtol=1e-14)
    assert loss.counted == 4
    assert loss.correct == (logits.argmax(-1) == targets).sum()
    kept, logits = logits.copy(), logits * np.nan  # backward has its own copy
    gradient = loss.backward(3.0)

    def again():
        return 3 * nn.CrossEntropy(ignored=-1, label_smoothing=0.1).forward(kept, targets)

    assert np.allclose(gradient, differences(again, kept), atol=1e-9)
    assert nn.CrossEntropy(ignored=0).forward(kept, np.zeros((2, 3), int)) == 0


def test_adam_and_clipping_in_numpy():
    layer = nn.Linear(3, 2, dtype="float64")
    adam = nn.Adam(layer, weight_decay=0.1)
    weight = layer.parameters["weight"]
    value, mean, square = weight.copy(), 0.0, 0.0
    for step in range(1, 4):
        layer.zero_gradients()
        layer.forward(normal(5, 3))
        layer.backward(normal(5, 2))
        norm = np.sqrt(sum((g**2).sum() for g in layer.gradients.values()))
        assert np.isclose(nn.gradient_norm(layer), norm, rtol=1e-14)
        gradient = layer.gradients["weight"] * (1.0 / (norm + 1e-6))
        assert np.isclose(nn.clip_gradients(layer, 1.0), norm, rtol=1e-14)
        assert np.allclose(layer.gradients["weight"], gradient, rtol=1e-14)
        adam.step(0.01)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        corrected = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
        value = value * (1 - 0.01 * 0.1) - 0.01 * corrected
        assert np.allclose(weight, value, rtol=1e-12)
    assert adam.steps == 3
    assert np.allclose(adam.means["weight"], mean, rtol=1e-13)
    assert np.allclose(adam.squares["weight"], square, rtol=1e-13)
    # Another optimizer resumes from the state of the first.
    other = nn.Adam(layer, weight_decay=0.1)
    other.steps = adam.steps
    for name in layer.parameters:
        other.means[name][...] = adam.means[name]
        other.squares[name][...] = adam.squares[name]
    before = weight.copy()
    adam.step(0.01)
    after = weight.copy()
    weight[...] = before
    other.step(0.01)
    assert np.array_equal(weight, after)


def test_schedule():
    assert nn.Schedule().rate(100) == 1e-3
    warm = nn.Schedule(0.4, "inverse_root", warmup=4)
    assert np.allclose([warm.rate(step) for step in (0, 1, 3, 15)], [0.1, 0.2, 0.4, 0.2])
    cosine = nn.Schedule(peak=1.0, kind="cosine", warmup=0, total=11)
    assert np.isclose(cosine.rate(5), 0.5)
    assert cosine.rate(10) < 1e-15
    for options, message in (
        ({"peak": float("nan")}, "peak: expected a number of 0 or more, got nan"),
        ({"peak": -1.0}, "peak: expected a number of 0 or more, got -1"),
        ({"warmup": -3}, "warmup: expected 0 steps or more, got -3"),
        ({"kind": "cosine"}, "total: expected 1 step or more for a cosine, got 0"),
        ({"kind": "cosine", "total": -5}, "total: expected 1 step or more for a cosine, got -5"),
    ):
        with pytest.raises(ValueError, match=message):
            nn.Schedule(**options)
    with pytest.raises(ValueError, match="steps: expected 0 or more, got -1"):
        nn.Schedule().rate(-1)


def test_targets_of_no_classes():
    with pytest.raises(ValueError, match="targets: expected"):
        nn.CrossEntropy().forward(np.zeros((2, 0), np.float32), [5, -7])


@pytest.mark.parametrize("name", ["model.safetensors", "model.npz"])
def test_files(tmp_path, name):
    path = tmp_path / name
    layer, other = (nn.TransformerEncoderLayer(8, 2, 12, seed=seed) for seed in (1, 2))
    nn.save(layer, path)
    nn.load(other, str(path))
    for key, value in layer.parameters.items():
        assert np.array_equal(other.parameters[key], value)
    x = normal(1, 3, 8, dtype="float32")
    assert np.array_equal(layer.forward(x), other.forward(x))
    wide = nn.TransformerEncoderLayer(8, 2, 12, dtype="float64")
    nn.load(wide, path)
    assert np.array_equal(wide.parameters["linear1.weight"], layer.parameters["linear1.weight"])
    nn.save(wide, path)
    nn.load(other, path)


def test_files_that_do_not_fit(tmp_path):
    path = tmp_path / "layer.safetensors"
    nn.save(nn.Linear(3, 2), path)
    layer = nn.TransformerEncoderLayer(8, 2, 12)
    with raises(ValueError, "layer.safetensors", "12 missing (self_attn.in_proj_weight, ", ", ...)", "2 not expected"):
        nn.load(layer, path)
    with raises(ValueError, "1 that do not fit (weight: expected [2, 4], got [2, 3])"):
        nn.load(nn.Linear(4, 2), path)
    with raises(OSError, "none.safetensors"):
        nn.load(layer, tmp_path / "none.safetensors")
    with raises(OSError, "nowhere"):
        nn.save(layer, tmp_path / "nowhere" / "layer.safetensors")
    with raises(ValueError, "layer.pt"):
        nn.save(layer, tmp_path / "layer.pt")
    for name in (tmp_path / "one.npy", "-"):
        with raises(ValueError, "expected a name that ends in .safetensors or .npz"):
            nn.save(nn.Linear(2, 2, bias=False), name)
    assert [file.name for file in tmp_path.iterdir()] == ["layer.safetensors"]
    with pytest.raises(TypeError):
        nn.save(layer, 3)


def test_damaged_files_change_nothing(tmp_path):
    path = tmp_path / "layer.npz"
    nn.save(nn.Linear(7, 5, seed=1), path)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") - 1] ^= 1  # the last element of the last member
    path.write_bytes(data)
    layer = nn.Linear(7, 5, seed=2)
    before = {name: value.copy() for name, value in layer.parameters.items()}
    with raises(ValueError, "bias"):
        nn.load(layer, path)
    for name, value in layer.parameters.items():
        assert np.array_equal(value, before[name]), name


def test_gradients_of_large_logits():
    logits = (normal(8, 5) + 1e4).astype("float32")
    targets = np.arange(8) % 5
    gradients = []
    for of in (logits, logits.astype("float64")):
        loss = nn.CrossEntropy()
        loss.forward(of, targets)
        gradients.append(loss.backward())
    assert np.abs(gradients[0] - gradients[1]).max() <= 2.0**-24


def test_learns_to_reverse():
    """A small transformer learns to reverse sequences."""
    model = nn.Model(seed=1)
    embedding = nn.Embedding(6, 32, model=model, name="embedding")
    positions = nn.Positions("learned", 6, 32, model=model, name="positions")
    block = nn.TransformerEncoderLayer(32, 4, 64, norm="before", model=model, name="block")
    output = nn.Linear(32, 6, model=model, name="output")
    loss, adam = nn.CrossEntropy(), nn.Adam(model)
    schedule = nn.Schedule(peak=1e-2, kind="cosine", warmup=10, total=300)
    random = np.random.default_rng(1)
    for step in range(300):
        tokens = random.integers(0, 6, (32, 6))
        model.zero_gradients()
        model.train(step)
        loss.forward(output.forward(block.forward(positions.forward(embedding.forward(tokens)))), tokens[:, ::-1])
        embedding.backward(positions.backward(block.backward(output.backward(loss.backward()))))
        nn.clip_gradients(model, 1.0)
        adam.step(schedule.rate(step))
    model.evaluate()
    tokens = random.integers(0, 6, (100, 6))
    logits = output.forward(block.forward(positions.forward(embedding.forward(tokens))))
    assert (logits.argmax(-1) == tokens[:, ::-1]).mean() > 0.99


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)


def test_examples_of_the_page(tmp_path):
    (program,), (expected,) = blocks("python"), blocks("text")
    assert python(program, cwd=tmp_path) == expected
    (program,) = blocks("cpp")  # this program is run as an example
    example = pathlib.Path(__file__).parents[2] / "examples" / "cpp" / "learn.cc"
    assert example.read_text(encoding="utf-8").endswith(program)
