# SPDX-License-Identifier: Apache-2.0
"""Worker of bench/training for PyTorch in eager mode: python torch_worker.py TASK PARAMETERS BATCHES

The model, the requests and the answers are those of training_worker.cc.
`torch_worker.py --make TASK PARAMETERS BATCHES SEED` instead writes the initial parameters and the batches.
"""

import json
import math
import pathlib
import sys
import time

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import task as tasks  # noqa: E402


class Translator(torch.nn.Module):
    def __init__(self, task, dropout):
        super().__init__()
        self.source_embedding = torch.nn.Embedding(task.vocabulary, task.width)
        self.target_embedding = torch.nn.Embedding(task.vocabulary, task.width)
        self.transformer = torch.nn.Transformer(
            task.width, task.heads, task.layers, task.layers, task.inner, dropout, batch_first=True
        )
        self.output = torch.nn.Linear(task.width, task.vocabulary)
        pairs = torch.arange(0, task.width, 2, dtype=torch.float64)
        angles = torch.arange(task.length)[:, None] / 10000 ** (pairs / task.width)
        places = torch.stack([angles.sin(), angles.cos()], dim=2).reshape(task.length, task.width)
        self.register_buffer("places", places.float(), persistent=False)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(task.length)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, source, target):
        source = self.source_embedding(source) + self.places
        target = self.target_embedding(target) + self.places
        return self.output(self.transformer(source, target, tgt_mask=self.mask, tgt_is_causal=True))


class Training:
    def __init__(self, task, parameters, dropout, seed):
        torch.manual_seed(seed)
        self.task = task
        self.model = Translator(task, dropout)
        self.model.load_state_dict(safetensors.torch.load_file(parameters))
        # PyTorch's fastest AdamW: one pass over each parameter.
        self.adam = torch.optim.AdamW(
            self.model.parameters(), lr=task.learning_rate, weight_decay=task.weight_decay, fused=True
        )
        self.loss = torch.nn.CrossEntropyLoss()
        self.made = 0

    def step(self, source, target, wanted):
        self.adam.zero_grad()
        loss = self.loss(self.model(source, target).flatten(0, 1), wanted.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.task.clip)
        self.adam.step()
        return loss.item(), norm.item()

    def steps(self, batches, count):
        result = {"losses": [], "norms": [], "seconds": []}
        for _ in range(count):
            of_step = [batches[name][self.made % self.task.batches] for name in ("source", "target", "wanted")]
            start = time.perf_counter()
            loss, norm = self.step(*of_step)
            result["seconds"].append(time.perf_counter() - start)
            # JSON has no NaN.
            result["losses"].append(loss if math.isfinite(loss) else None)
            result["norms"].append(norm if math.isfinite(norm) else None)
            self.made += 1
        return result


def make(task, parameters, batches, seed):
    torch.manual_seed(seed)
    safetensors.torch.save_file(Translator(task, 0.0).state_dict(), parameters)
    arrays = {name: torch.from_numpy(array) for name, array in tasks.batches(task, seed).items()}
    safetensors.torch.save_file(arrays, batches)


def main():
    if sys.argv[1] == "--make":
        path, parameters, batches, seed = sys.argv[2:]
        make(tasks.Task(**json.loads(pathlib.Path(path).read_text())), parameters, batches, int(seed))
        return
    path, parameters, batches = sys.argv[1:]
    task = tasks.Task(**json.loads(pathlib.Path(path).read_text()))
    batches = safetensors.torch.load_file(batches)
    training = None
    for line in sys.stdin:
        request = json.loads(line)
        answer = {}
        if request["do"] == "versions":
            answer = {"versions": {"torch": torch.__version__}, "threads": torch.get_num_threads()}
        elif request["do"] == "begin":
            training = Training(task, parameters, request["dropout"], request["seed"])
        elif request["do"] == "steps":
            answer = training.steps(batches, request["count"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
