# SPDX-License-Identifier: Apache-2.0
"""Tests the masks of fovea.transformers: every kind of mask function that transformers makes, against its own bool
masks; functions without a rule; models with further masks; memory at 16,384 tokens."""

import functools
import itertools
import mmap
import pathlib
import random
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from transformers import masking_utils as hf  # noqa: E402
from transformers_models import GROUPED, SIZES, build, errors, left_padded, text  # noqa: E402

import fovea  # noqa: E402
import fovea.transformers  # noqa: E402
from fovea._observe.calls import observe  # noqa: E402
from fovea._observe.passed import passed_mask  # noqa: E402
from fovea._observe.rule_mask import RuleMask  # noqa: E402
from fovea._observe.rules import Causal, Computed, Dense, Documents, Known, Prefix, Region, Rule, Window  # noqa: E402

# Regions: whole sequences, a decoding step, a chunk of a prompt, a sliding cache, a static cache, cross attention.
REGIONS = [
    Region(0, 12, 0, 12),
    Region(11, 1, 0, 12),
    Region(5, 4, 0, 9),
    Region(9, 3, 6, 6),
    Region(3, 2, 0, 16),
    Region(0, 12, 0, 16),
    Region(0, 5, 0, 9),
    Region(0, 1, 0, 1),
]


def seen_by_fovea(rule, region, items):
    """Returns what fovea.attention() sees with the mask and the alignment of the rule."""
    mask, alignment = rule.mask(*region)
    query, key = torch.zeros(items, 1, region.q_len, 1).numpy(), torch.zeros(items, 1, region.kv_len, 1).numpy()
    steps = fovea.reference.attention_steps(query, key, key, mask=mask, alignment=alignment)
    return torch.tensor(steps.weights) > 0


def paddings(items, length):
    """Returns padding masks of two items: none, left, right, all but one key, a hole."""
    found = [None]
    for hidden in (slice(0, 4), slice(length - 3, length), slice(0, length - 1), slice(2, 5)):
        visible = torch.ones(items, length, dtype=torch.bool)
        visible[-1, hidden] = False
        found.append(visible)
    return found


def functions(items, length):
    """Returns mask functions that have a rule, by name."""
    ids = torch.arange(length).expand(items, -1)
    packed = torch.stack([(ids[0] >= 3).long() + (ids[0] >= 8), (ids[0] >= 5).long()])[:items]
    starts = torch.tensor([[0, 3, 8], [0, 5, 0]])[:items]
    positions = ids - starts.gather(1, packed)
    blocks = torch.full((items, length), -1)
    blocks[:, 2:5], blocks[-1, 7:9] = 0, 1
    left = torch.tensor([0, 4])[:items]
    causal, window = hf.causal_mask_function, hf.sliding_window_causal_mask_function
    chunked = hf.chunked_causal_mask_function(4, left)
    return {
        "causal": causal,
        "bidirectional": hf.bidirectional_mask_function,
        "window": window(3),
        "window of 1": window(1),
        "wide window": window(100),
        "bidirectional window": hf.sliding_window_bidirectional_mask_function(3),
        "chunked": chunked,
        "packed": hf.packed_sequence_compatibility_function(causal, positions, packed),
        "packed, window": hf.packed_sequence_compatibility_function(window(2), positions, packed),
        "packed, chunked": hf.packed_sequence_compatibility_function(chunked, positions, packed),
        "blockwise": hf.or_masks(causal, hf.blockwise_overlay(blocks)),
        "blockwise, window": hf.or_masks(window(3), hf.blockwise_overlay(blocks)),
        "packed and blockwise": hf.or_masks(
            hf.packed_sequence_compatibility_function(causal, positions, packed), hf.blockwise_overlay(blocks)
        ),
        "documents": hf.and_masks(hf.packed_sequence_mask_function(packed), hf.bidirectional_mask_function),
    }


KNOWN = list(functions(2, 16))


def given(region):
    return {
        "q_length": region.q_len,
        "kv_length": region.kv_len,
        "q_offset": region.query_start,
        "kv_offset": region.key_start,
    }


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("name", KNOWN)
def test_known_masks(name, items):
    for region, number in itertools.product(REGIONS, range(5)):
        length = max(region.query_end, region.key_end)
        function = functions(items, length)[name]
        padded = paddings(items, length)[number] if length > 5 else None
        arguments = {"batch_size": items, "mask_function": function, "attention_mask": padded, **given(region)}
        right = hf.sdpa_mask(allow_is_causal_skip=False, **arguments)
        mask = fovea.transformers.mask(**arguments)
        at = f"{region}, padding {number}"
        assert isinstance(mask, RuleMask), at
        assert not [leaf for leaf in mask.rule.leaves() if isinstance(leaf, (Dense, Known, Computed))], at
        assert (mask.shape, mask.dtype, mask.untyped_storage().nbytes()) == (right.shape, torch.bool, 1)
        assert torch.equal(mask.elements(), right), at
        assert torch.equal(seen_by_fovea(mask.rule, region, items), right), at


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("name", KNOWN)
def test_a_rule_of_the_last_step_explains_all_steps(name, items):
    """A recording of generated text uses the rule of the last call for the whole sequence."""
    total = 16
    whole, last = Region(0, total, 0, total), Region(total - 1, 1, total - 4, 4)
    for padded in paddings(items, total):
        arguments = {"batch_size": items, "mask_function": functions(items, total)[name], "attention_mask": padded}
        right = hf.sdpa_mask(allow_is_causal_skip=False, **arguments, **given(whole))
        mask = fovea.transformers.mask(**arguments, **given(last))
        assert torch.equal(seen_by_fovea(mask.rule, whole, items), right)


def random_function(random, known, depth):
    if depth == 0 or random.random() < 0.3:
        return random.choice(known)
    parts = [random_function(random, known, depth - 1) for _ in range(random.choice([2, 2, 3]))]
    return random.choice([hf.and_masks, hf.or_masks])(*parts)


def random_problem(seed):
    """Returns the arguments of a mask function for a random tree of functions, a random region and random padding."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    items, query_start, q_len = draw.choice([1, 2, 3]), draw.choice([0, 0, draw.randrange(12)]), draw.randint(1, 14)
    key_start = draw.choice([0, draw.randint(0, query_start)])
    region = Region(query_start, q_len, key_start, query_start + q_len - key_start + draw.choice([0, 0, 3]))
    length = region.key_end
    packed = (torch.rand(items, length, generator=generator) < 0.2).long().cumsum(1)
    counts = [row.unique_consecutive(return_counts=True)[1].tolist() for row in packed]
    positions = torch.stack([torch.cat([torch.arange(count) for count in row]) for row in counts])
    left = torch.randint(0, 5, (items,), generator=generator)
    known = [
        hf.causal_mask_function,
        hf.bidirectional_mask_function,
        hf.sliding_window_causal_mask_function(draw.randint(1, 6)),
        hf.sliding_window_overlay(draw.randint(1, 6)),
        hf.sliding_window_bidirectional_overlay(draw.randint(0, 6)),
        hf.chunked_overlay(draw.randint(1, 6), left),
    ]
    known.append(hf.packed_sequence_compatibility_function(draw.choice(known), positions, packed))
    known.append(hf.packed_sequence_mask_function(packed))
    known.append(hf.blockwise_overlay(torch.randint(-1, 3, (items, length), generator=generator)))
    if seed % 5 == 0:
        known.append(lambda batch, head, query, key: (query + key) % 4 != 0)
    padded = torch.rand(items, draw.choice([length, max(1, length - 2)]), generator=generator) < 0.7
    return region, {
        "batch_size": items,
        "mask_function": random_function(draw, known, 2),
        "attention_mask": draw.choice([None, padded]),
        **given(region),
    }


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_masks(first):
    for seed in range(first, first + 100):
        region, arguments = random_problem(seed)
        right = hf.sdpa_mask(allow_is_causal_skip=False, **arguments)
        mask = fovea.transformers.mask(**arguments)
        assert torch.equal(mask.elements(), right), seed
        assert torch.equal(seen_by_fovea(mask.rule, region, len(right)), right), seed
        later = mask[:, :, region.q_len // 2 :]
        assert torch.equal(seen_by_fovea(later.rule, later.region, len(right)), right[:, :, region.q_len // 2 :]), seed
        del mask, later
        passed = passed_mask(
            right, *(torch.zeros(len(right), 1, length, 1) for length in (region.q_len, region.kv_len))
        )
        query, key = (torch.zeros(len(right), 1, length, 1).numpy() for length in (region.q_len, region.kv_len))
        steps = fovea.reference.attention_steps(query, key, key, mask=passed.mask, alignment=passed.alignment)
        assert torch.equal(torch.tensor(steps.weights) > 0, right), seed


def test_a_padding_mask_that_ends_early():
    """Static caches have more slots than the padding mask has tokens."""
    padded = torch.ones(2, 6, dtype=torch.bool)
    padded[1, :2] = False
    region = Region(0, 6, 0, 10)
    arguments = {"batch_size": 2, "attention_mask": padded, **given(region)}
    assert torch.equal(fovea.transformers.mask(**arguments).elements(), hf.sdpa_mask(**arguments))


def test_rules_are_the_expected_ones():
    region = Region(0, 12, 0, 12)

    def rule(name):
        return fovea.transformers.mask(2, mask_function=functions(2, 12)[name], **given(region)).rule

    assert isinstance(rule("causal"), Causal)
    assert type(rule("bidirectional")) is Rule
    assert [type(leaf) for leaf in rule("window").leaves()] == [Window, Causal]
    assert str(rule("window").mask(*region)[0]) == "window(2, -1) & causal()"
    assert str(rule("bidirectional window").mask(*region)[0]) == "window(3, 3)"
    assert [type(leaf) for leaf in rule("chunked").leaves()] == [Documents, Causal]
    assert [type(leaf) for leaf in rule("blockwise").leaves()] == [Causal, Documents]
    # A step that sees everything needs no mask.
    assert fovea.transformers.mask(1, 1, 8, 7).mask()[0] is None


@pytest.mark.parametrize("floats", [False, True])
def test_masks_that_numpy_changes(floats):
    """PyTorch does not notice such changes."""
    query, key, value = torch.randn(3, 1, 2, 6, 8)
    shown = np.ones((1, 1, 6, 6), bool)
    array = np.where(shown, 0, -np.inf).astype(np.float32) if floats else shown
    mask = torch.from_numpy(array)
    for hidden in (5, 2, 0):
        array[..., hidden:] = -np.inf if floats else False
        array[..., 0] = 0 if floats else True
        found, _ = fovea.transformers.attention(torch.nn.Module(), query, key, value, mask)
        right = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
        torch.testing.assert_close(found.transpose(1, 2), right)


def test_masks_with_two_changes():
    """Changes of which each would undo the other in a weak hash."""
    query, key, value = torch.randn(3, 1, 2, 64, 8)
    visible = torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
    floats = torch.where(visible, 0.0, -torch.inf)
    random = np.random.default_rng(1)
    for mask, shown, hidden in ((visible, True, False), (floats, 0.0, -torch.inf)):
        for _ in range(50):
            row, column = random.integers(32, 64), random.integers(1, 32)
            array = mask.numpy()
            array[0, 0, row, column], array[0, 0, row - 16, 63 - column // 2] = hidden, shown
            found, _ = fovea.transformers.attention(torch.nn.Module(), query, key, value, mask)
            right = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask)
            torch.testing.assert_close(found.transpose(1, 2), right)


def test_none_if_nothing_is_masked():
    arguments = {"mask_function": hf.bidirectional_mask_function, "allow_is_bidirectional_skip": True}
    assert fovea.transformers.mask(2, 5, 5, **arguments) is None
    padded = left_padded(text(length=6)).bool()
    assert fovea.transformers.mask(2, 6, 6, attention_mask=padded, **arguments) is not None
    assert fovea.transformers.mask(2, 5, 5, local_size=3, **arguments) is not None


# Functions that transformers does not have, with the leaves of the rules that explain them over a whole sequence.
CUSTOM = {
    "prefix": (lambda b, h, q, k: (k <= q) | (k < 5), {Causal, Prefix}),
    "window": (lambda b, h, q, k: (q - k < 3) & (q - k > -2), {Window}),
    "causal window": (lambda b, h, q, k: (q - k < 3) & (k <= q), {Causal, Window}),
    "chunks": (lambda b, h, q, k: q // 4 == k // 4, {Documents}),
    "causal chunks": (lambda b, h, q, k: (q // 4 == k // 4) & (k <= q), {Causal, Documents}),
    "hidden keys": (lambda b, h, q, k: (k <= q) & (k != 3), {Causal, Documents}),
    "an image": (lambda b, h, q, k: (k <= q) | ((q > 2) & (q < 7) & (k > 2) & (k < 7)), {Causal, Documents}),
    "an image, window": (
        lambda b, h, q, k: ((k <= q) & (q - k < 3)) | ((q > 2) & (q < 7) & (k > 2) & (k < 7)),
        {Causal, Window, Documents},
    ),
    "prefix by item": (lambda b, h, q, k: (k <= q) | (k < 3 + b), {Causal, Documents}),
    "everything": (lambda b, h, q, k: q >= 0, {Rule}),
    "nothing": (lambda b, h, q, k: q < 0, {Prefix}),
    "strides": (lambda b, h, q, k: (q - k) % 3 == 0, {Documents}),
    "all but the diagonal": (lambda b, h, q, k: q != k, {Dense}),
}


@pytest.mark.parametrize("use_vmap", [False, True], ids=["broadcast", "vmap"])
@pytest.mark.parametrize("name", CUSTOM)
def test_unknown_functions(name, use_vmap, monkeypatch):
    monkeypatch.setattr("fovea._observe.recognize._BLOCK", 50)  # several blocks
    function, leaves = CUSTOM[name]
    for region in REGIONS:
        arguments = {"batch_size": 2, "mask_function": function, "use_vmap": use_vmap, **given(region)}
        right = hf.sdpa_mask(allow_is_causal_skip=False, **arguments)
        mask = fovea.transformers.mask(**arguments)
        assert torch.equal(mask.elements(), right), region
        assert torch.equal(seen_by_fovea(mask.rule, region, 2), right), region
        assert isinstance(mask.rule, Computed)
        if region == REGIONS[0]:
            assert {type(leaf) for leaf in mask.rule.rule(region).leaves()} == leaves
        # The rule evaluates the function for other regions.
        assert torch.equal(
            seen_by_fovea(mask.rule, REGIONS[0], 2),
            hf.sdpa_mask(2, 12, 12, mask_function=function, use_vmap=use_vmap, allow_is_causal_skip=False),
        )


def test_functions_that_are_not_index_based():
    """Functions of users get numbers, as vmap passes them: a branch by torch.where, indexing by a scalar."""
    types_of_tokens = torch.tensor([[0, 0, 1, 1, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0, 1]])

    def image(batch, head, query, key):
        own, other = types_of_tokens[batch, query], types_of_tokens[batch, key]
        return torch.where(own == 1, other == 1, False)

    function = hf.or_masks(hf.causal_mask_function, image)
    padded = torch.ones(2, 8, dtype=torch.bool)
    padded[0, :2] = False
    arguments = {"batch_size": 2, "q_length": 8, "kv_length": 8, "mask_function": function, "use_vmap": True}
    arguments["attention_mask"] = padded
    right = hf.sdpa_mask(allow_is_causal_skip=False, **arguments)
    mask = fovea.transformers.mask(**arguments)
    assert torch.equal(mask.elements(), right)
    assert torch.equal(seen_by_fovea(mask.rule, Region(0, 8, 0, 8), 2), right)


def renamed(function, code):
    """Returns a function with the names of another one and other code."""
    found = types.FunctionType(code.__code__, function.__globals__, closure=function.__closure__)
    found.__module__, found.__qualname__ = function.__module__, function.__qualname__
    return found


def test_rules_are_verified():
    """A later version of transformers may change a function without renaming it. Then it is evaluated."""

    def strict(batch, head, query, key):
        return key < query

    changed = renamed(hf.causal_mask_function, strict)
    for function in (changed, hf.and_masks(changed, hf.sliding_window_overlay(3))):
        arguments = {"batch_size": 1, "q_length": 12, "kv_length": 12, "mask_function": function}
        mask = fovea.transformers.mask(**arguments)
        assert isinstance(mask.rule, Computed)
        assert torch.equal(mask.elements(), hf.sdpa_mask(allow_is_causal_skip=False, **arguments))
    # With an unknown part, the known parts are verified.
    function = hf.or_masks(changed, lambda b, h, q, k: k < 2)
    assert isinstance(fovea.transformers.mask(1, 12, 12, mask_function=function).rule, Computed)
    function = hf.or_masks(hf.causal_mask_function, lambda b, h, q, k: k < 2)
    assert not isinstance(fovea.transformers.mask(1, 12, 12, mask_function=function).rule, Computed)


def test_packed_positions_that_do_not_count_up():
    """Distances within a document differ from distances in the sequence, so the function is evaluated."""
    packed = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    positions = torch.tensor([[0, 2, 4, 6, 0, 2, 4, 6]])
    function = hf.packed_sequence_compatibility_function(hf.sliding_window_causal_mask_function(3), positions, packed)
    arguments = {"batch_size": 1, "q_length": 8, "kv_length": 8, "mask_function": function}
    mask = fovea.transformers.mask(**arguments)
    assert torch.equal(mask.elements(), hf.sdpa_mask(allow_is_causal_skip=False, **arguments))


def test_partial_objects_and_callables():
    class Early:
        def __call__(self, batch, head, query, key):
            return key < 3

    for function in (Early(), functools.partial(lambda n, b, h, q, k: k < n, 3)):
        mask = fovea.transformers.mask(1, 6, 6, mask_function=function)
        assert torch.equal(mask.elements()[0, 0], (torch.arange(6) < 3).expand(6, 6))


def peak_of(run):
    """Returns by how many bytes the peak of the process's memory rises while `run` runs."""
    status = pathlib.Path("/proc/self/status")

    def read(name):
        (line,) = [line for line in status.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) * 1024

    run()  # allocations that stay: kernels, thread buffers, the allocator's reserves
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present size
    before = read("VmRSS:")
    run()
    return read("VmHWM:") - before


LONG = 16384
LONG_KINDS = {
    "causal, padding": ("Llama", {}, True),
    "window": ("Mistral", {"sliding_window": 1024}, False),
    "window, padding": ("Mistral", {"sliding_window": 1024}, True),
    "packed": ("Llama", {}, "packed"),
    "bidirectional, window": ("ModernBert", {"local_attention": 128, "global_attn_every_n_layers": 2}, True),
}


@pytest.mark.parametrize("name", LONG_KINDS)
@torch.no_grad()
def test_memory_at_16384_tokens(name, say):
    """A bool N x N mask would take 268 MB."""
    kind, options, padded = LONG_KINDS[name]
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "pad_token_id": 0}
    sizes |= {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": LONG}
    model = build(getattr(transformers, f"{kind}Model"), getattr(transformers, f"{kind}Config")(**sizes, **options))
    model.set_attn_implementation("fovea")
    inputs = {"input_ids": torch.ones(1, LONG, dtype=torch.int64)}
    if padded == "packed":
        inputs["position_ids"] = (torch.arange(LONG) % 1000)[None]
        inputs["use_cache"] = False
    elif padded:
        inputs["attention_mask"] = torch.ones(1, LONG, dtype=torch.int64)
        inputs["attention_mask"][:, :100] = 0
    peak = peak_of(lambda: model(**inputs))
    say(
        f"transformers, {name}: {LONG} tokens raise the peak by {peak / 1e6:.0f} MB; "
        f"N x N bools take {LONG**2 / 1e6:.0f} MB"
    )
    assert peak < LONG**2 / 4


def test_memory_of_long_masks_of_functions():
    """Masks that have to be evaluated are read in blocks."""
    length = 3 * LONG // 8
    mask = fovea.transformers.mask(1, length, length, mask_function=lambda b, h, q, k: (k <= q) & (q - k < 100))
    assert peak_of(lambda: mask.rule.evaluate(mask.region)) < length**2 / 4

    def whole():  # not from an allocator, which may have kept that much
        with mmap.mmap(-1, length**2) as memory:
            for place in range(0, length**2, mmap.PAGESIZE):
                memory[place] = 1

    assert peak_of(whole) > length**2 * 0.9
    assert str(mask.mask()[0]) == "causal() & window(99, 0)"


@pytest.mark.parametrize("name", ["packed", "chunked", "user", "user floats", "user noise"])
def test_models_with_further_masks(name, say):
    ids = text()
    inputs = {"input_ids": ids}
    kind, config = transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED)
    if name == "packed":
        inputs |= {"position_ids": torch.cat([torch.arange(9), torch.arange(15)]).expand(2, -1), "use_cache": False}
    elif name == "chunked":
        config = transformers.Llama4TextConfig(
            head_dim=16,
            attention_chunk_size=8,
            layer_types=["chunked_attention", "full_attention"],
            no_rope_layers=[1, 1],
            moe_layers=[],
            intermediate_size_mlp=96,
            **GROUPED,
        )
        kind = transformers.Llama4ForCausalLM
    else:
        shown = torch.ones(24, 24, dtype=torch.bool).tril() & (torch.arange(24) != 5)
        if name == "user noise":
            shown = shown & (torch.rand(2, 1, 24, 24) > 0.3)
            shown[..., 0] = True
        mask = shown.expand(2, 1, 24, 24)
        inputs["attention_mask"] = (
            torch.where(mask, 0.0, torch.finfo(torch.float32).min) if name == "user floats" else mask
        )
    model = build(kind, config)
    if name.startswith("user") and name != "user floats":
        # "eager" adds bools to the scores; a mask of a user must be additive there.
        right = {"fovea": None, "sdpa": None}
        for how in right:
            model.set_attn_implementation(how)
            with torch.no_grad():
                right[how] = model(**inputs)[0]
        assert (right["fovea"] - right["sdpa"]).abs().max() <= 1e-5 * right["sdpa"].abs().max()
        return
    calls = []
    with observe(calls.append):
        found = errors(model, inputs)
    found.check()
    assert not [leaf for call in calls for leaf in call.rule.leaves() if isinstance(leaf, (Dense, Computed))]
    say(f"transformers, mask {name}: off by {found.found:.1e}, PyTorch by {found.others:.1e}")


@pytest.mark.parametrize("padded", [False, True])
def test_decoders_with_bidirectional_attention(padded):
    """A configuration that is not causal, although its modules say so."""
    ids = text()
    model = build(transformers.LlamaModel, transformers.LlamaConfig(is_causal=False, **GROUPED))
    visible = left_padded(ids) if padded else torch.ones_like(ids)
    errors(model, {"input_ids": ids, "attention_mask": visible}, visible).check()
    with torch.no_grad():
        model.set_attn_implementation("fovea")
        first = model(ids)[0][:, 0]
        assert not torch.equal(first, model(ids.clone().fill_diagonal_(5))[0][:, 0])


def test_gemma3_with_bidirectional_attention():
    """Gemma 3 passes functions of its own, which are evaluated."""
    config = transformers.Gemma3TextConfig(
        head_dim=16,
        sliding_window=7,
        layer_types=["sliding_attention", "full_attention"],
        use_bidirectional_attention=True,
        **GROUPED,
    )
    ids = text()
    visible = left_padded(ids)
    errors(build(transformers.Gemma3TextModel, config), {"input_ids": ids, "attention_mask": visible}, visible).check()


def test_rules_are_read_once_per_pass(monkeypatch):
    """Layers share the mask and its options."""
    model = build(transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED | {"num_hidden_layers": 6}))
    model.set_attn_implementation("fovea")
    ids = text()
    counts = {"read": 0, "options": 0}

    def counted(name, function):
        def call(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(
        fovea.transformers, "read_mask_function", counted("read", fovea.transformers.read_mask_function)
    )
    monkeypatch.setattr(Rule, "mask", counted("options", Rule.mask))
    with torch.no_grad():
        model(ids, attention_mask=left_padded(ids))
    assert counts == {"read": 1, "options": 1}


def test_sizes_of_zero():
    for shape in ((1, 0, 5), (1, 3, 0), (0, 3, 5)):
        mask = fovea.transformers.mask(*shape)
        assert mask.elements().shape == (shape[0], 1, *shape[1:])
    assert SIZES["vocab_size"] == 97
