# SPDX-License-Identifier: Apache-2.0
"""Worker of bench/threads/run: the time of fovea.scaled_dot_product_attention between operations of PyTorch.

    torch_worker.py CASE THREADS PAUSE CALLS

PyTorch's threads spin for some milliseconds after each operation. Prints the microseconds of each call, one a line: of
Fovea's for torch-8x64 and torch-8x256 (heads x tokens, D = 64), of PyTorch's operation before it for torch-other.
"""

import sys
import time

import torch

import fovea

WARM_UP = 20


def main():
    case, threads, pause, calls = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tokens = 64 if case == "torch-8x64" else 256
    query, key, value = (torch.randn(1, 8, tokens, 64) for _ in range(3))
    for number in range(WARM_UP + calls):
        time.sleep(pause / 1000)
        start = time.perf_counter()
        changed = (query * 1.01 + 0.01).relu()
        middle = time.perf_counter()
        fovea.scaled_dot_product_attention(changed, key, value)
        end = time.perf_counter()
        if number >= WARM_UP:
            print(((middle - start) if case == "torch-other" else (end - middle)) * 1e6)


if __name__ == "__main__":
    main()
