# SPDX-License-Identifier: Apache-2.0
"""Tests trainable layers on NumPy arrays: inputs and results, gradients against finite differences, views of
parameters, models of several layers, threads.

test_nn_training.py tests training, test_nn_mistakes.py errors; test_torch_nn.py compares each layer with PyTorch's."""

import gc
import inspect
import os
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from problems import raises

import fovea
from fovea import nn

RANDOM = np.random.default_rng(5)


def normal(*shape, dtype="float64"):
    return RANDOM.standard_normal(shape).astype(dtype)


# One layer of each kind, with the arguments of its forward.
X, MEMORY = (2, 3, 8), (2, 5, 8)
BLOCK = {"width": 8, "heads": 2, "inner": 12}
LAYERS = {
    "Linear": (lambda **k: nn.Linear(8, 6, **k), [X], {}),
    "Linear without a bias": (lambda **k: nn.Linear(8, 6, bias=False, **k), [X], {}),
    "LayerNorm": (lambda **k: nn.LayerNorm(8, **k), [X], {}),
    "Positions": (lambda **k: nn.Positions("learned", 9, 8, **k), [X], {"first": 2}),
    "Dropout": (lambda **k: nn.Dropout(0.25, **k), [X], {}),
    "FeedForward": (lambda **k: nn.FeedForward(8, 12, "gelu", dropout=0.25, **k), [X], {}),
    "self-attention": (lambda **k: nn.MultiHeadAttention(8, 4, kv_heads=2, **k), [X], {"mask": fovea.causal()}),
    "rotated": (lambda **k: nn.MultiHeadAttention(8, 2, rotary=fovea.Rotary(base=100.0), **k), [X], {}),
    "attention to a memory": (
        lambda **k: nn.MultiHeadAttention(8, 2, bias=False, dropout=0.25, **k),
        [X, MEMORY],
        {"mask": fovea.key_lengths([4, 2])},
    ),
    "encoder layer": (
        lambda **k: nn.TransformerEncoderLayer(**BLOCK, dropout=0.25, activation="gelu", **k),
        [X],
        {"mask": np.array([[True, False, True]])},
    ),
    "decoder layer": (
        lambda **k: nn.TransformerDecoderLayer(**BLOCK, norm="before", activation="gelu", **k),
        [X, MEMORY],
        {"mask": fovea.causal(), "memory_mask": fovea.key_lengths([5, 1])},
    ),
    "additive attention": (
        lambda **k: nn.AdditiveAttention(8, 6, 5, bias=True, **k),
        [X, (2, 5, 6), (2, 5, 4)],
        {"lengths": [4, 2]},
    ),
    "general attention": (lambda **k: nn.GeneralAttention(8, 6, **k), [X, (2, 5, 6), (2, 5, 4)], {"lengths": [5, 1]}),
    "recurrent": (lambda **k: nn.Gru(8, 5, bidirectional=True, **k), [X, (2, 2, 5)], {"lengths": [3, 2]}),
    "recurrent decoder": (
        lambda **k: nn.GruDecoder(8, 6, 4, 3, **k),
        [X, (2, 5, 4), (2, 6)],
        {"lengths": np.array([5, 3])},
    ),
    "transformer": (
        lambda **k: nn.Transformer(1, 2, **BLOCK, activation="gelu", dropout=0.25, **k),
        [MEMORY, X],
        {"source_lengths": [3, 5]},
    ),
}


@pytest.fixture(params=LAYERS.values(), ids=LAYERS)
def case(request):
    """A float64 layer in training mode with non-zero parameters, and the arguments of its forward."""
    make, shapes, options = request.param
    layer = make(dtype="float64", seed=3)
    for parameter in layer.parameters.values():
        parameter[...] = 0.5 * normal(*parameter.shape)
    layer.train(7)
    return layer, [normal(*shape) for shape in shapes], options


def differences(function, array, step=1e-4):
    """Returns the gradient of a scalar function by central differences of fourth order."""
    gradient = np.empty_like(array)
    for at in np.ndindex(array.shape):
        kept, found = array[at], []
        for distance in (-2, -1, 1, 2):
            array[at] = kept + distance * step
            found.append(function())
        array[at] = kept
        gradient[at] = (found[0] - 8 * found[1] + 8 * found[2] - found[3]) / (12 * step)
    return gradient


def test_gradients_equal_finite_differences(case):
    layer, inputs, options = case
    y = layer.forward(*inputs, **options)
    assert y.dtype == np.float64
    factors = normal(*y.shape)

    def loss():
        return float((layer.forward(*inputs, **options) * factors).sum())

    found = layer.backward(factors)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(inputs)
    of_parameters = {name: gradient.copy() for name, gradient in layer.gradients.items()}
    for gradient, x in zip(found, inputs, strict=True):
        assert np.allclose(gradient, differences(loss, x), rtol=1e-7, atol=1e-8)
    for name, parameter in layer.parameters.items():
        assert np.allclose(of_parameters[name], differences(loss, parameter), rtol=1e-7, atol=1e-8), name


def test_results_are_the_callers_own(case):
    layer, inputs, options = case
    first = layer.forward(*inputs, **options)
    kept = first.copy()
    found = layer.backward(np.ones_like(first))
    before = [one.copy() for one in (found if isinstance(found, tuple) else (found,))]
    expected = {name: gradient.copy() for name, gradient in layer.gradients.items()}
    # Inputs may change between the passes, and earlier results stay unchanged.
    layer.zero_gradients()
    assert not any(gradient.any() for gradient in layer.gradients.values())
    again = [x.copy() for x in inputs]
    second = layer.forward(*again, **options)
    for x in again:
        x[...] = np.nan
    assert np.array_equal(second, kept)
    assert np.array_equal(first, kept)
    second[...] = np.nan
    after = layer.backward(np.ones_like(first))
    for one, other in zip(before, after if isinstance(after, tuple) else (after,), strict=True):
        assert np.array_equal(one, other)
    for name, gradient in layer.gradients.items():
        assert np.array_equal(gradient, expected[name]), name


def test_any_strides(case):
    layer, inputs, options = case
    y = layer.forward(*inputs, **options)
    swapped = [np.asfortranarray(x) for x in inputs]
    assert np.array_equal(layer.forward(*swapped, **options), y)
    strided = [np.repeat(x, 2, axis=-1)[..., ::2] for x in inputs]
    assert np.array_equal(layer.forward(*strided, **options), y)
    grad = normal(*y.shape)
    one, other = layer.backward(grad), layer.backward(np.asfortranarray(grad))
    assert np.array_equal(one[0], other[0])


@pytest.mark.parametrize("wrap", [lambda mask: mask, fovea.dense, lambda mask: fovea.dense(mask) & fovea.window(2, 2)])
def test_masks_are_copied(wrap):
    x, memory, grad = normal(2, 4, 8), normal(2, 5, 8), normal(2, 4, 8)
    mask, memory_mask = np.tri(4, dtype=bool), np.tri(4, 5, dtype=bool)
    layers = {
        nn.MultiHeadAttention(8, 2, dtype="float64"): lambda layer, own, over: layer.forward(x, mask=own),
        nn.TransformerEncoderLayer(8, 2, 4, dtype="float64"): lambda layer, own, over: layer.forward(x, mask=own),
        nn.TransformerDecoderLayer(8, 2, 4, dtype="float64"): lambda layer, own, over: layer.forward(
            x, memory, mask=own, memory_mask=over
        ),
    }
    for layer, forward in layers.items():
        forward(layer, wrap(mask), wrap(memory_mask))
        expected, weights = np.copy(layer.backward(grad)[0]), layer.weights()
        own, over = mask.copy(), memory_mask.copy()
        forward(layer, wrap(own), wrap(over))
        own[...], over[...] = ~own, ~over
        assert np.array_equal(layer.backward(grad)[0], expected)
        assert np.array_equal(layer.weights(), weights)


def test_attention_without_items():
    layer = nn.MultiHeadAttention(8, 2)
    x, memory = np.zeros((0, 4, 8), np.float32), np.zeros((0, 5, 8), np.float32)
    for mask in (np.tri(4, dtype=bool), fovea.documents([0, 0, 1, 1]), fovea.key_lengths(2)):
        assert layer.forward(x, mask=mask).shape == x.shape
        assert layer.weights().shape == (0, 2, 4, 4)
        assert layer.backward(x).shape == x.shape
    assert layer.forward(x, memory, mask=np.ones((4, 5), bool)).shape == x.shape
    assert layer.weights().shape == (0, 2, 4, 5)
    assert [gradient.shape for gradient in layer.backward(x)] == [x.shape, memory.shape]


def test_no_rows(case):
    layer, inputs, options = case
    if "source_lengths" in options:
        options = {"source_lengths": []}
    elif "mask" in options or "lengths" in options:
        options = {}
    empty = [x[:, :0] if isinstance(layer, nn.Gru) and i == 1 else x[:0] for i, x in enumerate(inputs)]
    y = layer.forward(*empty, **options)
    assert y.size == 0
    assert y.ndim == 3
    layer.backward(y)
    assert not any(gradient.any() for gradient in layer.gradients.values())


def test_linear_in_numpy():
    layer = nn.Linear(3, 2, seed=1)
    assert list(layer.parameters) == ["weight", "bias"]
    weight, bias = layer.parameters["weight"], layer.parameters["bias"]
    assert weight.shape == (2, 3)
    assert weight.dtype == np.float32
    assert np.abs(weight).max() <= 1 / np.sqrt(3)
    x, grad = np.array([[1, 2, 3], [-1, 0, 4]], np.float32), np.array([[1, 0], [2, -1]], np.float32)
    assert np.allclose(layer.forward(x), x @ weight.T + bias, rtol=1e-6)
    assert np.allclose(layer.backward(grad), grad @ weight, rtol=1e-6)
    assert np.allclose(layer.gradients["weight"], grad.T @ x)
    assert np.array_equal(layer.gradients["bias"], [3, -1])
    layer.backward(grad)  # gradients accumulate
    assert np.array_equal(layer.gradients["bias"], [6, -2])


def test_embedding():
    layer = nn.Embedding(5, 3, padding=1)
    table = layer.parameters["weight"]
    assert not table[1].any()
    tokens = [[4, 1, 4], [0, 2, 1]]
    assert np.array_equal(layer.forward(tokens), table[tokens])
    assert np.array_equal(layer.forward(np.array(tokens, np.uint8)), table[tokens])
    grad = normal(2, 3, 3, dtype="float32")
    assert layer.backward(grad) is None
    assert np.array_equal(layer.gradients["weight"][4], grad[0, 0] + grad[0, 2])
    assert not layer.gradients["weight"][1].any()


def test_positions():
    table = nn.sinusoidal_positions(6, 4, dtype="float64")
    assert np.allclose(table[:, 0], np.sin(np.arange(6)))
    assert np.allclose(table[:, 3], np.cos(np.arange(6) / 100))
    x = normal(2, 3, 4, dtype="float32")
    layer = nn.Positions("sinusoidal", 6, 4)
    assert not layer.parameters
    assert np.allclose(layer.forward(x, first=3), x + table[3:], atol=1e-6)
    assert np.array_equal(layer.backward(x), x)
    assert np.array_equal(nn.Positions("none", 0, 4).forward(x), x)


def test_attention_weights():
    layer = nn.MultiHeadAttention(8, 2, dtype="float64", seed=2)
    x, memory = normal(1, 3, 8), normal(1, 4, 8)
    layer.forward(x, memory, mask=fovea.causal())
    weights = layer.weights()
    assert weights.shape == (1, 2, 3, 4)
    assert np.allclose(weights.sum(-1), 1)
    # Query i is aligned with key i.
    assert np.array_equal(weights[0, 0] > 0, np.tri(3, 4, dtype=bool))
    whole = nn.Transformer(1, 2, 8, 2, 12)
    whole.forward(memory.astype("float32"), x.astype("float32"), source_lengths=[2])
    for layer in (0, -1):
        seen = whole.cross_weights(layer)
        assert np.allclose(seen.sum(-1), 1, rtol=1e-5)
        assert not seen[..., 2:].any()
    with raises(ValueError, "layer: expected -2 to 1, got 2"):
        whole.cross_weights(2)


def test_halves_of_a_transformer():
    layer = nn.Transformer(2, 1, 8, 2, 12, norm="before", seed=4)
    source, target = normal(2, 5, 8, dtype="float32"), normal(2, 3, 8, dtype="float32")
    y = layer.forward(source, target, source_lengths=[5, 2])
    memory = layer.encode(source, source_lengths=[5, 2])
    assert np.array_equal(layer.decode(target, memory, source_lengths=[5, 2]), y)
    with raises(RuntimeError, "backward: expected a forward before it"):
        layer.backward(y)
    assert np.allclose(layer.cross_weights().sum(-1), 1, rtol=1e-5)
    layer.encode(source)
    with raises(RuntimeError, "cross_weights: expected a forward before it"):
        layer.cross_weights()
    fresh = nn.Transformer(1, 1, 8, 2, 12)
    fresh.encode(source)
    with raises(RuntimeError, "cross_weights: expected a forward before it"):
        fresh.cross_weights()


def test_attentions_without_values():
    for layer in (nn.AdditiveAttention(4, 4, 3, dtype="float64"), nn.GeneralAttention(4, 4, dtype="float64")):
        query, keys = normal(1, 2, 4), normal(1, 3, 4)
        context = layer.forward(query, keys)
        assert np.allclose(layer.weights() @ keys, context)
        grad_query, grad_keys, grad_values = layer.backward(context)
        assert grad_query.shape == query.shape
        assert grad_keys.shape == keys.shape
        assert grad_values is None
        layer.forward(query, keys, keys.copy())
        assert np.allclose(sum(layer.backward(context)[1:]), grad_keys)


def test_final_state_of_a_gru():
    layer = nn.Gru(3, 4, bidirectional=True)
    x = normal(2, 5, 3, dtype="float32")
    y = layer.forward(x, lengths=[5, 2])
    final = layer.final_hidden()
    assert np.array_equal(final[0], [y[0, 4, :4], y[1, 1, :4]])
    assert np.array_equal(final[1], y[:, 0, 4:])
    assert not y[1, 2:].any()
    grad_x, grad_initial = layer.backward(np.zeros_like(y), grad_final=np.ones_like(final))
    assert grad_x[1, :2].any()
    assert not grad_x[1, 2:].any()
    assert grad_initial.shape == final.shape
    with raises(ValueError, "grad_final: expected [2, 2, 4], got [1, 2, 4]"):
        layer.backward(y, final[:1])


def test_dropout_follows_seed_and_step():
    ones = np.ones((50, 40), np.float32)
    layer = nn.Dropout(0.25, seed=3)
    assert not layer.training
    assert np.array_equal(layer.forward(ones), ones)
    layer.train(1)
    assert layer.training
    first = layer.forward(ones)
    assert set(np.unique(first)) == {0.0, np.float32(1 / 0.75)}
    assert 0.2 < (first == 0).mean() < 0.3
    assert np.array_equal(layer.forward(ones), first)
    assert np.array_equal(layer.backward(ones), first)
    layer.train(2)
    assert not np.array_equal(layer.forward(ones), first)
    other = nn.Dropout(0.25, seed=3)
    other.train(1)
    assert np.array_equal(other.forward(ones), first)
    layer.evaluate()
    assert np.array_equal(layer.forward(ones), ones)


def test_parameters_are_views():
    layer = nn.Linear(2, 2)
    weight = layer.parameters["weight"]
    weight[...] = [[1, 2], [3, 4]]
    layer.parameters["bias"][...] = 0
    x = np.ones((1, 2), np.float32)
    assert np.array_equal(layer.forward(x), [[3, 7]])
    gradient = layer.gradients["weight"]
    layer.backward(x)
    assert np.array_equal(gradient, [[1, 1], [1, 1]])
    with pytest.raises(TypeError, match="item assignment"):
        layer.parameters["weight"] = weight
    # Views keep their parameters alive.
    del layer
    gc.collect()
    assert np.array_equal(weight, [[1, 2], [3, 4]])
    weight += gradient
    assert weight[1, 1] == 5


def test_a_model_of_several_layers():
    model = nn.Model(seed=3)
    first = nn.Linear(4, 8, model=model, name="encoder.first")
    second = nn.Linear(8, 2, model=model, name="second")
    assert list(model.parameters) == ["encoder.first.weight", "encoder.first.bias", "second.weight", "second.bias"]
    assert list(first.parameters) == list(model.parameters)  # a layer is its model
    assert isinstance(first, nn.Model)
    assert "4 parameters, 58 numbers of float32" in repr(model)
    again = nn.Model(seed=3)
    nn.Linear(4, 8, model=again, name="encoder.first")
    assert np.array_equal(again.parameters["encoder.first.weight"], model.parameters["encoder.first.weight"])
    with raises(ValueError, 'there is a "second.weight" already'):
        nn.Linear(8, 2, model=model, name="second")
    with raises(ValueError, "dtype: expected none beside model"):
        nn.Linear(8, 2, model=model, name="third", dtype="float64")
    x = normal(3, 4, dtype="float32")
    y = second.forward(first.forward(x))
    first.backward(second.backward(y))
    assert all(gradient.any() for gradient in model.gradients.values())
    # A layer keeps its model alive.
    del model, first
    gc.collect()
    assert np.array_equal(second.backward(y).shape, (3, 8))


def test_failed_layers_leave_the_model_unchanged():
    model, other = nn.Model(seed=3), nn.Model(seed=3)
    rotary = fovea.Rotary(dims=6)
    for failing in (
        lambda: nn.Embedding(3, 3, padding=7, model=model, name="layer"),
        lambda: nn.FeedForward(3, 0, model=model, name="layer"),
        lambda: nn.FeedForward(3, 4, dropout=2, model=model, name="layer"),
        lambda: nn.LayerNorm(3, 0.0, model=model, name="layer"),
        lambda: nn.TransformerEncoderLayer(8, 2, 0, model=model, name="layer"),
        lambda: nn.Transformer(1, -1, 8, 2, 4, model=model, name="layer"),
        lambda: nn.MultiHeadAttention(6, 2, rotary=fovea.Rotary(), model=model, name="layer"),
        lambda: nn.TransformerEncoderLayer(8, 2, 4, rotary=rotary, model=model, name="layer"),
    ):
        with pytest.raises(ValueError, match="expected"):
            failing()
        assert not model.parameters
    for one in (model, other):
        nn.TransformerEncoderLayer(8, 2, 4, model=one, name="layer")
    for name, parameter in other.parameters.items():
        assert np.array_equal(model.parameters[name], parameter)


def test_gradients_of_another_shape(case):
    layer, inputs, options = case
    y = layer.forward(*inputs, **options)
    for wrong in (y[:1], y[..., :-1], y[0], np.concatenate([y, y], 1)):
        if isinstance(layer, nn.Positions) and not layer.gradients:
            continue
        with pytest.raises(ValueError, match=r"^grad_(y|context): expected \["):
            layer.backward(wrong)
    with raises(ValueError, ": expected float64, as the parameters are, got float32"):
        layer.backward(y.astype("float32"))
    # A failed forward invalidates the state of the previous one.
    with pytest.raises(ValueError, match="expected"):
        layer.forward(*[x.astype("float32") for x in inputs], **options)
    with raises(RuntimeError, "backward: expected a forward before it"):
        layer.backward(y)


def test_one_call_at_a_time():
    model = nn.Model()
    layer = nn.Linear(1000, 1000, model=model, name="large")
    other = nn.Linear(1, 1, model=model, name="small")
    x = np.ones((20000, 1000), np.float32)
    refused, done = [], threading.Event()
    made, refusals = 0, []

    def compute():
        layer.forward(x)
        done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    # This loop runs while the other thread computes without the GIL.
    while not done.is_set():
        try:
            other.forward(np.ones((1, 1), np.float32))
        except RuntimeError as error:
            refused.append(str(error))
        for make, options in ((nn.Linear, {"in_features": 1, "out_features": 1, "name": f"made{made}"}), (nn.Adam, {})):
            try:
                make(model=model, **options)
                made += 1
            except RuntimeError as error:
                refusals.append(str(error))
    thread.join()
    assert len(refusals) >= 2
    assert set(refusals) == {refused[0]}
    assert refused
    assert "another thread is computing with this layer's model" in refused[0]
    other.forward(np.ones((1, 1), np.float32))


def test_threads(case):
    layer, inputs, options = case
    found = []
    try:
        for threads in (1, 2, 3, None):
            nn.set_threads(threads)
            layer.zero_gradients()
            y = layer.forward(*inputs, **options)
            layer.backward(np.ones_like(y))
            found.append([y, *(gradient.copy() for gradient in layer.gradients.values())])
    finally:
        nn.set_threads(None)
    for others in found[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(found[0], others, strict=True))


def python(program, **options):
    result = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, encoding="utf-8", **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_fovea_loads_neither_nn_nor_onednn():
    assert python("import sys, fovea; print({'fovea.nn', 'fovea._nn'} & {*sys.modules})") == "set()\n"
    assert "dnnl" not in python("import fovea; print(open('/proc/self/maps').read())")
    assert "dnnl" in python("import fovea.nn; print(open('/proc/self/maps').read())")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork()")
def test_in_a_forked_child():
    program = """
import os, numpy as np
from fovea import nn
layer, x = nn.TransformerEncoderLayer(64, 4, 128), np.ones((8, 50, 64), np.float32)
expected = layer.forward(x)
child = os.fork()
if child == 0:
    os._exit(0 if np.allclose(layer.forward(x), expected, rtol=1e-5) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    python(program, timeout=60)


def test_everything_is_documented():
    assert nn.__doc__
    assert nn.__all__ == sorted(nn.__all__)
    assert {name for name in vars(nn) if not name.startswith("_")} == set(nn.__all__)
    for name in nn.__all__:
        thing = getattr(nn, name)
        assert thing.__doc__, name
        assert re.search(rf"\b{name}\b", nn.__doc__ + page()), name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not member.startswith("_"):
                assert value.__doc__, f"{name}.{member}"


def page():
    return (pathlib.Path(__file__).parents[2] / "docs" / "nn.md").read_text(encoding="utf-8")


def test_signal_handlers_do_not_corrupt_the_heap():
    # oneDNN's kernels use the stack pointer for other memory (fovea/nn/signal_stack.h). With several threads,
    # the next alarm could reach another thread while one is in the handler, so the test uses one thread.
    program = """
import signal, time
import numpy as np
from fovea import nn

heard = []
signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
layer = nn.Linear(177, 211)
x, grad = np.ones((96, 177), np.float32), np.ones((96, 211), np.float32)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    layer.forward(x)
    layer.backward(grad)
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(heard) > 10, heard
"""
    subprocess.run([sys.executable, "-B", "-c", program], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
