# SPDX-License-Identifier: Apache-2.0
"""Compares layers with PyTorch's modules, with the same parameters by name: results and all gradients, with masks,
both norm placements and both activations; the loss, the optimisers, clipping; files in both directions.

In float64 both agree to 1e-12. In float32 the 1x rule (docs/numerics.md) applies: the error against PyTorch's float64
is at most that of PyTorch's float32, plus some roundings of the largest element."""

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import safetensors.torch  # noqa: E402

import fovea  # noqa: E402
from fovea import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")

WIDTH, HEADS, INNER, BATCH, LENGTH, KV_LEN = 24, 4, 40, 3, 7, 9
X, MEMORY = (BATCH, LENGTH, WIDTH), (BATCH, KV_LEN, WIDTH)
BLOCK = {"width": WIDTH, "heads": HEADS, "inner": INNER}
LENGTHS, OWN_LENGTHS = [9, 4, 1], [7, 5, 2]
# Per kind and dtype: the largest error, and the largest ratio of error to tolerance.
WORST = collections.defaultdict(lambda: (0.0, 0.0))


def padding(lengths, longest):
    """Returns PyTorch's padding mask, True at padding."""
    return torch.arange(longest) >= torch.tensor(lengths)[:, None]


LATER = ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()


@dataclasses.dataclass
class Case:
    kind: str
    ours: Callable  # constructs the layer from the keywords common to all layers
    theirs: Callable
    inputs: Sequence[tuple[int, ...]]
    options: dict = dataclasses.field(default_factory=dict)  # options of the layer's forward
    call: Callable = lambda module, *inputs: module(*inputs)


def block_of_theirs(kind, activation, norm, dropout=0.0):
    return kind(
        WIDTH, HEADS, INNER, dropout=dropout, activation=activation, batch_first=True, norm_first=norm == "before"
    )


def attention_of_theirs(**options):
    return torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **options)


def own_attention(**options):
    return lambda module, x: module(x, x, x, need_weights=False, **options)[0]


CASES = {
    "Linear": Case("Linear", lambda **k: nn.Linear(24, 10, **k), lambda: torch.nn.Linear(24, 10), [X]),
    "Linear without a bias": Case(
        "Linear", lambda **k: nn.Linear(24, 33, bias=False, **k), lambda: torch.nn.Linear(24, 33, bias=False), [X]
    ),
    "LayerNorm": Case("LayerNorm", lambda **k: nn.LayerNorm(24, **k), lambda: torch.nn.LayerNorm(24), [X]),
    "LayerNorm with epsilon": Case(
        "LayerNorm", lambda **k: nn.LayerNorm(24, epsilon=0.1, **k), lambda: torch.nn.LayerNorm(24, eps=0.1), [X]
    ),
    "Dropout in eval": Case("Dropout", lambda **k: nn.Dropout(0.3, **k), lambda: torch.nn.Dropout(0.3).eval(), [X]),
    "self-attention": Case(
        "MultiHeadAttention",
        lambda **k: nn.MultiHeadAttention(WIDTH, HEADS, **k),
        attention_of_theirs,
        [X],
        {},
        own_attention(),
    ),
    "causal": Case(
        "MultiHeadAttention",
        lambda **k: nn.MultiHeadAttention(WIDTH, HEADS, bias=False, **k),
        lambda: attention_of_theirs(bias=False),
        [X],
        {"mask": fovea.causal()},
        own_attention(attn_mask=LATER),
    ),
    "causal and padded": Case(
        "MultiHeadAttention",
        lambda **k: nn.MultiHeadAttention(WIDTH, HEADS, **k),
        attention_of_theirs,
        [X],
        {"mask": fovea.causal() & fovea.key_lengths(OWN_LENGTHS)},
        own_attention(attn_mask=LATER, key_padding_mask=padding(OWN_LENGTHS, LENGTH)),
    ),
    "attention in eval": Case(
        "MultiHeadAttention",
        lambda **k: nn.MultiHeadAttention(WIDTH, HEADS, dropout=0.4, **k),
        lambda: attention_of_theirs(dropout=0.4).eval(),
        [X],
        {},
        own_attention(),
    ),
    "attention to a memory": Case(
        "MultiHeadAttention",
        lambda **k: nn.MultiHeadAttention(WIDTH, HEADS, **k),
        attention_of_theirs,
        [X, MEMORY],
        {"mask": fovea.key_lengths(LENGTHS)},
        lambda module, x, memory: module(
            x, memory, memory, need_weights=False, key_padding_mask=padding(LENGTHS, KV_LEN)
        )[0],
    ),
}
for activation in ("relu", "gelu"):
    for norm in ("after", "before"):
        like = {**BLOCK, "activation": activation, "norm": norm}
        CASES[f"encoder layer, {activation}, norm {norm}"] = Case(
            "TransformerEncoderLayer",
            lambda like=like, **k: nn.TransformerEncoderLayer(**like, **k),
            lambda a=activation, n=norm: block_of_theirs(torch.nn.TransformerEncoderLayer, a, n),
            [X],
            {"mask": fovea.key_lengths(OWN_LENGTHS)},
            lambda module, x: module(x, src_key_padding_mask=padding(OWN_LENGTHS, LENGTH)),
        )
        CASES[f"decoder layer, {activation}, norm {norm}"] = Case(
            "TransformerDecoderLayer",
            lambda like=like, **k: nn.TransformerDecoderLayer(**like, **k),
            lambda a=activation, n=norm: block_of_theirs(torch.nn.TransformerDecoderLayer, a, n),
            [X, MEMORY],
            {"mask": fovea.causal(), "memory_mask": fovea.key_lengths(LENGTHS)},
            lambda module, x, memory: module(
                x, memory, tgt_mask=LATER, memory_key_padding_mask=padding(LENGTHS, KV_LEN)
            ),
        )
        CASES[f"transformer, {activation}, norm {norm}"] = Case(
            "Transformer",
            lambda like=like, **k: nn.Transformer(2, 3, **like, **k),
            lambda a=activation, n=norm: torch.nn.Transformer(
                WIDTH, HEADS, 2, 3, INNER, dropout=0.0, activation=a, batch_first=True, norm_first=n == "before"
            ),
            [MEMORY, X],
            {"source_lengths": LENGTHS},
            lambda module, source, target: module(
                source,
                target,
                tgt_mask=LATER,
                src_key_padding_mask=padding(LENGTHS, KV_LEN),
                memory_key_padding_mask=padding(LENGTHS, KV_LEN),
            ),
        )


def packed(module, x, initial):
    steps = torch.nn.utils.rnn.pack_padded_sequence(x, OWN_LENGTHS, batch_first=True, enforce_sorted=False)
    y = module(steps, initial)[0]
    return torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=LENGTH)[0]


for both in (False, True):
    CASES[f"GRU{', both ways' if both else ''}"] = Case(
        "Gru",
        lambda both=both, **k: nn.Gru(WIDTH, 16, bidirectional=both, **k),
        lambda both=both: torch.nn.GRU(WIDTH, 16, batch_first=True, bidirectional=both),
        [X, (1 + both, BATCH, 16)],
        {"lengths": OWN_LENGTHS},
        packed,
    )
CASES["encoder layer in eval"] = Case(
    "TransformerEncoderLayer",
    lambda **k: nn.TransformerEncoderLayer(**BLOCK, dropout=0.4, **k),
    lambda: block_of_theirs(torch.nn.TransformerEncoderLayer, "relu", "after", dropout=0.4).eval(),
    [X],
)


class Additive(torch.nn.Module):
    """Bahdanau's attention; PyTorch has no module for it."""

    def __init__(self, query_dim, key_dim, dim):
        super().__init__()
        self.query_proj = torch.nn.Linear(query_dim, dim, bias=False)
        self.key_proj = torch.nn.Linear(key_dim, dim, bias=False)
        self.v = torch.nn.Parameter(torch.randn(dim))

    def forward(self, query, keys, values):
        scores = (self.query_proj(query)[:, :, None] + self.key_proj(keys)[:, None]).tanh() @ self.v
        return scores.masked_fill(padding(LENGTHS, KV_LEN)[:, None], -math.inf).softmax(-1) @ values


class General(torch.nn.Module):
    """Luong's attention; PyTorch has no module for it."""

    def __init__(self):
        super().__init__()
        self.query_proj = torch.nn.Linear(WIDTH, 20, bias=False)

    def forward(self, query, keys, values):
        scores = self.query_proj(query) @ keys.mT
        return scores.masked_fill(padding(LENGTHS, KV_LEN)[:, None], -math.inf).softmax(-1) @ values


class Decoder(torch.nn.Module):
    """Bahdanau's decoder, from a GRU cell and Bahdanau's attention."""

    def __init__(self):
        super().__init__()
        self.attention = Additive(16, WIDTH, 12)
        self.cell = torch.nn.GRUCell(10 + WIDTH, 16)

    def forward(self, embeddings, encoder, hidden):
        rows = []
        for embedding in embeddings.unbind(1):
            context = self.attention(hidden[:, None], encoder, encoder)[:, 0]
            hidden = self.cell(torch.cat([embedding, context], -1), hidden)
            rows.append(torch.cat([hidden, context, embedding], -1))
        return torch.stack(rows, 1)


# Cases with the modules defined above.
BUILT = {
    "additive": Case(
        "AdditiveAttention",
        lambda **k: nn.AdditiveAttention(WIDTH, 20, 12, **k),
        lambda: Additive(WIDTH, 20, 12),
        [X, (BATCH, KV_LEN, 20), MEMORY],
        {"lengths": LENGTHS},
    ),
    "general": Case(
        "GeneralAttention",
        lambda **k: nn.GeneralAttention(WIDTH, 20, **k),
        General,
        [X, (BATCH, KV_LEN, 20), MEMORY],
        {"lengths": LENGTHS},
    ),
    "decoder": Case(
        "GruDecoder",
        lambda **k: nn.GruDecoder(10, 16, WIDTH, 12, **k),
        Decoder,
        [(BATCH, LENGTH, 10), MEMORY, (BATCH, 16)],
        {"lengths": LENGTHS},
    ),
}


def take_over(layer, module):
    """Copies the module's parameters to the layer; the names must match exactly."""
    state = module.state_dict()
    assert set(layer.parameters) == set(state)
    for name, parameter in layer.parameters.items():
        assert parameter.shape == tuple(state[name].shape), name
        parameter[...] = state[name].numpy()


def of_theirs(case, module, inputs, grad):
    """Returns the result and every gradient, converted to float64."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    y = case.call(module, *leaves)
    module.zero_grad()
    y.backward(grad)
    found = {"y": y, **{f"grad_{i}": x.grad for i, x in enumerate(leaves)}}
    found.update({name: p.grad for name, p in module.named_parameters()})
    return {name: one.detach().double().numpy() for name, one in found.items()}


def of_ours(case, layer, inputs, grad):
    y = layer.forward(*inputs, **case.options)
    layer.zero_gradients()
    gradients = layer.backward(grad)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    assert len(gradients) == len(inputs)
    return {"y": y, **{f"grad_{i}": x for i, x in enumerate(gradients)}, **layer.gradients}


def judge(kind, dtype, ours, right, theirs=None):
    """Checks each result against its tolerance, and records the worst errors."""
    assert ours.keys() == right.keys()
    for name, one in ours.items():
        assert one.dtype == dtype
        assert one.shape == right[name].shape, name
        assert np.isfinite(one).all(), name
        size = max(np.abs(right[name]).max(initial=0), 1.0)
        error = np.abs(one - right[name]).max(initial=0)
        if dtype == "float64":
            allowed = 1e-12 * size
        else:
            # Includes roundings of lse: with few queries, the two passes add products in different orders.
            allowed = np.abs(theirs[name] - right[name]).max(initial=0) + 24 * 2.0**-24 * size
        before = WORST[kind, dtype]
        WORST[kind, dtype] = (max(before[0], error), max(before[1], error / allowed))
        assert error <= allowed, f"{name}: off by {error:.3g}, allowed {allowed:.3g}"


def drawn(case, seed):
    """Returns a float64 module with non-zero parameters, inputs, and the gradient of the result. All values are exact
    in float32, so that both dtypes have the same values."""
    torch.manual_seed(seed)
    module = case.theirs().double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
            parameter.copy_(parameter.float())
    inputs = [torch.randn(shape).double() for shape in case.inputs]
    with torch.no_grad():
        grad = torch.randn(case.call(module, *inputs).shape).double()
    return module, inputs, grad


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("case", [*CASES.values(), *BUILT.values()], ids=[*CASES, *BUILT])
def test_layer(case, seed):
    module, inputs, grad = drawn(case, seed)
    right = of_theirs(case, module, inputs, grad)
    exact = case.ours(dtype="float64")
    take_over(exact, module)
    if module.training:
        exact.train(1)
    judge(case.kind, "float64", of_ours(case, exact, [x.numpy() for x in inputs], grad.numpy()), right)

    module.float()
    inputs, grad = [x.float() for x in inputs], grad.float()
    theirs = of_theirs(case, module, inputs, grad)
    layer = case.ours()
    take_over(layer, module)
    judge(case.kind, "float32", of_ours(case, layer, [x.numpy() for x in inputs], grad.numpy()), right, theirs)
    # Layers accept torch tensors.
    assert np.array_equal(layer.forward(*inputs, **case.options), of_ours(case, layer, inputs, grad)["y"])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pytorch_loads_our_parameters(case):
    layer = case.ours(seed=3)
    module = case.theirs()
    state = {name: torch.from_numpy(parameter.copy()) for name, parameter in layer.parameters.items()}
    assert list(state) == list(module.state_dict())  # including the order
    module.load_state_dict(state, strict=True)
    inputs = [torch.randn(shape) for shape in case.inputs]
    with torch.enable_grad():  # otherwise PyTorch takes a fast path that skips padding
        found = case.call(module, *[x.requires_grad_() for x in inputs]).detach().numpy()
    assert np.abs(found - layer.forward(*[x.detach() for x in inputs], **case.options)).max() < 1e-5


@pytest.mark.parametrize("case", [CASES["transformer, gelu, norm before"], CASES["encoder layer, relu, norm after"]])
def test_files(case, tmp_path):
    path = tmp_path / "module.safetensors"
    torch.manual_seed(4)
    module, layer = case.theirs(), case.ours(seed=5)
    safetensors.torch.save_file(module.state_dict(), path)
    nn.load(layer, path)
    inputs = [torch.randn(shape) for shape in case.inputs]

    def difference():
        with torch.enable_grad():
            y = case.call(module, *[x.requires_grad_() for x in inputs]).detach().numpy()
        return np.abs(y - layer.forward(*[x.detach() for x in inputs], **case.options)).max()

    assert difference() < 1e-5
    other = case.ours(seed=6)
    nn.save(other, path)
    module.load_state_dict(safetensors.torch.load_file(path), strict=True)
    assert difference() > 0.1
    layer = other
    assert difference() < 1e-5


@pytest.mark.parametrize("padding_index", [None, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_embedding(dtype, padding_index):
    module = torch.nn.Embedding(11, WIDTH, padding_idx=padding_index, dtype=getattr(torch, dtype))
    layer = nn.Embedding(11, WIDTH, padding=padding_index, dtype=dtype)
    assert padding_index is None or not layer.parameters["weight"][padding_index].any()
    take_over(layer, module)
    tokens = torch.randint(0, 11, (4, 30))
    y = module(tokens)
    grad = torch.randn_like(y)
    y.backward(grad)
    assert np.array_equal(layer.forward(tokens.numpy()), y.detach())
    layer.backward(grad)
    right = {"weight": module.weight.grad.double().numpy()}
    judge("Embedding", dtype, layer.gradients, right, right)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_with_the_same_mask(dtype):
    layer = nn.Dropout(0.3, dtype=dtype)
    layer.train(5)
    x, grad = torch.randn(2, 50, 40, dtype=getattr(torch, dtype)).requires_grad_(), torch.randn(2, 50, 40)
    kept = torch.from_numpy(layer.forward(torch.ones_like(x.detach())) != 0)
    y = x * kept / (1 - 0.3)
    y.backward(grad.to(x.dtype))
    right = {"y": y.detach().double().numpy(), "grad_0": x.grad.double().numpy()}
    ours = {"y": layer.forward(x.detach()), "grad_0": layer.backward(grad.to(x.dtype))}
    judge("Dropout", dtype, ours, right, right)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignored", [None, 2])
def test_cross_entropy(ignored, smoothing):
    torch.manual_seed(6)
    logits = (3 * torch.randn(5, 8, 13)).requires_grad_()
    targets = torch.randint(0, 13, (5, 8))

    def theirs(dtype):
        loss = torch.nn.CrossEntropyLoss(ignore_index=-100 if ignored is None else ignored, label_smoothing=smoothing)
        x = logits.detach().to(dtype).requires_grad_()
        y = loss(x.flatten(0, 1), targets.flatten())
        (2.5 * y).backward()
        return {"y": y.detach().double().numpy(), "grad_0": x.grad.double().numpy()}

    right = theirs(torch.float64)
    for dtype in ("float64", "float32"):
        loss = nn.CrossEntropy(ignored=ignored, label_smoothing=smoothing)
        y = loss.forward(logits.detach().numpy().astype(dtype), targets)
        counts = targets != (-100 if ignored is None else ignored)
        assert loss.counted == counts.sum()
        assert loss.correct == ((logits.argmax(-1) == targets) & counts).sum()
        ours = {"y": np.asarray(y, dtype), "grad_0": loss.backward(2.5)}
        judge("CrossEntropy", dtype, ours, right, theirs(torch.float32))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(decay):
    options = {"betas": (0.8, 0.95), "eps": 1e-6}

    def steps_of_theirs(dtype, gradients):
        torch.manual_seed(7)
        module = torch.nn.Linear(30, 20).to(dtype)
        first = {name: p.detach().double().numpy().copy() for name, p in module.named_parameters()}
        if decay:
            optimizer = torch.optim.AdamW(module.parameters(), weight_decay=decay, **options)
        else:
            optimizer = torch.optim.Adam(module.parameters(), **options)
        for step, gradient in enumerate(gradients):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (step + 1)
            for name, p in module.named_parameters():
                p.grad = gradient[name].to(dtype)
            optimizer.step()
        return first, {name: p.detach().double().numpy() for name, p in module.named_parameters()}

    torch.manual_seed(8)
    gradients = [{"weight": torch.randn(20, 30), "bias": 10 * torch.randn(20)} for _ in range(8)]
    first, right = steps_of_theirs(torch.float64, gradients)
    for dtype in ("float64", "float32"):
        layer = nn.Linear(30, 20, dtype=dtype)
        for name, parameter in layer.parameters.items():
            parameter[...] = first[name]
        adam = nn.Adam(layer, beta1=0.8, beta2=0.95, epsilon=1e-6, weight_decay=decay)
        for step, gradient in enumerate(gradients):
            for name, one in layer.gradients.items():
                one[...] = gradient[name].numpy()
            adam.step(1e-2 / (step + 1))
        judge(
            "AdamW" if decay else "Adam", dtype, layer.parameters, right, steps_of_theirs(torch.float32, gradients)[1]
        )


@pytest.mark.parametrize("largest", [0.5, 1e6])
def test_clipping(largest):
    torch.manual_seed(9)
    module = torch.nn.Linear(300, 200).double()
    for p in module.parameters():
        p.grad = torch.randn_like(p).float().double()
    before = {name: p.grad.clone() for name, p in module.named_parameters()}
    norm = torch.nn.utils.clip_grad_norm_(module.parameters(), largest).item()
    right = {name: p.grad.numpy() for name, p in module.named_parameters()}
    for dtype in ("float64", "float32"):
        layer = nn.Linear(300, 200, dtype=dtype)
        for name, gradient in layer.gradients.items():
            gradient[...] = before[name]
        assert math.isclose(nn.clip_gradients(layer, largest), norm, rel_tol=1e-12)
        judge("clip_gradients", dtype, layer.gradients, right, right)


def test_training_agrees_with_pytorch():
    """A float64 transformer with loss, clipping and AdamW has the same parameters after twenty steps."""
    case = CASES["transformer, gelu, norm before"]
    module = case.theirs().double()
    layer = case.ours(dtype="float64")
    take_over(layer, module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)
    adam, loss = nn.Adam(layer, weight_decay=0.01), nn.CrossEntropy(label_smoothing=0.1)
    losses = []
    for _ in range(20):
        inputs = [torch.randn(shape).double() for shape in case.inputs]
        targets = torch.randint(0, WIDTH, X[:2])
        optimizer.zero_grad()
        theirs = torch.nn.functional.cross_entropy(
            case.call(module, *inputs).flatten(0, 1), targets.flatten(), label_smoothing=0.1
        )
        theirs.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

        layer.zero_gradients()
        losses.append((loss.forward(layer.forward(*inputs, **case.options), targets), theirs.item()))
        layer.backward(loss.backward())
        nn.clip_gradients(layer, 1.0)
        adam.step(1e-3)
    assert np.allclose(*np.transpose(losses), rtol=1e-10)
    for name, parameter in module.named_parameters():
        # The tolerance is looser, because Adam divides by the root of the second moment, which may be tiny.
        assert np.abs(layer.parameters[name] - parameter.detach().numpy()).max() < 1e-8, name


def test_zz_worst_errors(say):
    assert WORST
    for (kind, dtype), (error, share) in sorted(WORST.items()):
        say(f"{kind}, {dtype}: off by at most {error:.1e}, {share:.2f} of what is allowed")
        assert share <= 1
