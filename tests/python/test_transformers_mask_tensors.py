# SPDX-License-Identifier: Apache-2.0
"""Tests masks that reach the attention function of fovea.transformers as tensors: masks of users, whose rules are
recognized, and RuleMask, the tensor with a rule, in models that slice, copy and change it."""

import copy
import io

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_transformers_masks import seen_by_fovea  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402

import fovea  # noqa: E402
import fovea.transformers  # noqa: E402
from fovea._observe.passed import passed_mask  # noqa: E402
from fovea._observe.recognize import recognize  # noqa: E402
from fovea._observe.rule_mask import RuleMask  # noqa: E402
from fovea._observe.rules import Causal, Dense, Documents, Region, Rule, Window  # noqa: E402


# Masks of users: [batch, heads, q_len, kv_len] bools and the leaves of the expected rule.
def user_masks():
    ones = torch.ones(12, 12, dtype=torch.bool)
    band = ones.tril() & ones.triu(-2)
    left = torch.ones(2, 1, 1, 12, dtype=torch.bool)
    left[1, ..., :4] = False
    ids = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3])
    same = ids[:, None] == ids
    image = ones.tril()
    image[2:6, 2:6] = True
    noise = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(1)) > 0.5
    return {
        "causal": (ones.tril()[None, None], {Causal}),
        "window": (band[None, None], {Causal, Window}),
        "padding": (left, {Documents}),
        "causal, padding": (ones.tril() & left, {Causal, Documents}),
        "square padding": (left & left.mT, {Documents}),
        "packed": (same[None, None], {Documents}),
        "causal packed": ((same.tril())[None, None], {Causal, Documents}),
        "causal packed, two": (torch.stack([same.tril(), ones.tril()])[:, None], {Causal, Documents}),
        "image": (image[None, None], {Causal, Documents}),
        "image, padding": (image & left, {Causal, Documents}),
        "all": (ones[None, None], {Rule}),
        "noise": (noise, {Dense}),
        "heads": (torch.stack([ones.tril(), ones])[None].repeat(1, 2, 1, 1), {Dense}),
        "one for all heads": (ones.tril().expand(1, 4, 12, 12), {Causal}),
    }


@pytest.mark.parametrize("form", ["bool", "floats", "infinite"])
@pytest.mark.parametrize("name", user_masks())
def test_masks_of_users(name, form):
    shown, leaves = user_masks()[name]
    query, key = torch.zeros(2, 4, 12, 8), torch.zeros(2, 2, 12, 8)
    low = -torch.inf if form == "infinite" else torch.finfo(torch.float32).min
    mask = shown if form == "bool" else torch.where(shown, 0.0, low)
    passed = passed_mask(mask, query, key)
    assert passed.bias is None
    assert {type(leaf) for leaf in passed.rule.leaves()} == leaves
    region = Region(0, 12, 0, 12)
    found = fovea.reference.attention_steps(
        query.numpy(), key.numpy(), key.numpy(), mask=passed.mask, alignment=passed.alignment
    )
    assert torch.equal(torch.tensor(found.weights) > 0, shown.expand(2, 4, 12, 12))
    with pytest.raises(ValueError, match="mask: expected a part of queries 0 to 12"):
        passed.rule.mask(0, 13, 0, 12)
    assert passed_mask(mask, query, key) is passed or Dense in leaves  # the next layer
    mask = mask[:, :1] if mask.stride(1) == 0 else mask
    passed = passed_mask(mask, query, key)
    mask[..., :1, :1] = ~mask[..., :1, :1] if form == "bool" else 1.0
    assert passed_mask(mask, query, key) is not passed
    assert region.contains(Region(1, 2, 3, 4))


@pytest.mark.parametrize("region", [Region(11, 1, 0, 12), Region(4, 8, 0, 12)])
def test_rows_of_masks_of_users(region):
    for name, (shown, _) in user_masks().items():
        rows = shown.expand(-1, -1, 12, 12)[:, :, -region.q_len :]
        if rows.shape[1] > 1:
            continue
        rule = recognize(lambda first, end: rows[:, :, first:end], rows.shape[0], region)  # noqa: B023
        right = rows.expand(rows.shape[0], 1, region.q_len, 12)
        assert torch.equal(seen_by_fovea(rule, region, rows.shape[0]), right), name


def test_masks_of_users_for_static_caches():
    """Queries may be aligned with the first keys; the other slots are empty."""
    query, key = torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 9, 8)
    shown = torch.ones(1, 1, 5, 9, dtype=torch.bool).tril()
    for mask in (shown, torch.where(shown, 0.0, -torch.inf)):
        passed = passed_mask(mask, query, key)
        assert [type(leaf) for leaf in passed.rule.leaves()] == [Causal]
        assert (str(passed.mask), passed.alignment, passed.query_start) == ("causal()", 0, 0)


def test_biases_stay_biases():
    query, key = torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 6, 8)
    bias = torch.randn(1, 2, 5, 6)
    assert passed_mask(bias, query, key).bias.data_ptr() == bias.data_ptr()
    assert passed_mask(bias, query, key).mask is None
    mask = torch.zeros(1, 1, 5, 6, requires_grad=True)
    assert passed_mask(mask, query, key).bias.requires_grad
    assert passed_mask(bias, query.double(), key.double()).bias.dtype == torch.float64


def test_masks_are_not_kept_alive():
    query, key = torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 5, 8)
    noise = torch.rand(1, 1, 5, 5, generator=torch.Generator().manual_seed(1)) > 0.5
    for make in (lambda: noise.clone(), lambda: noise.float().masked_fill(~noise, -torch.inf), lambda: noise.double()):
        mask = make()
        storage = StorageWeakRef(mask.untyped_storage())
        passed_mask(mask, query, key)
        assert not storage.expired()
        del mask
        assert storage.expired()


@torch.inference_mode()
def test_masks_in_inference_mode():
    """Tensors of this mode have no version. They are read again, because they may have changed in place."""
    query, key = torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 5, 8)
    mask = torch.ones(1, 1, 5, 5).tril().bool()
    assert str(passed_mask(mask, query, key).mask) == "causal()"
    mask[..., :2] = True
    assert str(passed_mask(mask, query, key).mask) == "(causal() | prefix(2))"


def test_masks_that_do_not_fit():
    query, key = torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 6, 8)
    for mask, parts in (
        (torch.ones(2, 1, 5, 7).bool(), r"attention_mask: expected .* = \[2, 4, 5, 6\], got \[2, 1, 5, 7\]"),
        (torch.ones(3, 1, 5, 6).bool(), r"got \[3, 1, 5, 6\]"),
        (torch.ones(1, 2, 1, 5, 6).bool(), r"got \[1, 2, 1, 5, 6\]"),
        (torch.ones(2, 1, 5, 6).long(), "attention_mask: expected bools or floats, got torch.int64"),
        (torch.ones(2, 1, 5, 6, device="meta").bool(), "attention_mask: expected a tensor on the CPU"),
        (fovea.transformers.mask(3, 5, 6), r"attention_mask: expected \[2, 1, 5, 6\], got \[3, 1, 5, 6\]"),
        (fovea.transformers.mask(2, 4, 6), r"got \[2, 1, 4, 6\]"),
        (fovea.transformers.mask(2, 5, 5), r"got \[2, 1, 5, 5\]"),
    ):
        with pytest.raises(ValueError, match=parts):
            passed_mask(mask, query, key)


def rule_mask(items=2):
    visible = torch.ones(items, 7, dtype=torch.bool)
    visible[-1, :2] = False
    return fovea.transformers.mask(items, 5, 7, 2, attention_mask=visible)


# Operations of models on masks. Those of the first list keep the rule.
KEPT = {
    "slice": lambda mask: mask[:, :, :, :6],
    "ellipsis": lambda mask: mask[..., 1:4, :],
    "last row": lambda mask: mask[:, :, -1:, :],
    "all": lambda mask: mask[:, :, :, :7],
    "clone": lambda mask: mask.clone(),
    "contiguous": lambda mask: mask.contiguous(),
    "detach": lambda mask: mask.detach(),
    "to": lambda mask: mask.to("cpu"),
    "to type": lambda mask: mask.to(torch.bool),
    "bool": lambda mask: mask.bool(),
}
COMPUTED = {
    "floats": lambda mask: mask.to(torch.float32),
    "where": lambda mask: torch.where(mask, 0.0, -1e9),
    "and": lambda mask: mask & (torch.arange(7) > 2),
    "or": lambda mask: mask | (torch.arange(7) > 5),
    "not": lambda mask: ~mask,
    "item": lambda mask: mask[1],
    "element": lambda mask: mask[0, 0, 2, 3],
    "new axis": lambda mask: mask[:, None],
    "expand": lambda mask: mask.expand(2, 3, 5, 7),
    "repeat": lambda mask: mask.repeat(2, 1, 1, 1),
    "cat": lambda mask: torch.cat([mask, mask], -1),
    "fill": lambda mask: mask.masked_fill(torch.arange(7) == 3, False),
    "sum": lambda mask: mask.sum(-1),
    "all": lambda mask: mask.all(),
    "numpy": lambda mask: torch.from_numpy(mask.numpy()),
    "list": lambda mask: torch.tensor(mask.tolist()),
    "deepcopy": copy.deepcopy,
    "pad": lambda mask: torch.nn.functional.pad(mask, (0, 2), value=False),
    "step": lambda mask: mask[..., ::2],
    "first item": lambda mask: mask[:1],
}


@pytest.mark.parametrize("name", KEPT)
def test_operations_that_keep_the_rule(name):
    mask = rule_mask()
    found = KEPT[name](mask)
    assert isinstance(found, RuleMask)
    assert found.untyped_storage().nbytes() == 1
    assert torch.equal(found.elements(), KEPT[name](mask.elements()))
    assert torch.equal(seen_by_fovea(found.rule, found.region, 2), found.elements())


@pytest.mark.parametrize("name", COMPUTED)
def test_operations_on_elements(name):
    mask = rule_mask()
    found = COMPUTED[name](mask)
    assert not isinstance(found, RuleMask)
    assert torch.equal(found, COMPUTED[name](mask.elements()))
    assert mask.rule is not None


def test_operations_in_place():
    for change in (
        lambda mask: mask.__setitem__((slice(None), slice(None), slice(None), 3), False),
        lambda mask: mask.logical_not_(),
        lambda mask: mask.__iand__(torch.arange(7) > 2),
        lambda mask: torch.logical_and(mask, torch.arange(7) > 2, out=mask),
    ):
        mask, right = rule_mask(), rule_mask().elements()
        copied = mask.clone()
        change(mask)
        change(right)
        assert torch.equal(mask.elements(), right)
        assert torch.equal(mask & True, right)
        assert not torch.equal(copied.elements(), right)
        passed = passed_mask(mask, torch.zeros(2, 1, 5, 8), torch.zeros(2, 1, 7, 8))
        assert passed.mask is not None


def test_a_mask_on_disk():
    file = io.BytesIO()
    mask = rule_mask()
    torch.save(mask, file)
    file.seek(0)
    assert torch.equal(torch.load(file), mask.elements())


def test_properties():
    mask = rule_mask()
    assert (mask.shape, mask.ndim, mask.dim(), mask.size(-1), len(mask)) == ((2, 1, 5, 7), 4, 4, 7, 2)
    assert (mask.dtype, mask.device.type, mask.requires_grad, mask.numel()) == (torch.bool, "cpu", False, 70)
    assert mask.is_floating_point() is False
    assert {mask: 1}[mask] == 1
    assert "True" in repr(mask)


def test_a_copy_that_lost_its_rule():
    """Code that copies memory without PyTorch's functions gets the stored byte, which hides everything: refused."""
    mask = rule_mask()
    with torch._C.DisableTorchFunctionSubclass():
        copied = torch.Tensor.clone(mask).as_subclass(torch.Tensor).contiguous()
    with pytest.raises(ValueError, match="attention_mask: expected a tensor with its rule, got a copy"):
        passed_mask(copied, torch.zeros(2, 1, 5, 8), torch.zeros(2, 1, 7, 8))
