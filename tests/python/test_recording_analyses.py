# SPDX-License-Identifier: Apache-2.0
"""Tests the analyses of recordings: against their definitions in float64, from all weights of small problems, and
against the command line."""

import json
import pathlib
import subprocess

import numpy as np
import pytest
from problems import raises, softmax, wide

import fovea

HEADS, KEY_HEADS, LENGTH, DIM, VALUE_DIM, LAYERS = 4, 2, 29, 8, 5, 3
# 32-bit rounding, once.
ULP = 2.0**-24
PROGRAM = pathlib.Path(fovea.__file__).parent / "bin" / "fovea"


class Layer:
    """A recorded attention with all its weights, float64 [batch, q_heads, length, length]."""

    def __init__(self, layer, seed, batch=2, length=LENGTH, scale=1.0, **more):
        random = np.random.default_rng(seed)
        self.query = random.standard_normal((batch, HEADS, length, DIM)).astype(np.float32) * np.float32(scale)
        self.key = random.standard_normal((batch, KEY_HEADS, length, DIM)).astype(np.float32)
        self.value = random.standard_normal((batch, KEY_HEADS, length, VALUE_DIM)).astype(np.float32)
        self.mask = fovea.causal() if layer else fovea.causal() & fovea.window(12, 0)
        self.weights = softmax(self.query, self.key, self.mask.matrix(length, length))
        self.entry = {"name": f"layers.{layer}", "layer": layer, "mask": self.mask, **more}
        self.entry |= {"query": self.query, "key": self.key, "value": self.value}

    @property
    def error(self):
        """Bounds the relative error of float32 weights: scores and lse are sums of DIM products, up to a norm."""
        longest = [np.linalg.norm(wide(array), axis=-1).max() for array in (self.query, self.key)]
        return ULP * (DIM + 8) * (1 + longest[0] * longest[1] / np.sqrt(DIM) + np.log(LENGTH))


def ids_of(seed, length=LENGTH):
    return np.random.default_rng(seed).integers(0, 9, length).tolist()


def tokens_of(name, ids, known=True):
    return fovea.Tokens(name, [f"word {number}" for number in ids], ids if known else [])


def record(path, layers, tokens=(), **options):
    fovea.Recording.write(path, [layer.entry for layer in layers], tokens, **options)
    return fovea.Recording(path)


@pytest.fixture
def layers():
    names = {"query_tokens": ["one", "two"], "key_tokens": ["one", "two"]}
    return [Layer(layer, 10 + layer, **names) for layer in range(LAYERS)]


@pytest.fixture
def recording(layers, tmp_path):
    tokens = [tokens_of("one", ids_of(1)), tokens_of("two", ids_of(2), known=False)]
    return record(tmp_path / "run.safetensors", layers, tokens)


def token_scores(weights, ids):
    """Returns induction and duplicate-token scores of a head, as fovea/analysis.h defines them."""
    induction, duplicate = [], []
    for i, number in enumerate(ids):
        earlier = [j for j in range(i) if ids[j] == number]
        if earlier:
            duplicate.append(sum(weights[i, j] for j in earlier))
            induction.append(sum(weights[i, j + 1] for j in earlier))
    return np.mean(induction), np.mean(duplicate)


def test_token_scores(layers, recording):
    found = recording.heads()
    assert found.shape == (LAYERS * 2 * HEADS,)
    for row in found:
        layer, ids = layers[row["layer"]], ids_of(1 + row["batch"])
        expected = token_scores(layer.weights[row["batch"], row["head"]], ids)
        np.testing.assert_allclose([row["induction"], row["duplicate"]], expected, rtol=layer.error + LENGTH * ULP)


def test_patterns(tmp_path):
    """Heads that attend to the previous token, after or to earlier occurrences of the token, and evenly. Keys that the
    query asks for have score 3, others 0."""
    length, period, score = 12, 6, 3.0
    ids = [place % period for place in range(length)]
    own, earlier = np.eye(length), np.eye(length, k=-1)
    of_token = np.eye(length)[ids]
    # Of each head, what queries ask for and what keys offer, [length, length].
    asks = [10 * earlier, of_token, of_token, 0 * own]
    offers = [own, np.vstack([0 * own[:1], of_token[:-1]]), of_token, own]
    query, key = (np.array(each, np.float32)[None] for each in (asks, offers))
    visible = np.tri(length, k=-1, dtype=bool)
    visible[0, 0] = True
    entry = {"name": "a", "query": query * np.float32(score), "key": key, "scale": 1.0, "mask": visible}
    entry |= {"query_tokens": "text", "key_tokens": "text"}
    path = tmp_path / "run.safetensors"
    fovea.Recording.write(path, [entry], {"text": [f"word {number}" for number in ids]})
    found = fovea.Recording(path).heads()
    assert found["pattern"].tolist() == ["previous token", "induction", "duplicate token", "uniform"]
    # Query i sees i keys, one of which it asks for.
    expected = np.mean([np.exp(score) / (np.exp(score) + i - 1) for i in range(period, length)])
    error = {"rtol": ULP * (length + 8) * (1 + score + np.log(length))}
    np.testing.assert_allclose(found["induction"][1], expected, **error)
    np.testing.assert_allclose(found["duplicate"][2], expected, **error)


def test_heads_without_scores(tmp_path):
    """Without tokens, or without repeated ones, and for cross-attention and float64, scores are nan."""
    names = {"query_tokens": "text", "key_tokens": "text"}
    entries = [
        Layer(0, 1, batch=1).entry,
        Layer(1, 2, batch=1, **names).entry,
        Layer(2, 3, batch=1, **names, kind="cross").entry,
        Layer(3, 4, batch=1, **names).entry,
    ]
    for name in ("query", "key", "value"):
        entries[3][name] = wide(entries[3][name])
    path = tmp_path / "run.safetensors"
    for ids in (range(LENGTH), ids_of(1)):
        fovea.Recording.write(path, entries, [tokens_of("text", list(ids))])
        found = fovea.Recording(path).heads()
        known = (found["name"] == "layers.1") & (len(set(ids)) < LENGTH)
        for field in ("induction", "duplicate"):
            np.testing.assert_array_equal(np.isnan(found[field]), ~known)
        assert not np.isnan(found["entropy"]).any()


def rollout(layers, batch, residual):
    """Returns the products of all layers from each layer on, [layers, tokens, tokens]."""
    product, found = np.eye(LENGTH), []
    for layer in reversed(layers):
        product = product @ (residual * np.eye(LENGTH) + (1 - residual) * layer.weights[batch].mean(0))
        found.insert(0, product)
    return found


@pytest.mark.parametrize("residual", [0.0, 0.5, 1.0])
def test_rollout(layers, recording, residual):
    # All terms are positive; a part of 192 queries is summed in float32.
    error = {"rtol": sum(layer.error + 192 * ULP for layer in layers)}
    for batch in range(2):
        expected = rollout(layers, batch, residual)
        for token in (-1, -LENGTH, 7, LENGTH - 1):
            every = recording.rollout(token, batch, residual=residual, each_layer=True)
            assert (every.shape, every.dtype) == ((LAYERS, LENGTH), np.float64)
            np.testing.assert_allclose(every, [product[token] for product in expected], **error)
            found = recording.rollout(np.int64(token), batch=batch, residual=residual, threads=1)
            np.testing.assert_array_equal(found, every[0])
    if residual == 0.5:
        np.testing.assert_array_equal(recording.rollout(3), recording.rollout(3, 0, residual=0.5))


def test_rollout_through_layers_in_their_order(layers, tmp_path):
    kinds = ["encoder", "decoder", "encoder"]
    for layer, kind in zip(layers, kinds, strict=True):
        layer.entry |= {"kind": kind, "query_tokens": None, "key_tokens": None}
    recording = record(tmp_path / "run.safetensors", reversed(layers))
    found = recording.rollout(-1, kind="encoder")
    expected = rollout([layers[0], layers[2]], 0, 0.5)[0][-1]
    np.testing.assert_allclose(found, expected, rtol=sum(layer.error + 192 * ULP for layer in layers))
    with raises(ValueError, "kind: expected the stack of layers, recorded are 'encoder', 'decoder', got None"):
        recording.rollout(-1)
    with raises(ValueError, "kind: expected the stack of layers, recorded are 'encoder', 'decoder', got 'cross'"):
        recording.rollout(-1, kind="cross")


def test_wrong_rollouts(recording, tmp_path):
    for call, kind, message in (
        (lambda: recording.rollout(29), IndexError, "token: expected from -29 to before 29, got 29"),
        (lambda: recording.rollout(-30), IndexError, "token: expected from -29 to before 29, got -30"),
        (lambda: recording.rollout(0, 2), IndexError, "batch: expected 0 or more and less than 2, got 2"),
        (lambda: recording.rollout(0, residual=1.5), ValueError, "residual: expected a number from 0 to 1, got 1.5"),
        (lambda: recording.rollout(0, threads=0), ValueError, "threads: expected 1 or more"),
        (lambda: recording.rollout("a"), TypeError, "str"),
    ):
        with raises(kind, message):
            call()
    with raises(ValueError, "kind: expected the stack of layers, recorded are no self-attention, got None"):
        record(tmp_path / "none.safetensors", []).rollout(0)
    uneven = record(tmp_path / "uneven.safetensors", [Layer(0, 1), Layer(1, 1, length=9)])
    with raises(ValueError, "layers: expected batch 2 and 29 tokens as layers.0 has, got layers.1 with 2 and 9"):
        uneven.rollout(0)
    twice = [Layer(0, 1), Layer(1, 1)]
    twice[1].entry["layer"] = 0
    with raises(ValueError, "layers: expected each layer of one stack once, got layer 0 twice: layers.0, layers.1"):
        record(tmp_path / "twice.safetensors", twice).rollout(0)


def test_value_weighted(layers, recording):
    projection = np.random.default_rng(5).standard_normal((HEADS, VALUE_DIM, 11)).astype(np.float32)
    for layer, each in zip(layers, recording, strict=True):
        values = np.repeat(wide(layer.value), HEADS // KEY_HEADS, axis=1)
        plain = np.linalg.norm(values, axis=-1)
        projected = np.linalg.norm(values @ wide(projection), axis=-1)
        norms = each.value_norms(projection)
        assert (norms.shape, norms.dtype) == ((2, HEADS, LENGTH), np.float32)
        np.testing.assert_allclose(norms, projected, rtol=2 * ULP)
        np.testing.assert_allclose(each.value_norms(), plain, rtol=2 * ULP)
        error = {"rtol": layer.error + 4 * ULP}
        for head, batch in ((0, 0), (3, 1)):
            expected = layer.weights[batch, head] * plain[batch, head]
            np.testing.assert_allclose(each.value_weighted(head, batch=batch), expected, **error)
            row = each.value_weighted(head, batch=batch, queries=slice(7, 8), keys=slice(2, None))
            np.testing.assert_allclose(row, expected[7:8, 2:], **error)
            expected = layer.weights[batch, head] * projected[batch, head]
            found = each.value_weighted(head, (1, 2), batch=batch, norms=norms, reduce="max", threads=1)
            halves = [expected[:, : LENGTH // 2].max(), expected[:, LENGTH // 2 :].max()]
            np.testing.assert_allclose(found, [halves], **error)


def test_value_weighted_by_heads_of_the_model(layers, tmp_path):
    entry = layers[0].entry | {"heads": [1, 2, 5, 9], "query_tokens": None, "key_tokens": None}
    path = tmp_path / "run.safetensors"
    fovea.Recording.write(path, [entry])
    each = fovea.Recording(path)[0]
    sums = each.value_weighted(5, (1, 1))
    norms = np.linalg.norm(wide(layers[0].value), axis=-1)
    np.testing.assert_allclose(sums, [[(layers[0].weights[0, 2] * norms[0, 1]).sum()]], rtol=layers[0].error + 4 * ULP)
    for call, kind, message in (
        (lambda: each.value_weighted(3), IndexError, "head: expected one of 1, 2, 5, 9, which were recorded, got 3"),
        (lambda: each.value_weighted(5, batch=-1), IndexError, "batch: expected 0 or more and less than 2, got -1"),
        (lambda: each.value_weighted(5, (0, 1)), ValueError, "size: expected (1, 1) to (29, 29)"),
        (lambda: each.value_weighted(5, queries=slice(3, 3)), ValueError, "queries: expected at least one of 29"),
        (lambda: each.value_weighted(5, reduce="min"), ValueError, 'reduce: expected "sum", "mean" or "max"'),
        (lambda: each.value_weighted(5, norms=norms), ValueError, "norms: expected [batch, q_heads, kv_len]"),
        (lambda: each.value_norms(np.ones((4, 3, 2))), ValueError, "projection: expected floats [4, 5, model_dim]"),
    ):
        with raises(kind, message):
            call()
    fovea.Recording.write(path, [{name: part for name, part in entry.items() if name != "value"}])
    each = fovea.Recording(path)[0]
    for call in (each.value_norms, lambda: each.value_weighted(5)):
        with raises(ValueError, "value: expected an attention that was recorded with values, got layers.0, which has"):
            call()


def divergence(p, q):
    """Returns the Jensen-Shannon divergence of all rows."""
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [np.where(each > 0, each * np.log(each / middle), 0.0) for each in (p, q)]
    return (terms[0] + terms[1]).sum(-1) / 2


def test_diff(layers, recording, tmp_path):
    others = [layers[0], *(Layer(layer, 20 + layer, scale=2.0) for layer in (1, 2))]
    for layer in others:
        layer.entry |= {"query_tokens": ["one", "two"], "key_tokens": ["one", "two"]}
    tokens = [tokens_of("one", ids_of(1)), tokens_of("two", ids_of(2))]
    path = tmp_path / "other.safetensors"
    record(path, others, tokens)
    found = fovea.diff(recording, path)
    assert found.dtype.names == ("name", "layer", "kind", "batch", "head", "mean", "largest", "query", "token")
    assert found.shape == (LAYERS * 2 * HEADS,)
    for row in found:
        first, second = layers[row["layer"]], others[row["layer"]]
        at = row["batch"], row["head"]
        expected = divergence(first.weights[at], second.weights[at])
        # As in tests/unit/recording/divergence_test.cc.
        error = 1.1 * max(first.error, second.error) + 2.0**-22
        np.testing.assert_allclose([row["mean"], row["largest"]], [expected.mean(), expected.max()], rtol=0, atol=error)
        if row["layer"] == 0:
            assert (row["mean"], row["largest"]) == (0.0, 0.0)
        else:
            assert expected[row["query"]] >= expected.max() - 2 * error
            assert row["token"] == f"word {ids_of(1 + row['batch'])[row['query']]}"
    # The order does not matter.
    for field in ("mean", "largest", "query"):
        np.testing.assert_array_equal(fovea.diff(path, str(recording.path), threads=1)[field], found[field])


def test_diff_of_rows_without_keys(tmp_path):
    layer = Layer(0, 1, batch=1)
    layer.entry["mask"] = np.zeros((LENGTH, LENGTH), bool)
    found = fovea.diff(*[record(tmp_path / "run.safetensors", [layer])] * 2)
    assert np.isnan(found["mean"]).all()
    assert np.isnan(found["largest"]).all()
    assert found["query"].tolist() == [-1] * HEADS
    assert found["token"].tolist() == [""] * HEADS


def test_wrong_diffs(tmp_path):
    named = {"query_tokens": "text", "key_tokens": "text", "batch": 1}
    first = record(tmp_path / "a.safetensors", [Layer(0, 1, **named)], [tokens_of("text", ids_of(1))])
    path = tmp_path / "b.safetensors"
    words = [f"word {number}" for number in ids_of(1)]
    other = [*words[:5], "a dog", *words[6:]]
    text = f'{path}: expected the query tokens of {first.path}, got "a dog" instead of "{words[5]}" at 5'
    ids = [*ids_of(1)[:7], 99, *ids_of(1)[8:]]
    changed = f'got "{words[7]}" (id 99) instead of "{words[7]}" (id {ids_of(1)[7]}) at 7'
    for layer, tokens, message in (
        (Layer(0, 1, **named), {"text": other}, text),
        (Layer(0, 1, **named), [fovea.Tokens("text", words, ids)], changed),
        (Layer(0, 1, length=9, **named), {"text": words[:9]}, "got 9, of which the first 9 are the same"),
        (Layer(0, 1, length=9, batch=1), {}, f"{path}: layers.0: second: expected q_len 29 as the first attention has"),
        (Layer(7, 1, batch=1), {}, f"{path}: expected the attention layers.0 as {first.path} has, got layer 7"),
    ):
        fovea.Recording.write(path, [layer.entry], tokens)
        with raises(ValueError, message):
            fovea.diff(first, path)
    with raises(OSError, "cannot be read: No such file"):
        fovea.diff(first, tmp_path / "none.safetensors")


def command_line(*arguments):
    said = subprocess.run([PROGRAM, *arguments, "--json"], capture_output=True, encoding="utf-8", check=True).stdout
    return json.loads(said)


def assert_same(table, heads, renamed):
    """Asserts that a table has the elements of the command line's JSON, whose nan and missing texts are null."""
    assert len(table) == len(heads)
    for row, head in zip(table, heads, strict=True):
        for field in table.dtype.names:
            told, expected = row[field], head[renamed.get(field, field)]
            if expected is None:
                assert told in ("", -1) or np.isnan(told), field
            else:
                assert told == expected, field


def test_command_line_says_the_same(recording, layers, tmp_path):
    path = pathlib.Path(recording.path)
    table = recording.heads(blocks=5)
    told = command_line("heads", path, "--sort", "head", "--blocks", "5")
    assert set(told["heads"][0]) == {"attention", *table.dtype.names} - {"pattern"}
    assert_same(table, told["heads"], {"name": "attention", "pattern": "name"})
    assert [each["q_len"] for each in told["attentions"]] == [each.shape[2] for each in recording]
    other = tmp_path / "other.safetensors"
    entries = [layer.entry | {"query": layer.query * np.float32(1 + layer.entry["layer"])} for layer in layers]
    fovea.Recording.write(other, entries, list(recording.tokens.values()))
    assert_same(
        fovea.diff(path, other), command_line("diff", path, other, "--sort", "head")["heads"], {"name": "attention"}
    )
    rows = command_line("rollout", path, "--query", "7", "--batch", "1")["layers"]
    assert [row["shares"] for row in rows] == recording.rollout(7, 1, each_layer=True).tolist()
