# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.distributed: attention of sequences that are sharded over processes of this machine, in groups of
torch.distributed. Results must be as exact as those of one process (the 1x rule, docs/numerics.md)."""

import re
import signal
import sys
import time
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import distributed_ranks as ranks  # noqa: E402
from distributed_ranks import Case, Group  # noqa: E402
from problems import GRADIENTS, assert_as_exact, assert_gradients_as_exact, raises  # noqa: E402

import fovea  # noqa: E402
import fovea.distributed  # noqa: E402
from fovea.distributed import Sharding, shard  # noqa: E402

OPTIONS = (
    "nothing",
    "causal",
    "window",
    "documents",
    "prefix",
    "key lengths",
    "dense",
    "alignment",
    "softcap",
    "alibi",
    "bias of keys",
    "bias",
    "relative",
    "sinks",
    "dropout",
    "all",
)
SHARDINGS = ("contiguous", "zigzag", "uneven", "given", "keys apart")


@pytest.fixture(scope="module")
def groups():
    made = {}

    def group(size):
        if size not in made:
            made[size] = Group(size)
        return made[size]

    yield group
    for one in made.values():
        one.close()


def assembled(parts, sharding, axis):
    """Returns the array whose parts ranks have."""
    shape = list(parts[0].shape)
    shape[axis] = sharding.length
    whole = np.empty(shape, parts[0].dtype)
    for rank, part in enumerate(parts):
        first = 0
        for begin, end in sharding.ranges(rank):
            index = [slice(None)] * whole.ndim
            index[axis] = slice(begin, end)
            whole[tuple(index)] = part.take(range(first, first + end - begin), axis)
            first += end - begin
        assert part.shape[axis] == first
    return whole


def check_lse(found, right):
    assert found.shape == right.shape
    assert np.array_equal(np.isinf(found), np.isinf(right))
    seen = ~np.isinf(right)
    assert np.abs(found[seen] - right[seen]).max(initial=0) <= 2e-6 * (1 + np.abs(right[seen]).max(initial=0))


def check_forward(group, case):
    queries = case.shardings(group.size)[0]
    arrays, options = case.arrays(), case.numpy_options()
    context, lse = (
        assembled(parts, queries, axis)
        for parts, axis in zip(zip(*group.call(ranks.forward, case), strict=True), (-2, -1), strict=True)
    )
    assert context.dtype == arrays[0].dtype
    assert_as_exact(context, *arrays, **options)
    check_lse(lse, fovea.attention(*arrays, return_lse=True, **options)[1])


def check_gradients(group, case):
    queries, keys, _ = case.shardings(group.size)
    arrays, options = case.arrays(), case.numpy_options()
    lse = fovea.attention(*arrays, return_lse=True, **options)[1]
    outcomes = group.call(ranks.gradients, case, lse)
    context = assembled([results[0] for results, _ in outcomes], queries, -2)
    assert_as_exact(context, *arrays, **options)
    check_lse(assembled([results[1] for results, _ in outcomes], queries, -1), lse)
    found = dict.fromkeys(GRADIENTS)
    for name in outcomes[0][1]:
        parts = [gradients[name] for _, gradients in outcomes]
        if name in ("query", "key", "value"):
            found[name] = assembled(parts, queries if name == "query" else keys, -2)
        else:
            found[name] = np.sum(parts, axis=0)
    grad_context, grad_lse = case.cotangents(lse)
    # Weights are recomputed from lse, whose rounding error grows with its size.
    roundings = 8 * (1 + np.abs(lse[~np.isinf(lse)]).max(initial=0))
    assert_gradients_as_exact(
        types.SimpleNamespace(**found), *arrays, grad_context, grad_lse, roundings=roundings, **options
    )


@pytest.mark.parametrize("option", OPTIONS)
def test_options(groups, option):
    for case in (Case(option), Case(option, "uneven", lengths=(57, 57) if option == "documents" else (43, 70))):
        check_forward(groups(3), case)
        check_gradients(groups(3), case)


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_shardings(groups, size, sharding):
    for dtype in ("float32", "float16", "bfloat16"):
        case = Case("causal", sharding, dtype, lengths=(41, 60))
        check_forward(groups(size), case)
        check_gradients(groups(size), case)
    check_forward(groups(size), Case("causal", sharding, "float64"))


def test_shapes(groups):
    """Fewer dimensions, fewer positions than ranks, no positions, more queries than keys."""
    for outer in ((), ()), ((4,), (2,)), ((1, 4), (1, 1)):
        for lengths in (57, 57), (3, 2), (0, 5), (5, 0), (60, 10):
            for sharding in "zigzag", "uneven":
                case = Case("causal", sharding, lengths=lengths, outer=outer)
                check_forward(groups(4), case)
                check_gradients(groups(4), case)


def test_same_bits_run_after_run(groups):
    case = Case("all", lengths=(300, 300))
    lse = fovea.attention(*case.arrays(), return_lse=True, **case.numpy_options())[1]
    first = groups(3).call(ranks.gradients, case, lse)
    for _ in range(3):
        for (results, gradients), (before, gradients_before) in zip(
            groups(3).call(ranks.gradients, case, lse), first, strict=True
        ):
            assert [x.tobytes() for x in results] == [x.tobytes() for x in before]
            assert {name: x.tobytes() for name, x in gradients.items()} == {
                name: x.tobytes() for name, x in gradients_before.items()
            }


def test_one_process(groups):
    """A group of one process has the same bits as no group, except with sinks, which are added last."""
    check_gradients(groups(1), Case("all"))
    case = Case("relative")
    context, lse = fovea.attention(*case.arrays(), return_lse=True, **case.numpy_options())
    ((own_context, own_lse),) = groups(1).call(ranks.forward, case)
    assert np.array_equal(own_context, context)
    assert np.array_equal(own_lse, lse)


def test_shard():
    sharding = Sharding.zigzag(8, 2)
    assert shard(np.arange(8), sharding, 0, axis=0).tolist() == [0, 1, 6, 7]
    assert shard(torch.arange(16).view(8, 2), sharding, 1).tolist() == [[4, 5], [6, 7], [8, 9], [10, 11]]
    assert shard(np.ones((3, 2)), Sharding.lengths([0, 3]), 0).shape == (0, 2)
    with raises(ValueError, "array: expected 8 positions along axis -2, got 3"):
        shard(np.ones((3, 2)), sharding, 0)
    with raises(ValueError, "axis: expected -1 to 0, got -2"):
        shard(np.arange(8), sharding, 0)
    with raises(TypeError, "array: expected an array of NumPy, torch or JAX, got list"):
        shard([1, 2], sharding, 0)
    with raises(ValueError, "rank: expected 0 or more and less than 2, got 2"):
        shard(np.ones((8, 2)), sharding, 2)
    assert sharding == Sharding.zigzag(8, 2) != Sharding.contiguous(8, 2)
    assert repr(sharding) == "fovea.distributed.Sharding.zigzag(8, 2)"
    assert [sharding.owner(i) for i in range(8)] == [0, 0, 1, 1, 1, 1, 0, 0]


DIFFERENT = {
    "mask": ({"mask": fovea.window(3, 0)}, "causal() on ranks 0, 2, window(3, 0) on rank 1"),
    "scale": ({"scale": 0.5}, "the default on ranks 0, 2, 0.5 on rank 1"),
    "query": ({"query": np.ones((1, 4, 8, 4), np.float32)}, "[1, 4, length, 4] on rank 1"),
    "sharding": ({"sharding": "zigzag", "key_sharding": "contiguous"}, "lengths(8, 8, 8) on ranks 0, 2, zigzag"),
    "key_sharding": ({"key_sharding": "zigzag"}, "lengths(8, 8, 8) on ranks 0, 2, zigzag(24, 3) on rank 1"),
    "sinks": ({"sinks": [1, 2]}, "[] on ranks 0, 2, [1, 2] on rank 1"),
}


# Masks cannot be pickled, so that ranks make them.
def attend_differently(rank, name):
    return ranks.attend(rank, {1: DIFFERENT[name][0]}, {"mask": fovea.causal()})


@pytest.mark.parametrize("name", DIFFERENT)
def test_arguments_that_differ(groups, name):
    errors = groups(3).fail(attend_differently, name)
    assert {type(error) for error in errors} == {ValueError}
    (text,) = {str(error) for error in errors}
    assert text.startswith(f"{name}: expected the same on all ranks, got ")
    assert DIFFERENT[name][1] in text
    assert groups(3).call(ranks.attend, {})[0].shape == (1, 2, 8, 4)


INVALID = {
    "scale": ({"scale": "large"}, "scale: expected a number"),
    "key": ({"key": [[1.0]]}, "key: expected an array"),
    "value": ({"value": np.ones((8, 4), np.float32)}, "value: "),
    "sharding": ({"sharding": "spiral"}, 'sharding: expected "contiguous", "zigzag" or a Sharding, got \'spiral\''),
    "lengths": (
        {"sharding": Sharding.lengths([7, 9, 8])},
        "query: expected the 9 positions of rank 1 in lengths(7, 9, 8)",
    ),
    "ranks": ({"sharding": Sharding.lengths([8])}, "sharding: expected a sharding among 3 ranks, got lengths(8)"),
    "keyword": ({"colour": 1}, "attention() got an unexpected keyword argument 'colour'"),
    "sequences": ({"query_starts": [0, 8], "key_starts": [0, 8]}, "query_starts: expected none with sharded tensors"),
}


def attend_wrongly(rank, name, which, torch_tensors):
    return ranks.attend(rank, dict.fromkeys(which, INVALID[name][0]), torch_tensors=torch_tensors)


@pytest.mark.parametrize("torch_tensors", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", INVALID)
def test_argument_that_is_invalid_on_one_rank(groups, name, torch_tensors):
    errors = groups(3).fail(attend_wrongly, name, [1], torch_tensors)
    assert {type(error) for error in errors} == {ValueError}, errors
    (text,) = {str(error) for error in errors}
    expected = INVALID[name][1]
    if torch_tensors and name in ("key", "value"):
        expected = f"{name}: expected a torch.Tensor"
    if name == "keyword":
        assert text.startswith(f"on rank 1: {expected}")
    else:
        assert text.startswith(expected)
        assert text.endswith(", on rank 1")
    assert groups(3).call(ranks.attend, {})[0].shape == (1, 2, 8, 4)


def test_argument_that_is_invalid_on_all_ranks(groups):
    for name, kind in (("scale", TypeError), ("key", TypeError), ("keyword", TypeError), ("sharding", ValueError)):
        errors = groups(3).fail(attend_wrongly, name, [0, 1, 2], False)
        assert {type(error) for error in errors} == {kind}
        assert all(str(error).startswith(INVALID[name][1]) and "rank" not in str(error) for error in errors)


def test_gradients_that_differ(groups):
    errors = groups(3).fail(ranks.attend_without_gradient_on, 2)
    assert {type(error) for error in errors} == {ValueError}
    assert len({str(error) for error in errors}) == 1
    assert "grad_query, grad_key" in str(errors[0])
    assert groups(3).call(ranks.attend, {})[0].shape == (1, 2, 8, 4)


def test_subgroup(groups):
    group = groups(3)
    group.start(ranks.attend_in_subgroup)
    first, other, last = group.outcomes()
    assert isinstance(other, ValueError)
    assert str(other) == "group: expected a group to which this process belongs, got another"
    weight = 1 / (1 + np.exp(-8))  # of the keys of rank 2 for its own queries: scores are 8 and 0
    assert np.allclose(first, 1)
    assert np.allclose(last, 2 * weight)


def test_jax(groups):
    pytest.importorskip("jax", exc_type=ImportError)
    outcomes = groups(2).call(ranks.attend_with_jax)
    assert [is_jax for is_jax, _ in outcomes] == [True, True]
    query = np.arange(24, dtype=np.float32).reshape(6, 4)
    context = assembled([part for _, part in outcomes], Sharding.zigzag(6, 2), -2)
    assert_as_exact(context, query, query, query, mask=fovea.causal())


def test_communicator_without_mpi(monkeypatch):
    communicator = type("Comm", (), {"__module__": "mpi4py.MPI"})()
    monkeypatch.setitem(sys.modules, "fovea._mpi", None)
    monkeypatch.delattr(fovea, "_mpi", raising=False)
    with raises(ImportError, "group: ", "got an mpi4py communicator, for which this build of fovea lacks MPI"):
        fovea.distributed.attention(*[np.ones((8, 4), np.float32)] * 3, group=communicator)


def test_without_a_group():
    with raises(ValueError, "group: expected torch.distributed to be initialised", "got None"):
        fovea.distributed.attention(*[np.ones((8, 4), np.float32)] * 3)


def test_training_example(groups):
    """Four processes train the model of examples/distributed as one process does."""
    printed, right = ranks.train_example(0, 6)
    assert re.fullmatch(r"(step +\d+  loss \d\.\d{4}\n){2}", printed)
    outcomes = groups(4).call(ranks.train_example, 6)
    assert [text for text, _ in outcomes] == [printed, "", "", ""]
    for _, parameters in outcomes:
        assert parameters.keys() == right.keys()
        for name, parameter in parameters.items():
            assert parameter.tobytes() == outcomes[0][1][name].tobytes()
            assert np.abs(parameter - right[name]).max() <= 1e-5, name
    assert any(
        np.abs(x - y).max() > 1e-2 for x, y in zip(right.values(), ranks.train_example(0, 0)[1].values(), strict=True)
    )


@pytest.fixture
def new_group():
    made = []

    def make(size, timeout):
        made.append(Group(size, timeout))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_killed_rank(new_group):
    """The others get an error long before the timeout of the group, if those that have one end."""
    group = new_group(3, timeout=10 * ranks.SECONDS)
    group.call(ranks.attend, {})
    group.start(ranks.attend_endlessly)
    time.sleep(1)
    group.signal(1, signal.SIGKILL)
    remaining = {0, 2}
    while remaining:  # in any order: both ranks exchange messages with rank 1
        rank, outcome = group.first_outcome(remaining)
        assert type(outcome) is RuntimeError, outcome
        assert str(outcome).startswith("communication with the other ranks failed: ")
        group.signal(rank, signal.SIGKILL)
        remaining.remove(rank)


def test_rank_that_ends_before_the_backward_pass(new_group):
    group = new_group(2, timeout=60)
    outcomes = group.fail(ranks.die_in_backward, 0)
    assert isinstance(outcomes[0], EOFError)
    assert type(outcomes[1]) is RuntimeError


def test_silent_rank(new_group):
    """The timeout of the group ends the wait for a rank that is stopped."""
    group = new_group(2, timeout=5)
    group.call(ranks.attend, {})
    group.signal(0, signal.SIGSTOP)
    started = time.monotonic()
    group.start(ranks.attend, {})
    outcome = group.outcome(1)
    assert 4 < time.monotonic() - started < 40
    assert type(outcome) is RuntimeError
    assert "imed out" in str(outcome)


def test_interrupt_ends_the_call_on_all_ranks(new_group):
    group = new_group(2, timeout=60)
    group.call(ranks.attend, {})
    group.start(ranks.attend_for_long)
    time.sleep(1)
    started = time.monotonic()
    group.signal(1, signal.SIGINT)
    other, interrupted = group.outcomes()
    assert time.monotonic() - started < 40  # less than the group's timeout
    assert type(interrupted) is KeyboardInterrupt
    assert type(other) is RuntimeError
    assert str(other) == "stopped as requested, on rank 1"
    assert group.call(ranks.attend, {})[0].shape == (1, 2, 8, 4)
