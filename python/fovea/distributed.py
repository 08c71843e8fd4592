# SPDX-License-Identifier: Apache-2.0
"""Attention on a sequence that is cut along its length over several processes (docs/distributed.md).

    attention    fovea.attention() of sharded arrays, with gradients for torch tensors
    Sharding     which rank owns which positions
    shard        this rank's part of a whole array

Processes are the ranks of a torch.distributed group (gloo, started by torchrun) or of an mpi4py communicator. Imported
separately.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy

from . import _fovea
from ._fovea import Dropout, Mask, RelativeTable, Sharding

if TYPE_CHECKING:
    from . import torch as _torch
    from ._fovea import ArrayT, _Alignment, _Array, _Input, _Numbers

__all__ = ["Sharding", "attention", "shard"]

_engine: Any = _fovea  # includes the private functions that the stubs omit


class _TorchTransport:
    """The calls of a transport (python/src/distributed.cc) on a torch.distributed group of CPUs.

    Messages go from rank to rank. gloo's all_gather() takes longer: it runs in one more thread, and passes messages
    on in a ring.
    """

    # Of messages between two ranks, to tell them from those of the program.
    EXCHANGE, GATHER = 0x666F, 0x6670

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed

        self._torch = torch
        self._distributed = torch.distributed
        self._group = group
        self.rank = torch.distributed.get_rank(group)
        self.size = torch.distributed.get_world_size(group)
        if self.rank < 0:
            raise ValueError("group: expected a group to which this process belongs, got another")

    def exchange(self, to: int, send: memoryview, source: int, receive: memoryview) -> None:
        works = self._receive(source, receive, self.EXCHANGE) if source >= 0 else []
        works += self._send(to, send, self.EXCHANGE) if to >= 0 else []
        for work in works:
            work.wait()

    def all_gather(self, own: memoryview, everyone: memoryview) -> None:
        size = own.nbytes
        parts = [everyone[rank * size : (rank + 1) * size] for rank in range(self.size)]
        parts[self.rank][:] = own
        # All ranks begin with the next one, so that no rank gets all messages at once.
        others = [(self.rank + step) % self.size for step in range(1, self.size)]
        works = [work for rank in others for work in self._receive(rank, parts[rank], self.GATHER)]
        works += [work for rank in others for work in self._send(rank, own, self.GATHER)]
        for work in works:
            work.wait()

    def _receive(self, rank: int, memory: memoryview, tag: int) -> list[Any]:
        if memory.nbytes == 0:
            return []
        return [self._distributed.irecv(self._bytes(memory), group=self._group, tag=tag, group_src=rank)]

    def _send(self, rank: int, memory: memoryview, tag: int) -> list[Any]:
        if memory.nbytes == 0:
            return []
        return [self._distributed.isend(self._bytes(memory), group=self._group, tag=tag, group_dst=rank)]

    def _bytes(self, memory: memoryview) -> Any:
        return self._torch.frombuffer(memory, dtype=self._torch.uint8)


def _is_communicator(group: object) -> bool:
    return any(base.__module__.partition(".")[0] == "mpi4py" for base in type(group).__mro__)


def _mpi_transport(communicator: Any) -> Any:
    """Returns the transport of a communicator, which keeps it as an attribute: its messages travel on a duplicate,
    which all ranks create together."""
    try:
        from . import _mpi  # type: ignore[attr-defined]
    except ImportError as error:
        raise ImportError(
            "group: expected a torch.distributed group, got an mpi4py communicator, for which this build of fovea "
            "lacks MPI (FOVEA_MPI=ON)"
        ) from error
    from mpi4py import MPI

    global _keyval
    if _keyval is None:
        _keyval = MPI.Comm.Create_keyval()
    kept = communicator.Get_attr(_keyval)
    if kept is None:
        kept = _mpi.transport(MPI._addressof(communicator))
        communicator.Set_attr(_keyval, kept)
    return kept


_keyval: int | None = None  # of the attribute


def _set_timeout(group: Any, transport: Any, timeout: float) -> None:
    if _is_communicator(group):
        from . import _mpi  # type: ignore[attr-defined]

        _mpi.set_timeout(transport, timeout)


def _transport_of(group: Any) -> Any:
    if group is None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            raise ValueError(
                "group: expected torch.distributed to be initialised (torch.distributed.init_process_group), or an "
                "mpi4py communicator, got None"
            )
        group = torch.distributed.group.WORLD
    if _is_communicator(group):
        return _mpi_transport(group)
    return _engine._python_transport(_TorchTransport(group))


class _Options(TypedDict, total=False):
    mask: Mask | _Array | None
    scale: float | None
    softcap: float | None
    bias: _Array | None
    alibi: bool | _Numbers | None
    relative: RelativeTable | _torch.RelativeTable | None
    sinks: _Array | _Numbers | None
    alignment: _Alignment | None
    dropout: Dropout | None
    threads: int | None


_Sharding = Sharding | Literal["contiguous", "zigzag"]


@overload
def attention(
    query: ArrayT,
    key: _Input,
    value: _Input,
    *,
    group: Any = None,
    sharding: _Sharding = "contiguous",
    key_sharding: _Sharding | None = None,
    timeout: float = 300.0,
    return_lse: Literal[False] = False,
    **options: Unpack[_Options],
) -> ArrayT: ...
@overload
def attention(
    query: ArrayT,
    key: _Input,
    value: _Input,
    *,
    group: Any = None,
    sharding: _Sharding = "contiguous",
    key_sharding: _Sharding | None = None,
    timeout: float = 300.0,
    return_lse: Literal[True],
    **options: Unpack[_Options],
) -> tuple[ArrayT, Any]: ...
def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    group: Any = None,
    sharding: _Sharding = "contiguous",
    key_sharding: _Sharding | None = None,
    timeout: float = 300.0,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """fovea.attention() of a sequence that is sharded over several processes. All of them call it.

    query, key, value  this rank's part of the arrays, [batch, heads, length of the part, dim]
    group         a torch.distributed group on CPUs, or an mpi4py communicator; default: all processes of
                  torch.distributed
    sharding      which positions the parts have: "contiguous" (default), parts of any lengths in the order of ranks;
                  "zigzag", which gives all ranks the same work under a causal mask; or a Sharding
    key_sharding  the same for key and value; default: as `sharding`
    timeout       with mpi4py, a rank without a sign of life for so many seconds is named in an error. torch's groups
                  have timeouts of their own
    options       those of fovea.attention(), for the whole problem; without `out`, `lenses` and packed sequences

    Returns this rank's part of the context, or with return_lse=True (context, lse). Results have the accuracy of one
    process, and the same bits run after run.

    For torch tensors that require a gradient, the results are part of the graph (fovea.torch). The loss is the sum
    of the losses of all ranks. The gradients of query, key and value are those of this rank's part. The gradients of
    a bias, a relative table and sinks, which all ranks have, are shares: their sum over ranks is the gradient, as for
    other parameters of a model. The loss of every rank must depend on its result, because all ranks take part in the
    backward pass.

    Raises ValueError on all ranks if an argument is invalid on one of them or differs among them, and RuntimeError if
    another rank fails. Ctrl-C on one rank ends the call on all.

        >>> torch.distributed.init_process_group("gloo")
        >>> context = fovea.distributed.attention(query, key, value, sharding="zigzag", mask=fovea.causal())
    """
    transport = _transport_of(group)
    ranks = _engine._Ranks(transport)
    ranks.begin = functools.partial(_set_timeout, group, transport, timeout)  # also of the backward pass
    with ranks:  # which tells the other ranks about an error
        ranks.begin()
        ranks.set_shardings(sharding, sharding if key_sharding is None else key_sharding)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(query, torch.Tensor):
            from . import torch as gradients

            return gradients._attention(query, key, value, ranks=ranks, return_lse=return_lse, **options)
        return _engine._sharded_attention(ranks, query, key, value, return_lse=return_lse, **options)


def shard(array: ArrayT, sharding: Sharding, rank: int, axis: int = -2) -> ArrayT:
    """Returns a rank's part of a whole array of NumPy, torch or JAX, cut along `axis`, as a copy.

    >>> fovea.distributed.shard(numpy.arange(8), fovea.distributed.Sharding.zigzag(8, 2), 0, axis=0)
    array([0, 1, 6, 7])
    """
    whole: Any = array
    if not hasattr(whole, "shape"):
        raise TypeError(f"array: expected an array of NumPy, torch or JAX, got {type(array).__name__}")
    if not -whole.ndim <= axis < whole.ndim:
        raise ValueError(f"axis: expected {-whole.ndim} to {whole.ndim - 1}, got {axis}")
    if whole.shape[axis] != sharding.length:
        raise ValueError(f"array: expected {sharding.length} positions along axis {axis}, got {whole.shape[axis]}")
    positions = numpy.concatenate(
        [numpy.arange(begin, end) for begin, end in sharding.ranges(rank)] or [numpy.arange(0)]
    )
    index: list[Any] = [slice(None)] * whole.ndim
    index[axis] = positions
    part: ArrayT = whole[tuple(index)]
    return part
