# SPDX-License-Identifier: Apache-2.0
"""A rank of the tests of fovea.distributed with mpi4py, started by tests/mpi/run. Rank 0 prints a line on success.

tests/python/test_distributed.py tests the options; the transport is tested here.
"""

import math
import sys
import traceback

import numpy as np
from mpi4py import MPI

import fovea
import fovea.distributed
from fovea.distributed import Sharding, attention, shard

WORLD = MPI.COMM_WORLD
cases = 0


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(group, queries, keys, arguments, dtype=np.float32, **options):
    """Compares this rank's part with the result of one process."""
    global cases
    cases += 1
    rank = group.Get_rank()
    shapes = (2, 4, queries.length, 16), (2, 2, keys.length, 16), (2, 2, keys.length, 8)
    inputs = [draw(seed, *shape).astype(dtype) for seed, shape in enumerate(shapes)]
    parts = [shard(x, sharding, rank) for x, sharding in zip(inputs, (queries, keys, keys), strict=True)]
    found, found_lse = attention(*parts, group=group, return_lse=True, **arguments, **options)
    right, lse = fovea.attention(*inputs, return_lse=True, **options)
    assert found.dtype == dtype
    assert found.shape == (*parts[0].shape[:-1], 8)
    difference = shard(right, queries, rank).astype(np.float64) - found
    assert np.abs(difference).max(initial=0) <= (1e-6 if dtype == np.float32 else 2e-3)
    assert np.allclose(shard(lse, queries, rank, axis=-1), found_lse, rtol=1e-6, atol=1e-6)


def check_error(kind, parts, own, group=WORLD, **common):
    """Calls attention() with the arguments own[rank]; expects an error whose message has all parts."""
    global cases
    cases += 1
    ones = np.ones((1, 2, 8, 4), np.float32)
    given = {"query": ones, "key": ones, "value": ones, "group": group, **common, **own.get(WORLD.Get_rank(), {})}
    found = None
    try:
        attention(**given)
    except Exception as error:
        found = error
    assert type(found) is kind, repr(found)
    assert all(part in str(found) for part in parts), repr(found)
    assert len(set(WORLD.allgather(str(found)))) == 1


def check_groups(group):
    size = group.Get_size()
    for length in (70, size - 1):
        zigzag, even = Sharding.zigzag(length, size), Sharding.contiguous(length, size)
        uneven = Sharding.lengths([0] * (size - 1) + [length])
        check(group, zigzag, zigzag, {"sharding": "zigzag"}, mask=fovea.causal())
        check(group, even, even, {}, mask=fovea.window(5, 0), sinks=[1, 2, 3, 4])
        check(group, zigzag, even, {"sharding": zigzag, "key_sharding": "contiguous"}, alibi=True)
        check(group, uneven, even, {}, np.float16, softcap=3)


def main():
    check_groups(WORLD)
    transport = WORLD.Get_attr(fovea.distributed._keyval)
    check_groups(WORLD)
    assert WORLD.Get_attr(fovea.distributed._keyval) is transport

    size = WORLD.Get_size()
    check_error(
        ValueError,
        ["mask: expected the same on all ranks, got causal() on rank", "window(3, 0) on rank 1"],
        {1: {"mask": fovea.window(3, 0)}},
        mask=fovea.causal(),
    )
    check_error(ValueError, ["scale: expected a number", ", on rank 1"], {1: {"scale": "large"}})
    check_error(TypeError, ["scale: expected a number"], {rank: {"scale": "large"} for rank in range(size)})
    check_error(ValueError, ["timeout: expected more than 0"], {}, timeout=-1)
    for wrong in (-1.0, math.inf, math.nan, 1e300):
        check_error(ValueError, ["timeout: expected more than 0", ", on rank 1"], {1: {"timeout": wrong}})
    # Each rank waits as long as it says.
    check_error(ValueError, ["scale", ", on rank 1"], {0: {"timeout": 200.0}, 1: {"timeout": 100.0, "scale": "large"}})
    check_groups(WORLD)

    own = WORLD.Split(WORLD.Get_rank() % 2)
    check_groups(own)
    own.Free()
    copy = WORLD.Dup()
    check_groups(copy)
    copy.Free()
    if WORLD.Get_rank() == 0:
        print(f"Python: {cases} calls on {size} ranks, mpi4py {sys.modules['mpi4py'].__version__}", flush=True)
    MPI.Finalize()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        WORLD.Abort(1)
