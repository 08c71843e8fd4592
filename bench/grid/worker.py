# SPDX-License-Identifier: Apache-2.0
"""A worker process with one library, controlled by bench/grid/run: python worker.py LIBRARY THREADS CPUS

Requests and answers are lines of JSON on standard input and output:

    {"do": "versions"}                                {"versions": {...}}
    {"do": "prepare", "shape": {...}, "dtype", "seed"}  {"samples": {door: some results}, "seconds": per call}
    {"do": "time", "repeats": n, "turn": n}           {"seconds": {door: per call}}

Both libraries get the same PyTorch tensors. A door is a function that is timed. Those of "fovea" are
scaled_dot_product_attention, attention and, for named problems with one query, decode.
"""

import json
import math
import os
import sys
import time

import shapes


class Fovea:
    def __init__(self, threads):
        import fovea

        self.fovea = fovea
        # The limit that a process of one user has; both doors follow it.
        os.environ["OMP_NUM_THREADS"] = str(threads)

    def versions(self):
        return {"fovea": self.fovea.__version__, "target": self.fovea.info().target}

    def doors(self, shape, query, key, value, mask):
        sdpa, attention = self.fovea.scaled_dot_product_attention, self.fovea.attention
        options = {"mask": self.fovea.causal()} if shape.causal else {}
        if shape.mask:
            options = {"mask" if shape.form == "boolean" else "bias": mask["attn_mask"]}
        doors = {
            "sdpa": lambda: sdpa(query, key, value, **mask),
            "attention": lambda: attention(query, key, value, **options),
        }
        if shape.kind == shapes.ONE:
            doors["decode"] = lambda: self.fovea.decode(query, key, value)
        return doors


class Torch:
    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)

    def versions(self):
        import torch

        return {"torch": torch.__version__}

    def doors(self, shape, query, key, value, mask):
        import torch

        sdpa = torch.nn.functional.scaled_dot_product_attention
        return {"sdpa": lambda: sdpa(query, key, value, **mask)}


def mask_tensor(shape, dtype):
    """Returns the mask of a shape: boolean, True where visible, or a bias in the type of the tensors."""
    import torch

    lengths = torch.tensor([shape.kv_len - item * shape.kv_len // (2 * shape.batch) for item in range(shape.batch)])
    keys = torch.arange(shape.kv_len)
    distances = torch.arange(shape.q_len)[:, None] + (shape.kv_len - shape.q_len) - keys
    visible = {
        "causal mask": distances >= 0,
        "padding": (keys < lengths[:, None])[:, None, None],
        # Padding on the left, as in the batches that models continue. The first queries see themselves, because
        # results without any visible key differ between libraries.
        "causal mask with padding": ((keys >= shape.kv_len - lengths[:, None])[:, None, None] & (distances >= 0))
        | (distances == 0),
        "window": (distances >= 0) & (distances < 128),
    }[shape.mask]
    if shape.form == "boolean":
        return visible
    return torch.zeros(visible.shape, dtype=getattr(torch, dtype)).masked_fill(~visible, -math.inf)


def inputs(shape, dtype, seed):
    """Returns query, key and value, and the arguments that scaled_dot_product_attention needs."""
    import torch

    random = torch.Generator().manual_seed(seed)
    ends = ((shape.q_heads, shape.q_len), (shape.kv_heads, shape.kv_len), (shape.kv_heads, shape.kv_len))
    tensors = [torch.randn(shape.batch, heads, length, shape.dim, generator=random).to(getattr(torch, dtype))
               for heads, length in ends]
    arguments = {}
    if shape.q_heads != shape.kv_heads:
        arguments["enable_gqa"] = True
    if shape.mask:
        arguments["attn_mask"] = mask_tensor(shape, dtype)
    elif shape.causal and shape.q_len == shape.kv_len:
        arguments["is_causal"] = True
    elif shape.causal:
        # PyTorch aligns is_causal at the first query and key.
        visible = torch.ones(shape.q_len, shape.kv_len, dtype=torch.bool)
        arguments["attn_mask"] = visible.tril(shape.kv_len - shape.q_len)
    return tensors, arguments


class Worker:
    def __init__(self, library, threads):
        import torch

        torch.set_grad_enabled(False)
        self.contender = {"fovea": Fovea, "torch": Torch}[library](threads)
        self.doors = {}

    def versions(self, request):
        return {"versions": self.contender.versions()}

    def prepare(self, request):
        shape = shapes.Shape(**request["shape"])
        tensors, arguments = inputs(shape, request["dtype"], request["seed"])
        self.doors = self.contender.doors(shape, *tensors, arguments)
        samples = {}
        for door, call in self.doors.items():
            flat = call().float().flatten()
            samples[door] = flat[:: max(1, math.ceil(flat.numel() / 500))].tolist()
            call()
        start = time.perf_counter()
        call()
        return {"samples": samples, "seconds": time.perf_counter() - start}

    def time(self, request):
        seconds = {}
        # Doors take turns in being first, because other processes' data in the caches slows the first one down.
        first = request["turn"] % len(self.doors)
        for door in [*self.doors][first:] + [*self.doors][:first]:
            call = self.doors[door]
            call()
            start = time.perf_counter()
            for _ in range(request["repeats"]):
                call()
            seconds[door] = (time.perf_counter() - start) / request["repeats"]
        return {"seconds": seconds}


def main():
    library, threads, cpus = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    # Must precede the import of libraries, which count the CPUs.
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(library, threads)
    actions = {name: getattr(worker, name) for name in ("versions", "prepare", "time")}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = actions[request["do"]](request)
        except Exception as error:  # libraries raise any type; bench/grid/run reports the message
            answer = {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
