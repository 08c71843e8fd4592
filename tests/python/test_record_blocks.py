# SPDX-License-Identifier: Apache-2.0
"""Tests blocks of fovea.record() around more than one call: copies of the model, other threads, blocks in blocks, and
parts that do not belong together."""

import contextlib
import copy
import pickle
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_record import refusal  # noqa: E402
from test_record_architectures import TOLERANCE, largest_error, stored_weights  # noqa: E402
from transformers_models import llama, text  # noqa: E402

import fovea  # noqa: E402


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


@torch.no_grad()
@pytest.mark.parametrize("how", [copy.deepcopy, pickle.dumps])
def test_copies_in_the_block_are_refused(how, path):
    for model in (llama(), torch.nn.TransformerEncoderLayer(8, 2, 12).eval()):
        said = refusal(model, path, lambda: how(model))  # noqa: B023, called in this step
        assert said.startswith("model: expected copies to be made before or after the block of record(), got a module")
        for one in (model, how(model) if how is copy.deepcopy else model):
            assert not any(module._forward_hooks or module._forward_pre_hooks for module in one.modules())
            assert "generate" not in vars(one)


@torch.no_grad()
def test_another_thread_is_not_recorded(path):
    """It uses the same model at the same time, with other tokens, and may search with beams."""
    model = llama()
    first, second = text(batch=1), text(batch=1, seed=4)

    def other():
        with torch.no_grad():
            model(second)
            model.generate(second, num_beams=2, max_new_tokens=2)

    with fovea.record(model, path, progress=False):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        model(first)
    recording = fovea.Recording(path)
    assert recording[0].query_tokens().ids == first[0].tolist()
    assert largest_error(recording, stored_weights(model, {"input_ids": first})) <= TOLERANCE


def test_blocks_of_two_threads_overlap(tmp_path):
    """The one that begins first ends first, while the other still records the original implementation."""
    inside = [threading.Event(), threading.Event()]
    before = transformers.AttentionInterface.get_interface
    ids, failures = text(batch=1), []
    # Made here, not in the threads: transformers replaces torch.nn.init while it makes a model, and two threads that do
    # so at once could leave it replaced.
    models = [llama(), llama()]

    @torch.no_grad()
    def run(number):
        model = models[number]
        if number == 1:
            inside[0].wait(20)
        try:
            with fovea.record(model, tmp_path / str(number), compute="original", progress=False):
                inside[number].set()
                if number == 0:
                    inside[1].wait(20)
                else:
                    first.join(20)
                model(ids)
        except ValueError as error:
            failures.append(error)

    first, second = (threading.Thread(target=run, args=(number,)) for number in range(2))
    first.start()
    second.start()
    second.join(40)
    assert failures == []
    assert [len(fovea.Recording(tmp_path / str(number))) for number in range(2)] == [2, 2]
    assert transformers.AttentionInterface.get_interface is before


@torch.no_grad()
@pytest.mark.parametrize("compute", ["fovea", "original"])
@pytest.mark.parametrize("part", [False, True])
def test_a_model_that_another_thread_records(part, compute, tmp_path):
    """Their blocks need not end in the opposite order, and so could not restore the model."""
    model = llama()
    ids, messages = text(batch=1), []

    def other():
        try:
            with torch.no_grad(), fovea.record(model.model if part else model, tmp_path / "other", compute=compute):
                model(ids)
        except ValueError as error:
            messages.append(str(error))

    def run():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    with fovea.record(model, tmp_path / "run", compute=compute, progress=False):
        run()
        model(ids)
    assert messages == [
        "model: expected one that no other thread records at the same time, got one inside a block of record() on "
        "another thread; record one after the other, or copies of the model"
    ]
    assert model.config._attn_implementation == "sdpa"
    assert "generate" not in vars(model)
    run()
    assert len(messages) == 1
    assert [len(fovea.Recording(tmp_path / name)) for name in ("run", "other")] == [2, 2]


@torch.no_grad()
@pytest.mark.parametrize("make", [llama, lambda: torch.nn.TransformerEncoderLayer(8, 2, 12)], ids=["llama", "plain"])
def test_a_block_in_a_block(make, tmp_path):
    model = make().eval()
    given = text(batch=1) if hasattr(model, "config") else torch.randn(1, 5, 8)
    paths = [tmp_path / "outer", tmp_path / "inner"]
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(fovea.record(model, path, progress=False))
        model(given)
    outer, inner = (fovea.Recording(path) for path in paths)
    assert len(outer) == len(inner) > 0
    assert np.array_equal(outer[0].lse, inner[0].lse)


def test_blocks_that_compute_differently(tmp_path):
    model = torch.nn.TransformerEncoderLayer(8, 2, 12)
    with (
        pytest.raises(ValueError, match='compute: expected "fovea" as the block'),
        fovea.record(model, tmp_path / "outer"),
        fovea.record(model, tmp_path / "inner", compute="original"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@torch.no_grad()
def test_cross_attention_to_other_keys(path):
    model = torch.nn.ModuleDict({"cross_attn": torch.nn.MultiheadAttention(16, 2, batch_first=True)}).eval()
    attend = model["cross_attn"]
    queries, keys = torch.randn(3, 1, 5, 16), torch.randn(2, 1, 7, 16)
    with fovea.record(model, path, progress=False):
        for query in queries:
            attend(query, keys[0], keys[0])
    found = np.asarray(fovea.Recording(path)[0][1])
    for number, query in enumerate(queries):
        weights = attend(query, keys[0], keys[0], average_attn_weights=False)[1]
        assert np.abs(found[5 * number : 5 * number + 5] - weights[0, 1].numpy()).max() <= TOLERANCE

    def run():
        for each in keys:
            attend(queries[0], each, each)

    assert refusal(model, path, run) == (
        "record: expected the keys of cross_attn to stay the same in all parts of a text, got others; record each text "
        "in a file of its own"
    )
