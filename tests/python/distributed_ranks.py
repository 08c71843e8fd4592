# SPDX-License-Identifier: Apache-2.0
"""Processes of a torch.distributed group for test_distributed.py, and what they compute."""

import contextlib
import dataclasses
import datetime
import importlib.util
import io
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import signal
import tempfile

import numpy as np
import torch
import torch.distributed

import fovea
import fovea.distributed
import fovea.torch
from fovea.distributed import Sharding, shard

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "distributed" / "train.py"
SECONDS = 120  # for a call


class Group:
    """A gloo group of new processes on the loopback interface, which call functions on demand."""

    def __init__(self, size, timeout=60):
        self.folder = tempfile.TemporaryDirectory()
        context = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        with changed_environment(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"):
            for rank in range(size):
                ours, theirs = context.Pipe()
                arguments = theirs, rank, size, pathlib.Path(self.folder.name, "store").as_uri(), timeout
                process = context.Process(target=serve, args=arguments, daemon=True)
                process.start()
                theirs.close()
                self.connections.append(ours)
                self.processes.append(process)

    @property
    def size(self):
        return len(self.processes)

    def start(self, function, *arguments):
        """Calls function(rank, *arguments) on all ranks."""
        for connection in self.connections:
            connection.send((function, arguments))

    def outcomes(self):
        """Returns the result or exception of each rank."""
        return [self.outcome(rank) for rank in range(self.size)]

    def outcome(self, rank):
        """Returns the result or exception of a rank; EOFError if its process has ended."""
        return self.first_outcome([rank])[1]

    def first_outcome(self, ranks):
        """Waits until one of these ranks ends its call; returns the rank and its result or exception."""
        connections = {self.connections[rank]: rank for rank in ranks}
        ready = multiprocessing.connection.wait(connections, SECONDS)
        if not ready:
            self.close()
            raise TimeoutError(f"ranks {sorted(ranks)}: expected a result within {SECONDS} s")
        try:
            return connections[ready[0]], pickle.loads(ready[0].recv_bytes())
        except EOFError as error:
            return connections[ready[0]], error

    def call(self, function, *arguments):
        """Returns the results of all ranks."""
        self.start(function, *arguments)
        outcomes = self.outcomes()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return outcomes

    def fail(self, function, *arguments):
        """Returns the exceptions of all ranks."""
        self.start(function, *arguments)
        outcomes = self.outcomes()
        assert all(isinstance(outcome, BaseException) for outcome in outcomes), outcomes
        return outcomes

    def signal(self, rank, number):
        os.kill(self.processes[rank].pid, number)

    def close(self):
        for process in self.processes:
            process.kill()
        for process, connection in zip(self.processes, self.connections, strict=True):
            process.join()
            connection.close()
        self.folder.cleanup()


@contextlib.contextmanager
def changed_environment(**variables):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def serve(connection, rank, size, store, timeout):
    """The main function of a rank."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which background jobs of a shell ignore
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=timeout)
    )
    while True:
        function, arguments = connection.recv()
        try:
            outcome = pickle.dumps(function(rank, *arguments))
        except BaseException as error:
            outcome = pickle.dumps(error)
        connection.send_bytes(outcome)


@dataclasses.dataclass
class Case:
    """A problem, known by names, so that every process can make it."""

    option: str = "causal"
    sharding: str = "zigzag"
    dtype: str = "float32"
    lengths: tuple[int, int] = (57, 57)
    outer: tuple[tuple[int, ...], tuple[int, ...]] = ((2, 4), (2, 2))  # dimensions before the length

    def arrays(self):
        """Returns query, key and value."""
        (q_len, kv_len), (outer, kv_outer) = self.lengths, self.outer
        shapes = (*outer, q_len, 16), (*kv_outer, kv_len, 16), (*kv_outer, kv_len, 8)
        return self.draw(1, *shapes)

    def cotangents(self, lse):
        """Returns the gradients of context and lse."""
        grad_context, grad_lse = self.draw(2, (*self.outer[0], self.lengths[0], 8), lse.shape)
        return grad_context, np.where(np.isinf(lse), 0, grad_lse).astype(np.float32)

    def draw(self, seed, *shapes):
        random = np.random.default_rng(seed)
        exact = [torch.from_numpy(random.standard_normal(shape)).to(getattr(torch, self.dtype)) for shape in shapes]
        return [as_numpy(tensor) for tensor in exact]

    def options(self):
        q_len, kv_len = self.lengths
        random = np.random.default_rng(3)
        heads = self.outer[0][-1] if self.outer[0] else 1

        def normal(*shape):
            return random.standard_normal(shape).astype(np.float32)

        mask = fovea.causal()
        return {
            "nothing": {},
            "causal": {"mask": mask},
            "window": {"mask": fovea.window(9, 3)},
            "documents": {"mask": mask & fovea.documents([i // 20 for i in range(kv_len)])},
            "prefix": {"mask": mask | fovea.prefix(11)},
            "key lengths": {"mask": fovea.key_lengths([kv_len, 5])},
            "dense": {"mask": random.random((q_len, kv_len)) < 0.7},
            "alignment": {"mask": mask, "alignment": [7, -3], "scale": 0.3},
            "softcap": {"softcap": 2.0},
            "alibi": {"mask": mask, "alibi": True},
            "bias of keys": {"bias": normal(heads, 1, kv_len)},
            "bias": {"mask": mask, "bias": normal(heads, q_len, kv_len)},
            "relative": {"relative": (normal(8, heads), {"bidirectional": True, "max_distance": 40})},
            "sinks": {"mask": mask, "sinks": normal(heads)},
            "dropout": {"mask": mask, "dropout": fovea.Dropout(0.3, seed=4, call=2)},
            "all": {
                "mask": fovea.window(30, 0),
                "bias": normal(1, q_len, kv_len),
                "relative": (normal(8, heads), {"bidirectional": False, "max_distance": 20}),
                "sinks": normal(heads),
                "softcap": 5.0,
                "dropout": fovea.Dropout(0.1, seed=5),
            },
        }[self.option]

    def numpy_options(self):
        options = dict(self.options())
        if "relative" in options:
            table, more = options["relative"]
            options["relative"] = fovea.RelativeTable(table, **more)
        return options

    def shardings(self, size):
        """Returns the shardings of queries and keys, and the arguments of attention()."""
        q_len, kv_len = self.lengths
        zigzag = Sharding.zigzag(q_len, size), Sharding.zigzag(kv_len, size)
        even = Sharding.contiguous(q_len, size), Sharding.contiguous(kv_len, size)
        uneven = [uneven_lengths(length, size) for length in self.lengths]
        uneven = Sharding.lengths(uneven[0]), Sharding.lengths(uneven[1][::-1])
        return {
            "contiguous": (*even, {}),
            "zigzag": (*zigzag, {"sharding": "zigzag"}),
            "uneven": (*uneven, {"sharding": "contiguous"}),
            "given": (*uneven, {"sharding": uneven[0], "key_sharding": uneven[1]}),
            "keys apart": (zigzag[0], even[1], {"sharding": "zigzag", "key_sharding": "contiguous"}),
        }[self.sharding]


def uneven_lengths(length, size):
    """Returns the lengths of parts, of which the second is empty."""
    lengths = [length // (size + 1)] * size
    lengths[1:2] = [0] * (size > 1)
    lengths[-1] += length - sum(lengths)
    return lengths


def as_numpy(tensor):
    """Returns an array of the same type, also bfloat16."""
    if tensor.dtype != torch.bfloat16:
        return tensor.detach().numpy()
    import ml_dtypes

    return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def as_torch(array):
    if array.dtype.name != "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array))
    return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)


def forward(rank, case):
    """Returns this rank's part of context and lse, of NumPy arrays."""
    size = torch.distributed.get_world_size()
    queries, keys, arguments = case.shardings(size)
    query, key, value = case.arrays()
    parts = shard(query, queries, rank), shard(key, keys, rank), shard(value, keys, rank)
    return fovea.distributed.attention(*parts, return_lse=True, **arguments, **case.numpy_options())


def gradients(rank, case, lse):
    """Returns this rank's parts of context, lse and gradients, of torch tensors. `lse` is that of one process."""
    size = torch.distributed.get_world_size()
    queries, keys, arguments = case.shardings(size)
    leaves = {
        name: as_torch(shard(array, sharding, rank)).requires_grad_()
        for name, array, sharding in zip(("query", "key", "value"), case.arrays(), (queries, keys, keys), strict=True)
    }
    options = dict(case.options())
    for name in ("bias", "sinks"):
        if name in options:
            options[name] = leaves[name] = torch.from_numpy(options[name]).requires_grad_()
    if "relative" in options:
        table, more = options["relative"]
        leaves["relative"] = torch.from_numpy(table).requires_grad_()
        options["relative"] = fovea.torch.RelativeTable(leaves["relative"], **more)
    if isinstance(options.get("mask"), np.ndarray):
        options["mask"] = torch.from_numpy(options["mask"])
    results = fovea.distributed.attention(
        leaves["query"], leaves["key"], leaves["value"], return_lse=True, **arguments, **options
    )
    grad_context, grad_lse = case.cotangents(lse)
    cotangents = [as_torch(shard(grad_context, queries, rank)), as_torch(shard(grad_lse, queries, rank, axis=-1))]
    torch.autograd.backward(results, cotangents)
    return [as_numpy(x) for x in results], {name: as_numpy(x.grad) for name, x in leaves.items()}


def attend_with_jax(rank):
    """Returns the type of the context of JAX arrays, and the context."""
    import jax

    query = jax.numpy.arange(24, dtype=jax.numpy.float32).reshape(6, 4)
    part = shard(query, Sharding.zigzag(6, 2), rank)
    context = fovea.distributed.attention(part, part, part, sharding="zigzag", mask=fovea.causal())
    return isinstance(context, jax.Array), np.asarray(context)


def attend(rank, own, arguments=None, torch_tensors=False):
    """Calls attention() on parts of 8 positions; own[rank] changes the arguments of a rank."""
    given = {name: np.ones((1, 2, 8, 4), np.float32) for name in ("query", "key", "value")}
    if torch_tensors:
        given = {name: torch.from_numpy(array) for name, array in given.items()}
    return fovea.distributed.attention(**{**given, **(arguments or {}), **own.get(rank, {})})


def attend_without_gradient_on(rank, exception):
    """Differentiates attention(), with a query that requires no gradient on one rank."""
    query, key = torch.ones(2, 1, 2, 8, 4)
    query.requires_grad_(rank != exception)
    key.requires_grad_()
    fovea.distributed.attention(query, key, key).sum().backward()


def attend_in_subgroup(rank):
    """Calls attention() in a group of ranks 0 and 2, and returns the sums of their contexts."""
    group = torch.distributed.new_group([0, 2])
    values = np.full((8, 4), rank, np.float32)
    return fovea.distributed.attention(values, values, values, group=group).tolist()


def attend_for_long(rank):
    values = np.ones((1, 4, 20_000, 64), np.float32)
    return fovea.distributed.attention(values, values, values).shape


def attend_endlessly(rank):
    values = np.ones((1, 4, 1000, 64), np.float32)
    while True:
        fovea.distributed.attention(values, values, values)


def train_example(rank, steps):
    """Runs examples/distributed/train.py; returns what rank 0 prints and the parameters."""
    spec = importlib.util.spec_from_file_location("train", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        model = example.train(steps)
    return printed.getvalue(), {name: as_numpy(x) for name, x in model.state_dict().items()}


def die_in_backward(rank, which):
    """Ends one process between the forward and the backward pass."""
    query = torch.ones(1, 2, 8, 4, requires_grad=True)
    context = fovea.distributed.attention(query, query, query)
    if rank == which:
        os.kill(os.getpid(), signal.SIGKILL)
    context.sum().backward()
