# SPDX-License-Identifier: Apache-2.0
"""Observers of PyTorch attention: modules, nesting, threads, exceptions, and calls that are refused."""

import threading
import weakref

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

import torch.nn.functional as F  # noqa: E402, N812
from problems import raises  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.nn.attention import flex_attention as flex  # noqa: E402
from torch_problems import (  # noqa: E402
    Block,
    both,
    check_weights,
    exact_scores,
    inputs,
    normal,
    observed,
    softmax,
)

import fovea  # noqa: E402
from fovea._observe.calls import check_eager, observe  # noqa: E402
from fovea._observe.torch_functions import ObservedFunctions  # noqa: E402


class Custom(nn.Module):
    """Attention in a method, in a function, and in an object that is no module."""

    def __init__(self):
        super().__init__()
        self.inner = Block(batch_first=True)

    def forward(self, x):
        by_method = self.attend(x)
        by_function = (lambda one: F.scaled_dot_product_attention(one, one, one))(by_method)
        return self.inner.forward(*[by_function[:, 0]] * 3, need_weights=False)[0]  # bypasses hooks

    def attend(self, x):
        return F.scaled_dot_product_attention(x, x, x)


def test_modules_are_found():
    model = Custom()
    _, calls = observed("fovea", lambda: model(normal(2, 1, 9, 16)))
    assert [call.module for call in calls] == [model, model, model.inner.attention]


def test_without_observers():
    query, key, value = inputs((2, 4, 17, 16))
    before = fovea._fovea._forward_calls()
    with ObservedFunctions("original"):
        F.scaled_dot_product_attention(query, key, value)
        nn.MultiheadAttention(16, 4)(*[normal(9, 2, 16)] * 3)
    assert fovea._fovea._forward_calls() == before
    with ObservedFunctions("fovea"):
        F.scaled_dot_product_attention(query, key, value)
    assert fovea._fovea._forward_calls() == before + 1


def test_observers_nest_and_see_calls_of_their_block_only():
    query = normal(1, 1, 5, 4)
    outer, inner = [], []
    with observe(outer.append), ObservedFunctions():
        F.scaled_dot_product_attention(query, query, query)
        with observe(inner.append):
            F.scaled_dot_product_attention(query, query, query)
    F.scaled_dot_product_attention(query, query, query)
    assert (len(outer), len(inner)) == (2, 1)


class FailureError(Exception):
    pass


def test_exceptions_restore_everything():
    query = normal(1, 1, 5, 4)
    switch = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG

    def fail(call):
        raise FailureError

    model = Block(batch_first=True)
    for function in (
        lambda: F.scaled_dot_product_attention(query, query, query),
        lambda: flex.flex_attention(query, query, query),
        lambda: model(*[normal(2, 9, 16)] * 3),
    ):
        with pytest.raises(FailureError), observe(fail), ObservedFunctions():
            function()
        assert flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is switch
        assert torch._C._len_torch_function_stack() == 0
    result, calls = observed("fovea", lambda: F.scaled_dot_product_attention(query, query, query))
    assert len(calls) == 1
    torch.testing.assert_close(result, F.scaled_dot_product_attention(query, query, query))


def test_calls_do_not_keep_a_model_alive():
    models = [Block(batch_first=True)]
    observed("fovea", lambda: models[0](*[normal(2, 9, 16)] * 3))
    alive = weakref.ref(models.pop())
    assert alive() is None


def test_one_mode_on_each_thread():
    query = normal(1, 1, 5, 4)
    calls, switched = [], []

    def other():
        switched.append(bool(flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG))
        F.scaled_dot_product_attention(query, query, query)
        switched.append(len(observed("fovea", lambda: F.scaled_dot_product_attention(query, query, query))[1]))

    with observe(calls.append), ObservedFunctions() as mode:
        with raises(RuntimeError, "ObservedFunctions: expected one on each thread, got a second"), ObservedFunctions():
            pass
        with raises(RuntimeError, "expected one on each thread"), mode:
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert bool(flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG)
        F.scaled_dot_product_attention(query, query, query)
    assert switched == [False, 1]
    assert len(calls) == 1
    assert not flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG


class Renaming(torch.overrides.TorchFunctionMode):
    """Another mode, which calls every function as it is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@both
def test_other_modes(compute):
    module = nn.MultiheadAttention(16, 4)
    embedded = normal(9, 2, 16)
    plain = module(embedded, embedded, embedded)
    for outer in (Renaming, lambda: torch.device("cpu")):
        with outer():
            found, calls = observed(compute, lambda: module(embedded, embedded, embedded))
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-6)
        assert len(calls) == 1
    calls = []
    with observe(calls.append), ObservedFunctions(compute), Renaming():
        found = module(embedded, embedded, embedded)
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-6)
    assert len(calls) == 1


def attend(x):
    return F.scaled_dot_product_attention(x, x, x) + 1


class Attends(nn.Module):
    def forward(self, x):
        return attend(x)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@both
def test_compiled_attention_is_refused(compute):
    x = normal(1, 1, 5, 4)
    in_place = Attends()
    in_place.compile(backend="eager")
    compiled = torch.compile(Attends(), backend="eager")
    compiled(x)
    for function in (torch.compile(attend, backend="eager"), compiled, in_place):
        with pytest.raises(ValueError, match=r"torch.compile: expected uncompiled attention, got a compiled function"):
            observed(compute, lambda: function(x))  # noqa: B023
    for model in (compiled, in_place, nn.Sequential(nn.Identity(), in_place), torch.jit.script(nn.Identity())):
        with raises(ValueError, "model: expected uncompiled modules, got a"):
            check_eager(model)
    check_eager(Attends())
    _, calls = observed(compute, lambda: compiled._orig_mod(x))
    assert len(calls) == 1


@both
def test_other_tensors_are_refused(compute):
    x, meta = normal(1, 1, 5, 4), torch.empty(1, 1, 5, 4, device="meta")
    nested = torch.nested.nested_tensor([normal(3, 4), normal(5, 4)], layout=torch.jagged)
    module = nn.MultiheadAttention(16, 4, device="meta")
    for function, name, expected in (
        (lambda: F.scaled_dot_product_attention(meta, meta, meta), "query", "a tensor on the CPU, got one on meta"),
        (
            lambda: F.scaled_dot_product_attention(x, x, x, meta[0, 0]),
            "attn_mask",
            "a tensor on the CPU, got one on meta",
        ),
        (lambda: module(*[torch.empty(9, 2, 16, device="meta")] * 3), "query", "a tensor on the CPU, got one on meta"),
        (lambda: F.scaled_dot_product_attention(nested, nested, nested), "query", "a dense tensor"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: expected {expected}"):
            observed(compute, function)


@both
def test_tensors_without_elements_are_refused(compute):
    query = normal(2, 2, 5, 4)

    def fake():
        with FakeTensorMode():
            one = torch.empty(1, 2, 5, 4)
            return F.scaled_dot_product_attention(one, one, one)

    for function, got in (
        (fake, "a FakeTensor"),
        (lambda: torch.vmap(lambda one: F.scaled_dot_product_attention(one, one, one))(query), "one of torch.func"),
        (lambda: torch.func.grad(lambda one: F.scaled_dot_product_attention(one, one, one).sum())(query), "torch.func"),
    ):
        with pytest.raises(ValueError, match=f"^query: expected a tensor with elements in memory, got .*{got}"):
            observed(compute, function)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated:DeprecationWarning")
@both
def test_traces_are_refused(compute):
    with pytest.raises(ValueError, match=r"^torch\.jit\.trace: expected"):
        observed(compute, lambda: torch.jit.trace(attend, normal(1, 2, 5, 4)))


@both
def test_inference_mode(compute):
    with torch.inference_mode():
        query = normal(1, 2, 5, 4)
        found, (call,) = observed(compute, lambda: F.scaled_dot_product_attention(query, query, query))
    check_weights(call, softmax(exact_scores(query, query)))
    assert found.is_inference() or compute == "fovea"


@both
def test_other_compiled_functions_run(compute):
    query = normal(2, 2, 5, 4)
    compiled = torch.compile(lambda one: one.relu() * 2, backend="eager", fullgraph=True)

    def of():
        one = compiled(query)
        return F.scaled_dot_product_attention(one, one, one)

    found, calls = observed(compute, of)
    assert len(calls) == 1
    torch.testing.assert_close(found, of())


def test_operators_below_are_refused():
    module = nn.MultiheadAttention(16, 4, batch_first=True)
    x, query = normal(2, 9, 16), normal(1, 2, 9, 8)
    projections = module.in_proj_weight, module.in_proj_bias, module.out_proj.weight, module.out_proj.bias
    for name, function in (
        ("_native_multi_head_attention", lambda: torch._native_multi_head_attention(x, x, x, 16, 4, *projections)),
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, query, query),
        ),
    ):
        with ObservedFunctions(), raises(ValueError, f"expected scaled_dot_product_attention, got {name}, which"):
            function()


def test_compute_is_checked():
    with raises(ValueError, 'compute: expected "fovea" or "original", got \'sdpa\''):
        ObservedFunctions("sdpa")
