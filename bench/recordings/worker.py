# SPDX-License-Identifier: Apache-2.0
"""Measures recordings of a random model as large as SmolLM2 (30 layers, 9 heads on 3, head_dim 64);
bench/recordings/run starts this with PyTorch's Python, once for each measurement. Prints one line of JSON."""

import argparse
import json
import os
import pathlib
import resource
import statistics
import sys
import time

import torch
import transformers
from torch import nn

import fovea
import fovea.transformers
from fovea._observe.calls import observe

WIDTH, HEAD_DIM, HEADS, KEY_HEADS = 576, 64, 9, 3


def build(layers, attention, seed=1):
    """Returns the model with random weights and, unlike the original, a small vocabulary, which recordings do not
    depend on."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=WIDTH,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        max_position_embeddings=65536,
        attn_implementation=attention,
    )
    return transformers.LlamaForCausalLM(config).eval()


def tokens(length, seed=2):
    return torch.randint(512, (1, length), generator=torch.Generator().manual_seed(seed))


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(calls, rounds):
    """Returns the medians of calls that alternate, after a warm-up, and the medians of their ratios to the first."""
    for call in calls.values():
        call()
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(timed(call))
    first = next(iter(times.values()))
    return {
        name: {
            "seconds": statistics.median(own),
            "ratio": statistics.median(one / base for one, base in zip(own, first, strict=True)),
        }
        for name, own in times.items()
    }


def folder_in_memory():
    folder = pathlib.Path("/dev/shm")
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else pathlib.Path("/tmp")


def using(model, attention, run):
    """Returns a call of `run` with another attention implementation."""

    def call():
        model.set_attn_implementation(attention)
        run()

    return call


def forward(arguments):
    """One forward pass: sdpa; Fovea with query, key and lse of every layer at hand; recorded to a file in memory."""
    model, ids = build(arguments.layers, "sdpa"), tokens(arguments.length)
    path = folder_in_memory() / f"fovea-bench-{os.getpid()}.safetensors"

    def pass_over():
        model.base_model(ids, use_cache=False)

    def observed():
        with observe(lambda call: None):
            pass_over()

    def recorded():
        with fovea.record(model, path, progress=False):
            pass_over()

    calls = {
        "sdpa": using(model, "sdpa", pass_over),
        "observed": using(model, "fovea", observed),
        "recorded": using(model, "sdpa", recorded),
    }
    found = in_turns(calls, arguments.rounds)
    size = path.stat().st_size
    path.unlink()
    wanted = arguments.layers * arguments.length * ((HEADS + KEY_HEADS) * HEAD_DIM + HEADS) * 4
    return found | {"bytes": size, "overhead": size / wanted - 1}


def memory(arguments):
    """The peak memory of one forward pass; the runner compares two processes."""
    model, ids = build(arguments.layers, "sdpa"), tokens(arguments.length)
    path = folder_in_memory() / f"fovea-bench-{os.getpid()}.safetensors"
    model.base_model(tokens(64), use_cache=False)
    with fovea.record(model, path, progress=False):  # code that stays
        model.base_model(tokens(64), use_cache=False)
    if arguments.recorded:
        # A file in memory would count as memory of the process, if it were mapped.
        with fovea.record(model, path, progress=False):
            model.base_model(ids, use_cache=False)
        path.unlink()
    else:
        model.base_model(ids, use_cache=False)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    layer = arguments.length * ((HEADS + KEY_HEADS) * HEAD_DIM + HEADS) * 4
    return {"peak": peak, "layer": layer}


def generate(arguments):
    """Text generation: sdpa, and recorded."""
    model, ids = build(arguments.layers, "sdpa"), tokens(arguments.length)
    path = folder_in_memory() / f"fovea-bench-{os.getpid()}.safetensors"
    options = {"do_sample": False, "max_new_tokens": arguments.new, "min_new_tokens": arguments.new, "pad_token_id": 0}

    def run():
        model.generate(ids, **options)

    def recorded():
        with fovea.record(model, path, progress=False):
            run()

    found = in_turns({"sdpa": using(model, "sdpa", run), "recorded": using(model, "sdpa", recorded)}, arguments.rounds)
    path.unlink()
    return found


def outputs(arguments):
    """The model's outputs: Fovea against sdpa in float32, and sdpa against eager in float64."""
    model, ids = build(arguments.layers, "sdpa"), tokens(arguments.length)
    results = {}
    for name in ("fovea", "sdpa"):
        model.set_attn_implementation(name)
        results[name] = model(ids).logits.double()
    exact = model.double()
    exact.set_attn_implementation("eager")
    right = exact(ids).logits
    return {
        "fovea_and_sdpa": (results["fovea"] - results["sdpa"]).abs().max().item(),
        "sdpa_and_exact": (results["sdpa"] - right).abs().max().item(),
        "fovea_and_exact": (results["fovea"] - right).abs().max().item(),
        "largest": right.abs().max().item(),
    }


def write(arguments):
    """Writes a recording for the command line; another seed gives another model."""
    model, ids = build(arguments.layers, "sdpa", seed=arguments.seed), tokens(arguments.length)
    for module in model.modules():  # trained models have sharper attention than random ones
        if isinstance(module, nn.Linear) and module.out_features in (HEADS * HEAD_DIM, KEY_HEADS * HEAD_DIM):
            module.weight.data.mul_(3)
    with fovea.record(model, arguments.path, progress=False):
        model.base_model(ids, use_cache=False)
    return {"bytes": pathlib.Path(arguments.path).stat().st_size}


def fused(arguments):
    """The fused pass over one head, with a map as large as that of `fovea map`."""
    each = fovea.Recording(arguments.path)[arguments.layer]
    query, key = each.query[:, :1], each.key[:, :1]

    def run():
        fovea.map(query, key, (1024, 1024), reduce="mean", threads=arguments.threads, **each.options)

    return in_turns({"fused": run}, arguments.rounds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["forward", "memory", "generate", "outputs", "write", "fused"])
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--path")
    parser.add_argument("--recorded", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with torch.no_grad():
        print(json.dumps(globals()[arguments.what](arguments)), file=sys.stdout)


if __name__ == "__main__":
    main()
