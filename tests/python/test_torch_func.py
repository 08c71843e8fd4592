# SPDX-License-Identifier: Apache-2.0
"""fovea.torch.attention() in functions that torch.func transforms, compared with step-by-step attention in float64."""

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)

from test_torch_gradients import doubles, plain  # noqa: E402
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import fovea  # noqa: E402
import fovea.torch  # noqa: E402


def steps(query, key, value):
    return plain(query, key, value)[0]


def check(transformed, *attends):
    """Compares transformed(attend) for Fovea's attention and for `attends`, by default step by step."""
    found, expected = (transformed(attend) for attend in (attends or (fovea.torch.attention, steps)))
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other)


def inputs(*batch):
    return [x.detach() for x in doubles((*batch, 2, 5, 3), (*batch, 2, 6, 3), (*batch, 2, 6, 4))]


def squares(attend):
    return lambda *tensors: attend(*tensors).square().sum()


def test_gradients():
    check(lambda attend: grad(squares(attend), argnums=(0, 1, 2))(*inputs(3)))
    query, key, value = inputs(3)
    check(lambda attend: grad(lambda key: squares(attend)(query, key, value))(key))  # of one input only
    cotangent = torch.arange(120.0, dtype=torch.float64).reshape(3, 2, 5, 4).cos()
    check(lambda attend: vjp(attend, *inputs(3))[1](cotangent))


@pytest.mark.parametrize(
    "given", [{}, {"is_causal": True}, {"mask": torch.ones(5, 6).tril(1).bool()}, {"enable_gqa": True}]
)
def test_the_signature_of_pytorch(given):
    given = dict(given)
    query, key, value = inputs(3)
    mask = given.pop("mask", None)
    if given.get("enable_gqa"):
        key, value = key[:, :1], value[:, :1]
    attends = [
        lambda *tensors, name=name: name(*tensors, attn_mask=mask, **given)
        for name in (fovea.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention)
    ]
    check(lambda attend: attend(query, key, value), *attends)
    check(lambda attend: grad(squares(attend), argnums=(0, 1, 2))(query, key, value), *attends)
    check(lambda attend: vmap(attend)(query, key, value), *attends)
    check(lambda attend: vmap(grad(squares(attend)), in_dims=(0, None, 0))(query, key[0], value), *attends)
    with torch.no_grad():
        check(lambda attend: vmap(attend)(query, key, value), *attends)


def test_dropout_of_the_signature_of_pytorch():
    """As in PyTorch, vmap() requires `randomness`: whether the elements get the same random numbers."""

    def attend(*tensors):
        return fovea.scaled_dot_product_attention(*tensors, dropout_p=0.5)

    query, key, value = (x[:1].expand(3, *x.shape[1:]) for x in inputs(3))
    torch.manual_seed(1)
    same = vmap(attend, randomness="same")(query, key, value)
    assert torch.equal(same[0], same[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(attend)(query, key, value)


def test_gradients_of_parameters():
    torch.manual_seed(3)
    layer = torch.nn.Linear(3, 3, dtype=torch.float64)
    query, key, value = inputs(3)

    def transformed(attend):
        def loss(parameters):
            return squares(attend)(functional_call(layer, parameters, (query,)), key, value)

        return grad(loss)({name: one.detach() for name, one in layer.named_parameters()})

    check(transformed)


def test_gradients_of_biases_tables_and_sinks():
    query, key, value = inputs()
    bias, table, sinks = (x.detach() for x in doubles((5, 6), (8, 2), (2,)))

    def fused(bias, table, sinks):
        relative = fovea.torch.RelativeTable(table, max_distance=20)
        context, lse = fovea.torch.attention(
            query, key, value, bias=bias, relative=relative, sinks=sinks, softcap=2.0, return_lse=True
        )
        return context.square().sum() + lse.sum()

    def in_graph(bias, table, sinks):
        tensors = [x.clone().requires_grad_() for x in (bias, table, sinks)]
        return torch.autograd.grad(fused(*tensors), tensors)

    check(lambda each: each(bias, table, sinks), grad(fused, argnums=(0, 1, 2)), in_graph)


def test_a_loss_on_lse_only():
    def lse(query, key, value):
        return fovea.torch.attention(query, key, value, return_lse=True)[1]

    check(lambda attend: grad(squares(attend), argnums=(0, 1))(*inputs()), lse, lambda *tensors: plain(*tensors)[1])


@pytest.mark.parametrize("dims", [((0, 0, 0), 0), ((0, None, None), 1), ((1, 2, None), -1), ((-1, None, 0), 2)])
def test_added_dimensions(dims):
    into, out = dims
    tensors = inputs() if into != (0, 0, 0) else inputs(3)
    moved = [
        x if dim is None or into == (0, 0, 0) else torch.stack([x, x.cos(), x.sin()], dim)
        for x, dim in zip(tensors, into, strict=True)
    ]
    check(lambda attend: vmap(attend, in_dims=into, out_dims=out)(*moved))


def test_added_dimensions_within_others():
    check(lambda attend: vmap(vmap(attend))(*inputs(3)))


def test_an_added_dimension_without_elements():
    query, key, value = inputs(3)
    check(lambda attend: vmap(attend, in_dims=(0, None, None))(query[:0], key[0], value[0]))


def test_gradients_of_each_sample():
    check(lambda attend: vmap(grad(squares(attend), argnums=(0, 1, 2)))(*inputs(3)))
    query, key, value = inputs(3)
    check(lambda attend: vmap(grad(squares(attend)), in_dims=(0, None, 1))(query, key[0], value.movedim(0, 1)))


def test_jacobians():
    check(lambda attend: jacrev(attend, argnums=(0, 1, 2))(*inputs()))
    check(lambda attend: vmap(jacrev(attend))(*inputs(3)))


def test_each_element_has_the_same_mask_and_dropout():
    query, key, value = (x.to(torch.float32) for x in inputs(3))
    options = {"mask": fovea.causal(), "dropout": fovea.Dropout(0.5, seed=7)}

    def attend(query, key, value):
        return fovea.torch.attention(query, key, value, **options)

    found = vmap(attend)(query, key, value)
    for i in range(3):
        assert torch.equal(found[i], attend(query[i], key[i], value[i]))
    found = vmap(grad(squares(attend)))(query, key, value)
    for i in range(3):
        one = query[i].clone().requires_grad_()
        squares(attend)(one, key[i], value[i]).backward()
        assert torch.equal(found[i], one.grad)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # from PyTorch
def test_second_derivatives_and_forward_mode_are_refused():
    query, key, value = inputs()

    def loss(query):
        return squares(fovea.torch.attention)(query, key, value)

    with pytest.raises(RuntimeError, match="differentiated once"):
        grad(lambda query: grad(loss)(query).sum())(query)
    for transformed in (lambda: jvp(loss, (query,), (query,)), lambda: hessian(loss)(query)):
        with pytest.raises(RuntimeError, match=r"jvp|forward"):
            transformed()


def test_errors_name_the_argument():
    query, key, value = inputs(3)
    for attend in (fovea.torch.attention, fovea.scaled_dot_product_attention):
        with pytest.raises(ValueError, match=r"^key: "):
            vmap(attend)(query, key[..., :2], value)
    with pytest.raises(ValueError, match=r"^attn_mask: expected none beside is_causal"):
        vmap(lambda *x: fovea.scaled_dot_product_attention(*x, torch.zeros(5, 6), is_causal=True))(query, key, value)
    with pytest.raises(ValueError, match=r"^query: .*; fovea\.torch\.attention\(\) takes those of torch\.func"):
        vmap(fovea.decode)(query, key, value)
