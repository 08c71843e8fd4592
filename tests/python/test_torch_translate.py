# SPDX-License-Identifier: Apache-2.0
"""Reads models written by `fovea train translate` with safetensors, and computes them with PyTorch's modules."""

import json
import math
import pathlib
import random
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not there: make test-peers has it")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not there")

PADDING, BEGIN, END, FIRST = 0, 1, 2, 3
WIDTH, HEADS, INNER, LAYERS = 16, 2, 32, 2


def fovea(*arguments):
    result = subprocess.run([sys.executable, "-m", "fovea", *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def trained(folder: pathlib.Path, *arguments):
    """Trains briefly to reverse words. Returns the folder of the run, its parameters and its model.json."""
    draw = random.Random(1)
    words = ["".join(draw.choice("abcd") for _ in range(draw.randint(1, 6))) for _ in range(200)]
    data = folder / "words.tsv"
    data.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    run = folder / "run"
    fovea(
        "train",
        "translate",
        "--data",
        str(data),
        "--output",
        str(run),
        "--width",
        str(WIDTH),
        "--steps",
        "60",
        "--validate-every",
        "30",
        "--learning-rate",
        "0.01",
        "--warmup",
        "10",
        *arguments,
    )
    model = json.loads((run / "model.json").read_text())
    return run, safetensors_torch.load_file(run / "model.safetensors"), model


def part(parameters, prefix):
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def embedding(parameters, name):
    weight = parameters[f"{name}.weight"]
    layer = torch.nn.Embedding(*weight.shape, padding_idx=PADDING)
    layer.load_state_dict(part(parameters, f"{name}."))
    return layer


def linear(parameters, name):
    weight = parameters[f"{name}.weight"]
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=f"{name}.bias" in parameters)
    layer.load_state_dict(part(parameters, f"{name}."))
    return layer


def sines(length):
    angle = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(length, WIDTH)


class Transformer:
    """The same architecture with torch.nn.Transformer."""

    def __init__(self, parameters):
        self.source, self.target = embedding(parameters, "source_embedding"), embedding(parameters, "target_embedding")
        self.transformer = torch.nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, INNER, 0.0, batch_first=True, norm_first=True
        )
        self.transformer.load_state_dict(part(parameters, "transformer."))
        self.transformer.eval()
        self.output = linear(parameters, "output")

    def __call__(self, source, target):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        y = self.transformer(
            self.source(source) + sines(source.shape[1]),
            self.target(target) + sines(target.shape[1]),
            tgt_mask=mask,
            tgt_is_causal=True,
        )
        return self.output(y)


class Recurrent:
    """Bahdanau's encoder and decoder with torch.nn.GRU and torch.nn.GRUCell."""

    def __init__(self, parameters):
        self.source, self.target = embedding(parameters, "source_embedding"), embedding(parameters, "target_embedding")
        self.encoder = torch.nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.encoder.load_state_dict(part(parameters, "encoder."))
        self.cell = torch.nn.GRUCell(3 * WIDTH, WIDTH)
        self.cell.load_state_dict(part(parameters, "decoder.cell."))
        attention = "decoder.attention."
        self.query, self.key = (linear(parameters, f"{attention}{name}_proj") for name in ("query", "key"))
        self.v = parameters[f"{attention}v"]
        self.bridge, self.output = linear(parameters, "bridge"), linear(parameters, "output")

    def __call__(self, source, target):
        memory, final = self.encoder(self.source(source))
        hidden = self.bridge(final[1]).tanh()
        embedded = self.target(target)
        rows = []
        for step in range(target.shape[1]):
            scores = (self.query(hidden)[:, None] + self.key(memory)).tanh() @ self.v
            context = (scores.softmax(-1)[:, None] @ memory)[:, 0]
            hidden = self.cell(torch.cat([embedded[:, step], context], -1), hidden)
            rows.append(torch.cat([hidden, context, embedded[:, step]], -1))
        return self.output(torch.stack(rows, 1))


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (Transformer, ("--heads", str(HEADS), "--inner", str(INNER), "--rotary-base", "0")),
        (Recurrent, ("--architecture", "gru")),
    ],
)
# PyTorch warns about a fast path that it cannot take.
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@torch.no_grad()
def test_pytorch_computes_the_same_with_the_checkpoint(tmp_path, module, arguments):
    run, parameters, model = trained(tmp_path, *arguments)
    symbols = model["source_symbols"], model["target_symbols"]
    compute = module(parameters)
    worst = 0.0
    for word in ("abcd", "d", "bbacda"):
        [told] = json.loads(fovea("translate", str(run), word, "--json"))
        source = torch.tensor([[FIRST + symbols[0].index(c) for c in word] + [END]])
        tokens = [FIRST + symbols[1].index(c) for c in told["target"]] + [END]
        if len(told["weights"]) < len(tokens):
            tokens = tokens[:-1]  # truncated before the end token
        logits = compute(source, torch.tensor([[BEGIN, *tokens[:-1]]]))[0].double()
        logits[:, [PADDING, BEGIN]] = -math.inf
        shares = logits.log_softmax(-1)
        assert shares.argmax(-1).tolist() == tokens
        found = sum(shares[i, token].item() for i, token in enumerate(tokens))
        worst = max(worst, abs(found - told["log_probability"]) / len(tokens))
    print(f"{module.__name__}: log-probability per character off by {worst:.1e} at most")
    assert worst <= 1e-5
