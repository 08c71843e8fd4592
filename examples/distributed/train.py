# SPDX-License-Identifier: Apache-2.0
"""Trains a small decoder on sequences that are cut over several processes.

    python train.py                               one process
    torchrun --nproc-per-node=4 train.py          four processes: the same losses

The second half of each sequence must repeat the first half, so each prediction needs a token from far back, which
another process may have. A process has the positions that zigzag gives it, of activations as well: only attention
communicates. Every process has the parameters, and the gradients of processes are added.

On several machines, torchrun takes --nnodes and --rdzv-endpoint; OMP_NUM_THREADS sets the threads of a process, of
which torchrun gives it one.
"""

from __future__ import annotations

import argparse
import math
import os

import torch
import torch.distributed
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import fovea
import fovea.distributed
import fovea.torch

TOKENS = 16
LENGTH = 256
BATCH = 8
WIDTH = 64
HEADS = 4

MASK = fovea.causal()


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if not torch.distributed.is_initialized():
        return fovea.torch.attention(query, key, value, mask=MASK)
    return fovea.distributed.attention(query, key, value, sharding="zigzag", mask=MASK)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inputs(self.before_attention(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        x = x + self.output(attend(query, key, value).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Decoder(nn.Module):
    """The logits of some positions of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer())
        self.logits = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.logits(self.layers(self.embedding(tokens) + encoding(positions)))


def encoding(positions: Tensor) -> Tensor:
    """Returns sines and cosines of the positions in the whole sequence."""
    rates = torch.exp(torch.arange(WIDTH // 2) * (-math.log(LENGTH) / (WIDTH // 2)))
    angles = positions[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], -1)


def add_over_processes(tensors: list[Tensor]) -> None:
    """Replaces each tensor with its sum over all processes."""
    together = torch.cat([tensor.flatten() for tensor in tensors])  # one message instead of many
    torch.distributed.all_reduce(together)
    for tensor, whole in zip(tensors, together.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(whole.view_as(tensor))


def train(steps: int) -> Decoder:
    """Trains on random sequences, and prints the loss. Returns the model, which all processes have."""
    several = torch.distributed.is_initialized()
    rank = torch.distributed.get_rank() if several else 0
    size = torch.distributed.get_world_size() if several else 1
    sharding = fovea.distributed.Sharding.zigzag(LENGTH, size)
    positions = fovea.distributed.shard(torch.arange(LENGTH), sharding, rank, axis=0)

    torch.manual_seed(1)  # the same parameters and sequences in all processes
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(steps):
        half = torch.randint(TOKENS, (BATCH, LENGTH // 2))
        sequences = torch.cat([half, half], -1)
        # Each position predicts the next token; the last one has none.
        predicts = positions < LENGTH - 1
        targets = sequences[:, (positions + 1).clamp(max=LENGTH - 1)]
        counts = predicts & (positions >= LENGTH // 2 - 1)

        logits = model(sequences[:, positions], positions)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
        # The sum over processes is the mean of the second half.
        loss = (losses * counts).sum() / (BATCH * LENGTH // 2)
        optimizer.zero_grad()
        loss.backward()
        if several:
            add_over_processes([parameter.grad for parameter in model.parameters()])
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            whole = loss.detach()
            if several:
                add_over_processes([whole])
            if rank == 0:
                print(f"step {step:4}  loss {whole.item():.4f}", flush=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small decoder on sequences cut over several processes.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--output", help="write the trained parameters to this file")
    arguments = parser.parse_args()
    several = "RANK" in os.environ  # set by torchrun
    if several:
        torch.distributed.init_process_group("gloo")
    model = train(arguments.steps)
    if arguments.output and (not several or torch.distributed.get_rank() == 0):
        torch.save(model.state_dict(), arguments.output)
    if several:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
