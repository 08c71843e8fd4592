# SPDX-License-Identifier: Apache-2.0
"""Tests fovea.record(): generation with every cache, prompts in chunks, packed sequences, masks, selections, types,
and what is refused. Architectures are in test_record_architectures.py."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_record_architectures import TOLERANCE, largest_error, recorded, stored_weights  # noqa: E402
from test_transformers_architectures import DECODERS, ENCODER_DECODERS, ENCODERS, of  # noqa: E402
from transformers_models import GROUPED, TWO_KINDS, left_padded, text  # noqa: E402

import fovea  # noqa: E402

NEW = {"do_sample": False, "max_new_tokens": 12, "min_new_tokens": 12}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


@torch.no_grad()
def generated(model, ids, path, compute="fovea", **options):
    with fovea.record(model, path, compute=compute, progress=False):
        out = model.generate(ids, **NEW, **options)
    return fovea.Recording(path), out[:, :-1]  # the last token was not fed


@pytest.mark.parametrize("cache", ["dynamic", "static", "chunks"])
@pytest.mark.parametrize("name", ["Llama", "Mistral, window", "Gemma 2, softcap", "gpt-oss, sinks", "GPT-2"])
def test_generation(name, cache, path):
    model = DECODERS[name]()
    ids = text(batch=1)
    options = {"static": {"cache_implementation": "static"}, "chunks": {"prefill_chunk_size": 10}}.get(cache, {})
    recording, out = generated(model, ids, path, **options)
    assert [each.shape for each in recording] == [(1, 4, 35, 35)] * 2
    assert recording["0"].query_tokens().ids == out[0].tolist()
    assert largest_error(recording, stored_weights(model, {"input_ids": out})) <= TOLERANCE


@pytest.mark.parametrize("compute", ["fovea", "original"])
def test_generation_of_a_padded_batch(compute, path):
    model = DECODERS["Llama"]()
    if compute == "original":
        model.set_attn_implementation("sdpa")
    ids = text()
    padding = left_padded(ids)
    recording, out = generated(model, ids, path, compute, attention_mask=padding)
    assert "causal() & documents(ids)" in repr(recording[0].options["mask"])
    padding = torch.cat([padding, torch.ones(2, out.shape[1] - ids.shape[1], dtype=torch.int64)], 1)
    stored = stored_weights(model, {"input_ids": out, "attention_mask": padding})
    assert largest_error(recording, stored, padding) <= TOLERANCE
    assert list(recording.tokens) == ["text.0", "text.1"]


@pytest.mark.parametrize("compute", ["fovea", "original"])
def test_generation_by_an_encoder_decoder(compute, path):
    model = ENCODER_DECODERS["BART"]()
    if compute == "original":
        model.set_attn_implementation("sdpa")
    ids = text(batch=1)
    recording, out = generated(model, ids, path, compute)
    stored = stored_weights(model, {"input_ids": ids, "decoder_input_ids": out})
    assert largest_error(recording, stored) <= TOLERANCE
    cross = recording.layer(1, "cross")
    assert cross.shape[2:] == (out.shape[1], ids.shape[1])
    assert cross.key_tokens().ids == ids[0].tolist()
    assert cross.query_tokens().ids == out[0].tolist()


@torch.no_grad()
def test_a_prompt_in_chunks(path):
    model = of("Gemma3ForCausalLM", "Gemma3Text", head_dim=16, **TWO_KINDS, **GROUPED)()
    ids = text(batch=1, length=30)
    cache = transformers.DynamicCache(config=model.config)
    with fovea.record(model, path, progress=False):
        for begin, end in ((0, 11), (11, 12), (12, 30)):
            model(ids[:, begin:end], past_key_values=cache, use_cache=True)
    assert largest_error(fovea.Recording(path), stored_weights(model, {"input_ids": ids})) <= TOLERANCE


@torch.no_grad()
def test_parts_with_masks_of_their_own(path):
    """The first tokens of the prompt see each other; those that follow are causal."""
    model = DECODERS["Llama"]()
    ids = text(batch=1, length=12)
    visible = torch.ones(11, 11, dtype=torch.bool).tril()
    visible[:, :4] = True
    with fovea.record(model, path, progress=False):
        cache = model(ids[:, :11], attention_mask=visible[None, None], use_cache=True).past_key_values
        model(ids[:, 11:], past_key_values=cache)
    whole = torch.ones(12, 12, dtype=torch.bool).tril()
    whole[:11, :11] = visible
    inputs = {"input_ids": ids, "attention_mask": torch.where(whole, 0.0, -torch.inf)[None, None]}
    assert largest_error(fovea.Recording(path), stored_weights(model, inputs)) <= TOLERANCE


@torch.no_grad()
def test_padding_in_the_first_part_only(path):
    model = DECODERS["Llama"]()
    ids = text(batch=1, length=12)
    padding = torch.ones(1, 12, dtype=torch.int64)
    padding[:, :3] = 0
    with fovea.record(model, path, progress=False):
        cache = model(ids[:, :11], attention_mask=padding[:, :11], use_cache=True).past_key_values
        model(ids[:, 11:], past_key_values=cache)
    for each in fovea.Recording(path):
        sums = np.stack([np.asarray(each[head]).sum(1) for head in range(4)])
        assert np.abs(sums[:, 3:] - 1).max() <= 1e-5
        assert not sums[:, :3].any()


@torch.no_grad()
@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_generation_with_the_original_implementation(how, path):
    model = DECODERS["Llama"]()
    model.set_attn_implementation(how)
    ids = text(batch=1)
    with fovea.record(model, path, compute="original", progress=False):
        out = model.generate(ids, **NEW)
    stored = stored_weights(model, {"input_ids": out[:, :-1]})
    assert largest_error(fovea.Recording(path), stored) <= TOLERANCE


@torch.no_grad()
def test_parts_of_a_model_are_called(path):
    """Passes are counted where the model is called, also inside a wrapper."""
    model = DECODERS["Llama"]()
    wrapper = torch.nn.ModuleDict({"inner": model})
    with fovea.record(wrapper, path, progress=False):
        out = model.generate(text(batch=1), **NEW)
    recording = fovea.Recording(path)
    assert largest_error(recording, stored_weights(model, {"input_ids": out[:, :-1]})) <= TOLERANCE
    assert recording[0].query_tokens().ids == out[0, :-1].tolist()


def test_checkpoints_are_recorded_once(path):
    model = DECODERS["Llama"]()
    model.activation_checkpointing_enable()
    model.train()
    ids = text(batch=1)
    with fovea.record(model, path, progress=False):
        model(ids, labels=ids, use_cache=False).loss.backward()
    assert [each.layer for each in fovea.Recording(path)] == [0, 1]


@torch.no_grad()
def test_two_models_have_tokens_of_their_own(path):
    bert, llama = ENCODERS["BERT"](), DECODERS["Llama"]()
    both = torch.nn.ModuleDict({"bert": bert, "llama": llama})
    first, second = text(batch=1, length=9), text(batch=1, length=9, seed=4)
    other = torch.nn.MultiheadAttention(8, 2)
    with fovea.record(both, path, progress=False):
        bert(first)
        llama(second)
        other(*torch.randn(3, 4, 8))  # not of the model
    recording = fovea.Recording(path)
    assert len(recording) == 4
    assert recording["bert.encoder.layer.1"].query_tokens().ids == first[0].tolist()
    assert recording["llama.model.layers.1"].query_tokens().ids == second[0].tolist()


@torch.no_grad()
def test_images_beside_text(path):
    """Both towers of this model have as many positions."""
    torch.manual_seed(1)
    tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config=tower | {"vocab_size": 97}, vision_config=tower | {"image_size": 24, "patch_size": 8}
    )
    model = transformers.CLIPModel(config).eval()
    ids = text(batch=1, length=10)
    with fovea.record(model, path, progress=False):
        model(input_ids=ids, pixel_values=torch.randn(1, 3, 24, 24))
    recording = fovea.Recording(path)
    (words,) = [each for each in recording if each.name.startswith("text_model")]
    (image,) = [each for each in recording if each.name.startswith("vision_model")]
    assert words.query_tokens().ids == ids[0].tolist()
    assert image.query_tokens().grid == (3, 3)


@torch.no_grad()
def test_float64(path):
    model = DECODERS["Llama"]().double()
    inputs = {"input_ids": text(batch=1)}
    with fovea.record(model, path, progress=False):
        model(**inputs)
    assert largest_error(fovea.Recording(path), stored_weights(model, inputs)) <= 1e-6


@torch.no_grad()
def test_the_folder_may_change(tmp_path, monkeypatch):
    model = DECODERS["Llama"]()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with fovea.record(model, "run.safetensors", progress=False) as recorder:
        os.chdir("other")
        model(text(batch=1))
    assert sorted(os.listdir(tmp_path)) == ["other", "run.safetensors"]
    assert os.listdir(tmp_path / "other") == []
    assert recorder.bytes > 0


def test_generate_of_the_user_is_kept(path):
    model = DECODERS["Llama"]()
    model.generate = own = lambda *_: None
    with torch.no_grad(), fovea.record(model, path, progress=False):
        model(text(batch=1))
    assert model.generate is own


def test_packed_sequences(path):
    model = DECODERS["Llama"]()
    ids = text(batch=1, length=20)
    positions = torch.cat([torch.arange(8), torch.arange(12)])[None]
    recording = recorded(model, {"input_ids": ids, "position_ids": positions, "use_cache": False}, path)
    assert "documents" in repr(recording[0].options["mask"])
    parts = [stored_weights(model, {"input_ids": ids[:, span]})["self"] for span in (slice(8), slice(8, 20))]
    for layer, (first, second) in enumerate(zip(*parts, strict=True)):
        found = np.stack([np.asarray(recording[layer][head]) for head in range(4)])
        assert np.abs(found[:, :8, :8] - first[0].numpy()).max() <= TOLERANCE
        assert np.abs(found[:, 8:, 8:] - second[0].numpy()).max() <= TOLERANCE
        assert not found[:, 8:, :8].any()


def test_a_mask_of_the_user(path):
    model = DECODERS["Llama"]()
    ids = text(batch=1)
    visible = random_mask(1, 1, 24, 24)
    inputs = {"input_ids": ids, "attention_mask": torch.where(visible, 0.0, -torch.inf)}
    recording = recorded(model, inputs, path)
    assert largest_error(recording, stored_weights(model, inputs)) <= TOLERANCE


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:flex_attention called without")
@pytest.mark.parametrize("how", ["sdpa", "eager", "flex_attention"])
def test_the_original_implementation(how, path):
    model = DECODERS["Gemma 2, softcap" if how == "eager" else "Mistral, window"]()
    model.set_attn_implementation(how)
    ids = text()
    inputs = {"input_ids": ids, "attention_mask": left_padded(ids)}
    # Not compiled: flex_attention would take 10 s.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        alone = model(**inputs).logits
        with fovea.record(model, path, compute="original", progress=False):
            assert torch.equal(model(**inputs).logits, alone)
    recording = fovea.Recording(path)
    assert largest_error(recording, stored_weights(model, inputs), inputs["attention_mask"]) <= TOLERANCE
    assert model.config._attn_implementation == how


@torch.no_grad()
@pytest.mark.parametrize("how", ["sdpa", "eager"])
def test_a_model_that_passes_its_mask_by_name(how, path):
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.Blip2VisionModel(transformers.Blip2VisionConfig(**sizes, image_size=16, patch_size=8)).eval()
    model.set_attn_implementation(how)
    inputs = {"pixel_values": torch.randn(1, 3, 16, 16)}
    recording = recorded(model, inputs, path, compute="original")
    assert len(recording) == 2
    assert largest_error(recording, stored_weights(model, inputs)) <= TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("cache", ["static", "window"])
def test_positions_that_the_original_implementation_does_not_tell(cache, path):
    """A static cache has empty slots behind the queries, and a sliding one has lost the first keys."""
    model = DECODERS["Llama" if cache == "static" else "Mistral, window"]()
    options = {"cache_implementation": "static"} if cache == "static" else {}
    ids = text(batch=1)
    run = lambda: model.generate(ids, **NEW, **options)  # noqa: E731
    assert refusal(model, path, run, compute="original").endswith(
        'file of its own, and a text with a static cache or a sliding window with compute="fovea"'
    )


@torch.no_grad()
@pytest.mark.parametrize("batch", [1, 2])
def test_several_rows_of_ids_for_each_text(batch, path):
    """One for each codebook: they are not the tokens of the attention."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 97, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.MusicgenForCausalLM(transformers.MusicgenDecoderConfig(**sizes, num_codebooks=2)).eval()
    inputs = {"input_ids": text(batch=2 * batch, length=6)}
    recording = recorded(model, inputs, path)
    assert [each.shape for each in recording] == [(batch, 4, 6, 6)] * 2
    assert recording[0].query_tokens() is None
    assert dict(recording.tokens) == {}
    assert largest_error(recording, stored_weights(model, inputs)) <= TOLERANCE


@pytest.mark.parametrize("heads", [[0], [1, 2], [2, 3], [0, 1, 3], [3]])
def test_selected_heads_and_layers(heads, path):
    model = DECODERS["gpt-oss, sinks"]()
    inputs = {"input_ids": text(batch=1)}
    recording = recorded(model, inputs, path, heads=heads, layers=[1])
    stored = stored_weights(model, inputs)["self"][1]
    assert [(each.layer, each.heads) for each in recording] == [(1, heads)]
    for head in heads:
        assert np.abs(np.asarray(recording[1][head]) - stored[0, head].numpy()).max() <= TOLERANCE
    with pytest.raises(IndexError, match="head: expected one of"):
        recording[1][next(head for head in range(4) if head not in heads)]


def test_selected_heads_of_a_table(path):
    model = ENCODER_DECODERS["T5"]()
    for parameter in model.parameters():
        parameter.data.mul_(0.25 if parameter.dim() > 1 else 1)
    inputs = {"input_ids": text(batch=1), "decoder_input_ids": text(batch=1, length=9)}
    recording = recorded(model, inputs, path, heads=[1, 3])
    stored = stored_weights(model, inputs)
    for kind in ("encoder", "decoder", "cross"):
        found = np.asarray(recording.layer(1, kind)[3])
        assert np.abs(found - stored[kind][1][0, 3].numpy()).max() <= TOLERANCE


def random_mask(*shape):
    visible = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    return visible | torch.eye(*shape[-2:], dtype=torch.bool)


@pytest.mark.parametrize("how", ["bools", "floats", "bias"])
def test_selected_heads_of_a_mask_per_head(how, path):
    model = DECODERS["Llama"]()
    visible = random_mask(2, 4, 24, 24)
    hidden = torch.where(visible, 0.0, -torch.inf)
    mask = {"bools": visible, "floats": hidden, "bias": torch.randn(2, 4, 24, 24)}[how]
    # "eager" adds bools to the scores.
    added = hidden if how == "bools" else mask
    stored = stored_weights(model, {"input_ids": text(), "attention_mask": added})["self"]
    recording = recorded(model, {"input_ids": text(), "attention_mask": mask}, path, heads=[0, 3])
    for layer in range(2):
        for item in range(2):
            for head in (0, 3):
                difference = np.asarray(recording[layer][item, head]) - stored[layer][item, head].numpy()
                assert np.abs(difference).max() <= TOLERANCE


@torch.no_grad()
@pytest.mark.parametrize("heads", [None, [1, 2]])
def test_parts_with_stored_masks(heads, path):
    """A mask per head that no rule explains, for the prompt only: the first head is causal, the others are not."""
    model = DECODERS["Llama"]()
    ids = text(batch=1, length=12)
    visible = random_mask(1, 4, 11, 11)
    visible[:, 0] = torch.ones(11, 11, dtype=torch.bool).tril()
    with fovea.record(model, path, progress=False, heads=heads):
        cache = model(ids[:, :11], attention_mask=visible, use_cache=True).past_key_values
        model(ids[:, 11:], past_key_values=cache)
    whole = torch.ones(1, 4, 12, 12, dtype=torch.bool).tril()
    whole[..., :11, :11] = visible
    stored = stored_weights(model, {"input_ids": ids, "attention_mask": torch.where(whole, 0.0, -torch.inf)})["self"]
    recording = fovea.Recording(path)
    for layer in range(2):
        for head in recording[layer].heads:
            difference = np.asarray(recording[layer][head]) - stored[layer][0, head].numpy()
            assert np.abs(difference).max() <= TOLERANCE


@pytest.mark.parametrize("store", ["bfloat16", "float16"])
def test_stored_types(store, path):
    """A weight changes by no more than the factor exp(d), where d bounds the change of its score."""
    model = DECODERS["Llama"]()
    inputs = {"input_ids": text(batch=1)}
    exact = recorded(model, inputs, path.with_name("exact.safetensors"))
    rounded = recorded(model, inputs, path, store=store)
    assert path.stat().st_size < 0.7 * path.with_name("exact.safetensors").stat().st_size
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[store]
    for one, other in zip(exact, rounded, strict=True):
        for head in range(4):
            query, key = np.abs(one.query[0, head]), np.abs(one.key[0, head // 2])
            change = one.options["scale"] * (query @ key.T) * (2 * unit + unit**2)
            right = np.asarray(one[head], np.float64)
            off = np.abs(np.asarray(other[head], np.float64) - right)
            assert (off <= right * np.expm1(change) + 1e-6).all()


def test_values_give_the_context(path):
    model = DECODERS["Llama"]()
    recording = recorded(model, {"input_ids": text(batch=1)}, path, values=True)
    each = recording[1]
    context = fovea.attention(each.query, each.key, each.value, **each.options)
    assert np.abs(np.asarray(each[3]) @ each.value[0, 1] - context[0, 3]).max() <= 1e-5
    assert recorded(model, {"input_ids": text(batch=1)}, path)[1].value is None


@torch.no_grad()
def refusal(model, path, run, **options):
    """Returns the message with which a recording is refused. Nothing may be written, and the model is as before."""
    path.write_text("an earlier file")
    before = getattr(getattr(model, "config", None), "_attn_implementation", None)
    with pytest.raises(ValueError) as caught, fovea.record(model, path, progress=False, **options):  # noqa: PT011
        run()
    assert path.read_text() == "an earlier file"
    assert os.listdir(path.parent) == [path.name]
    assert getattr(getattr(model, "config", None), "_attn_implementation", None) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refusals(path):
    model = DECODERS["Llama"]()
    ids = text(batch=1)
    run = lambda: model(ids)  # noqa: E731
    assert refusal(model, path, lambda: None).startswith("record: expected the model to compute attention in the block")
    assert "got beam search (num_beams=3)" in refusal(model, path, lambda: model.generate(ids, num_beams=3, **NEW))
    beams = transformers.GenerationConfig(num_beams=3, **NEW)
    assert "got beam search (num_beams=3)" in refusal(model, path, lambda: model.generate(ids, beams))
    assert "expected one text in a recording" in refusal(model, path, lambda: (model.model(ids), model.model(ids)))
    assert refusal(model, path, run, heads=[]) == "heads: expected at least one, or None for all, got none"
    assert refusal(model, path, lambda: (run(), run())) == (
        "record: expected one text in a recording, and the queries from position 24 of model.layers.0.self_attn, got "
        "them from position 0; record each text in a file of its own"
    )
    assert refusal(model, path, run, layers=[5]) == "layers: expected some of [0, 1], which the model has, got [5]"
    assert refusal(model, path, run, layers=[1, 5]) == "layers: expected some of [0, 1], which the model has, got [5]"
    assert refusal(model, path, run, heads=[4]) == (
        "heads: expected numbers from 0 to 3, the heads of model.layers.0.self_attn, got [4]"
    )
    assert refusal(model, path, run, store="float8") == (
        'store: expected "float32", "float16" or "bfloat16", got "float8"'
    )
    assert refusal(model, path, run, compute="sdpa") == 'compute: expected "fovea" or "original", got \'sdpa\''
    compiled = torch.compile(model, backend="eager")
    assert "compile" in refusal(compiled, path, lambda: None)
    elsewhere = of("LlamaForCausalLM", **GROUPED)().to("meta")
    assert "on the CPU, got meta" in refusal(elsewhere, path, lambda: None)


def test_wrong_types(path):
    model = DECODERS["Llama"]()
    for options, message in (
        ({"heads": 1}, "heads: expected a list of integers or None, got 1"),
        ({"layers": "0"}, "layers: expected a list of integers or None, got '0'"),
        ({"tokenizer": "gpt2"}, "tokenizer: expected a tokenizer of transformers or None, got str"),
        ({"text": 5}, "text: expected a text, a list of texts or None, got int"),
        ({"text": [5]}, "text: expected a text, a list of texts or None, got list"),
    ):
        with pytest.raises(TypeError, match=message), fovea.record(model, path, **options):
            pass
    with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module, got str"), fovea.record("gpt2", path):
        pass
    assert not path.exists()


def test_modules_that_bypass_the_interface(path):
    config = transformers.GPTJConfig(vocab_size=97, n_embd=64, n_layer=2, n_head=4, rotary_dim=16)
    model = transformers.GPTJForCausalLM(config).eval()
    assert refusal(model, path, lambda: model(text(batch=1))) == (
        "record: expected attention through transformers' interface, got 2 modules that compute it in another way: "
        "transformer.h.0.attn, transformer.h.1.attn"
    )


def test_an_exception_in_the_block(path):
    model = DECODERS["Llama"]()

    def run():
        with fovea.record(model, path, progress=False):
            model(text(batch=1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert os.listdir(path.parent) == []
    assert model.config._attn_implementation == "sdpa"


def test_a_path_that_cannot_be_written(tmp_path):
    model = DECODERS["Llama"]()
    ran = []
    with pytest.raises(OSError, match="cannot be written"), fovea.record(model, tmp_path / "none" / "run.safetensors"):
        ran.append(True)
    assert not ran


def test_a_full_disk(path):
    """The limit for files ends a write as a full disk does."""
    script = (
        "import resource, signal, torch, fovea\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "query, key, value = torch.randn(3, 1, 8, 4096, 64)\n"
        f"with fovea.record(torch.nn.Identity(), {str(path)!r}, progress=False):\n"
        "    torch.nn.functional.scaled_dot_product_attention(query, key, value)\n"
    )
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "OSError: " in done.stderr
    assert "cannot be written: File too large" in done.stderr
    assert os.listdir(path.parent) == []


def test_the_size_is_told_first(path, capsys):
    model = DECODERS["Llama"]()
    with torch.no_grad(), fovea.record(model, path, progress=True):
        model(text(batch=1))
    assert capsys.readouterr().err == (
        f"fovea: recording about 2 attentions x 24 tokens x (4 + 2) heads x 16 = 0 MB to {path}\n"
    )
