# SPDX-License-Identifier: Apache-2.0
"""Arrays, masks and words as arguments of fovea.explain, and in scenes that are dicts."""

import array
import fractions
import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
from problems import Producer, raises

import fovea

# Numbers that float32 and bfloat16 have too, and a fraction that only binary formats have.
WORDS = np.array([[1.5, -0.25, 0.0], [0.0078125, 2.0, 1.0], [-3.0, 0.5, 96.0], [1.0, 1.0, 1.0]])
NAMES = ["word_1", "word_2", "word_3", "word_4"]


class WithArray:
    """As TensorFlow's tensors."""

    def __init__(self, values):
        self.values, self.dtype = values, values.dtype

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


class WithList:
    """As torch's tensors that require gradients, or of bfloat16, and their dtypes."""

    class Type:
        def __init__(self, name):
            self.text = f"torch.{name}"

        def __str__(self):
            return self.text

    def __init__(self, values, name):
        self.values, self.dtype = values, self.Type(name)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Got unsupported ScalarType BFloat16")

    def tolist(self):
        return self.values.tolist()


KINDS = {
    "float64": (WORDS, "float64"),
    "float32": (WORDS.astype("f"), "float32"),
    "float16": (WORDS.astype("e"), "float32"),
    "bfloat16": (WORDS.astype(ml_dtypes.bfloat16), "float32"),
    "big-endian": (WORDS.astype(">f8"), "float64"),
    "long double": (WORDS.astype(np.longdouble), "float64"),
    "not contiguous": (np.asfortranarray(np.repeat(WORDS, 2, axis=1))[:, ::2], "float64"),
    "objects": (WORDS.astype(object), "float64"),
    "a list": (WORDS.tolist(), "float64"),
    "tuples": (tuple(map(tuple, WORDS.tolist())), "float64"),
    "a generator": ((row for row in WORDS.tolist()), "float64"),
    "rows": (list(WORDS.astype("f")), "float32"),
    "rows of two types": ([WORDS[0], *WORDS[1:].astype("f")], "float64"),
    "rows and lists": ([*WORDS[:2].astype("f"), *WORDS[2:].tolist()], "float32"),
    "scalars": ([[np.float32(x) for x in row] for row in WORDS], "float32"),
    "scalar arrays": ([[np.array(x) for x in row] for row in WORDS], "float64"),
    "fractions": ([[fractions.Fraction(x) for x in row] for row in WORDS.tolist()], "float64"),
    "__array__": (WithArray(WORDS.astype("f")), "float32"),
    "tolist": (WithList(WORDS, "bfloat16"), "float32"),
    "tolist of float64": (WithList(WORDS, "float64"), "float64"),
    "DLPack": (Producer(WORDS.astype("f")), "float32"),
    "array.array": ([array.array("d", row) for row in WORDS], "float64"),
    "a buffer": (memoryview(WORDS), "float64"),
}


@pytest.mark.parametrize(("values", "dtype"), KINDS.values(), ids=KINDS)
def test_kinds_of_arrays(values, dtype):
    trace = fovea.explain(embeddings=values)
    assert trace["tokens"] == NAMES
    assert trace["embeddings"].dtype == trace["weights"].dtype == dtype
    assert np.array_equal(trace["embeddings"], WORDS)


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "bool"])
def test_integers_are_float64(kind):
    values = (WORDS > 0.7).astype(kind)
    if kind == "bool":
        with raises(ValueError, "embeddings[0][0]: expected a number, got true"):
            fovea.explain(embeddings=values)
        return
    trace = fovea.explain(embeddings=values)
    assert trace["scores"].dtype == np.float64
    assert np.array_equal(trace["embeddings"], values)


def test_torch():
    torch = pytest.importorskip("torch", exc_type=ImportError)
    for dtype, found in ((torch.float32, "f4"), (torch.bfloat16, "f4"), (torch.float64, "f8"), (torch.int32, "f8")):
        values = torch.tensor((WORDS * 128).tolist()).to(dtype)
        trace = fovea.explain(embeddings=values.requires_grad_() if dtype.is_floating_point else values, dtype=None)
        assert trace["embeddings"].dtype == found
        assert np.array_equal(trace["embeddings"], np.array(values.tolist()))
    words = torch.tensor(WORDS.tolist())
    trace = fovea.explain(
        embeddings=words, mask=torch.ones(4, 4).tril() > 0, scale=torch.tensor(1.0), dtype=torch.float64
    )
    assert np.array_equal(trace["weights"], fovea.explain(embeddings=WORDS, mask="causal", scale=1)["weights"])
    assert trace["weights"].dtype == np.float64


def test_jax():
    pytest.importorskip("jax", exc_type=ImportError)
    import jax.numpy as jnp

    for dtype in (jnp.float32, jnp.bfloat16, jnp.int32):
        values = jnp.asarray(WORDS * 128, dtype)
        trace = fovea.explain(embeddings=values)
        assert trace["embeddings"].dtype == ("f8" if dtype == jnp.int32 else "f4")
        assert np.array_equal(trace["embeddings"], WORDS * 128)


def test_full_precision():
    numbers = np.array([[0.1 + 0.2, 1 / 3, 5e-324], [-0.0, np.finfo(float).tiny, 2.0**53 + 2]])
    assert fovea.explain(embeddings=numbers, scale=1e-300)["embeddings"].tobytes() == numbers.tobytes()
    single = np.float32([[0.1, 1e-45], [16777217, -0.0]])
    assert fovea.explain(embeddings=single, scale=1e-30)["embeddings"].tobytes() == single.tobytes()
    scale = np.nextafter(0.5, 1)
    assert fovea.explain(embeddings=[[1.0]], scale=scale)["scaled_scores"] == scale


def test_dtype():
    single = WORDS.astype("f")
    assert fovea.explain(embeddings=single, dtype="float64")["scores"].dtype == np.float64
    for dtype in ("float32", np.float32, np.dtype("f"), WithList.Type("float32")):
        assert fovea.explain(embeddings=WORDS, dtype=dtype)["scores"].dtype == np.float32
    # As NumPy promotes; a number among the arguments, such as the scale, does not count.
    eye = np.eye(3)
    assert fovea.explain(embeddings=single, w_query=eye, w_key=eye, w_value=eye)["scores"].dtype == np.float64
    assert fovea.explain(embeddings=single, scale=np.float64(2))["scores"].dtype == np.float32
    with raises(ValueError, "dtype", "float16"):
        fovea.explain(embeddings=WORDS, dtype=np.float16)


def test_arrays_inside_a_scene():
    black, cat = np.float64([2.0, 0.3]), np.float64([0.4, 2.0])
    plain = {
        "tokens": ["black"],
        "embeddings": [[0.25, 3.0]],
        "source": {"tokens": ["chat", "noir"], "embeddings": [[2.0, 0.3], [0.4, 2.0]]},
        "projections": {"query": [[1, 0], [0, 1]], "key": [[1, 0], [0, 1]], "value": [[1], [2]]},
        "score": {"scale": 0.5, "bias": [[0.125, "-inf"]]},
        "focus": 0,
        "precision": 3,
        "expect": [{"step": "weights", "values": [[1.0, 0.0]], "atol": 1e-9}],
    }
    full = {
        "tokens": np.array(["black"]),
        "embeddings": WithArray(np.array([[0.25, 3.0]])),
        "source": {"tokens": ("chat", "noir"), "embeddings": [black, cat]},
        "projections": {"query": np.eye(2, dtype=int), "key": np.eye(2), "value": array.array("d", [1, 2])},
        "score": {"scale": np.float64(0.5), "bias": np.array([[0.125, -np.inf]])},
        "focus": np.int8(0),
        "precision": np.int64(3),
        "expect": [{"step": "weights", "values": np.array([[1.0, 0.0]]), "atol": np.float64(1e-9)}],
    }
    full["projections"]["value"] = [[x] for x in full["projections"]["value"]]
    traces = [fovea.explain(scene) for scene in (plain, full)]
    assert traces[0].to_json() == traces[1].to_json()
    assert traces[1].passed
    assert fovea.explain({"tokens": ["a"], "embeddings": np.ones((1, 2), "f")})["scores"].dtype == np.float32
    assert (
        fovea.explain({"tokens": ["a"], "embeddings": np.ones((1, 2), "f"), "dtype": "float64"})["scores"].dtype
        == float
    )
    with raises(ValueError, "score.bias[0][1]: expected a number"):
        fovea.explain(plain | {"score": {"bias": np.array([[0.0, None]])}})


def test_keywords_are_a_scene():
    """The scene of a trace can be read again, and says the same."""
    trace = fovea.explain(
        "a b c d",
        embeddings=WORDS,
        scale=1,
        mask=fovea.causal() & fovea.window(1, 0),
        normalizations=("sum", "softmax"),
    )
    scene = json.loads(trace.scene.json)
    assert scene["text"] == scene["title"] == "a b c d"
    assert scene["embeddings"] == WORDS.tolist()
    assert scene["score"] == {"scale": 1}
    assert fovea.explain(scene).to_json() == trace.to_json()


def test_words():
    def tokens(**arguments):
        return fovea.explain(embeddings=WORDS, **arguments)["tokens"]

    assert tokens() == NAMES
    assert (
        tokens(tokens=list("abcd")) == tokens(tokens=np.array(list("abcd"))) == tokens(text="a b c d") == list("abcd")
    )
    assert tokens(tokens=np.array([72, 3, 64, 69])) == [72, 3, 64, 69]
    batch = fovea.explain(embeddings=np.stack([WORDS, WORDS]))
    assert batch["weights"].shape == (2, 4, 4)
    assert batch.scene.tokens == [NAMES, NAMES]
    assert fovea.explain(embeddings=WORDS).scene.title == "Attention of 4 words"
    assert fovea.explain(embeddings=WORDS, tokens=list("abcd")).scene.title == "a b c d"
    assert fovea.explain(embeddings=WORDS, title="Mine").scene.title == "Mine"
    long = fovea.explain(" ".join(map(str, range(100))), scale=1).scene.title
    assert len(long) <= 60
    assert long.endswith("...")


def test_random_arrays_are_those_of_a_sentence():
    sentence = fovea.explain("Your journey starts", dim=3, seed=5, heads=3, random_projections=True)
    for arguments in (
        {"text": "Your journey starts", "random_projections": True},
        {"tokens": ["Your", "journey", "starts"], "projections": "random"},
    ):
        trace = fovea.explain(dim=3, seed=5, heads=3, **arguments)
        assert trace.names() == sentence.names()
        assert all(np.array_equal(trace[name], sentence[name]) for name in trace)
    scaled = fovea.explain("Your journey starts", scale=2)
    assert np.array_equal(scaled["embeddings"], fovea.explain("Your journey starts")["embeddings"])
    assert fovea.explain(embeddings=WORDS, projections="random", dim=2)["query"].shape == (4, 2)
    first, second = (
        fovea.explain(embeddings=WORDS, projections="random", seed=seed)["query_weights"] for seed in (1, 2)
    )
    assert not np.array_equal(first, second)
    assert np.array_equal(first, np.random.RandomState(1).randn(3, 3))


def test_queries_keys_and_values():
    random = np.random.default_rng(1)
    shapes = ((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 2))
    query, key, value = (random.standard_normal(shape) for shape in shapes)

    def close(found, *arrays, **options):
        np.testing.assert_allclose(found, fovea.reference.attention(*arrays, **options), rtol=1e-12)

    trace = fovea.explain(query=query, key=key, value=value, scale=0.5)
    assert trace["weights"].shape == (2, 4, 5, 6)
    assert np.array_equal(trace["query"], query)
    close(trace["context"], query, key, value, scale=0.5)
    assert trace.scene.tokens == 2 * [[f"word_{i}" for i in range(1, 6)]]
    assert trace["source_tokens"][:6] == [f"key_{i}" for i in range(1, 7)]
    three = fovea.explain(query=query[:, 0], key=key[:, 0], value=value[:, 0])
    close(three["context"], query[:, 0], key[:, 0], value[:, 0])
    two = fovea.explain("a b c d e", query=query[0, 0], key=key[0, 0, :5], value=value[0, 0, :5], causal=True)
    close(two["context"], query[0, 0], key[0, 0, :5], value[0, 0, :5], mask=fovea.causal())
    assert two["tokens"] == list("abcde")
    assert "source_tokens" not in two
    one = fovea.explain(query=query[0, 0, 0], key=key[0, 0], value=value[0, 0], source=list("uvwxyz"))
    close(one["context"], query[0, 0, :1], key[0, 0], value[0, 0])
    assert one["source_tokens"] == list("uvwxyz")
    drawing = {"draw": "randn", "dim": 3}
    drawn = fovea.explain("a b", query=drawing, key=drawing, value=drawing)
    assert np.array_equal(drawn["query"], np.random.RandomState(42).randn(2, 3))


def test_scale():
    scores = WORDS @ WORDS.T
    for scale, factor in (
        (None, 3**-0.5),
        ("1/sqrt(head_dim)", 3**-0.5),
        (0.25, 0.25),
        (np.float32(2), 2),
        (np.array(3), 3),
    ):
        np.testing.assert_allclose(fovea.explain(embeddings=WORDS, scale=scale)["scaled_scores"], scores * factor)
    assert "scaled_scores" not in fovea.explain(embeddings=WORDS, scale=1)


FOCUS = {
    "a word": ("word_2", 1),
    "a position": (2, 2),
    "from the end": (-1, 3),
    "the first from the end": (-4, 0),
    "of NumPy": (np.int32(1), 1),
    "an array": (np.array(1), 1),
    "in an item": ([0, 3], 3),
    "from the end in an item": ((-1, -2), 2),
    "as in the command line": ("@1", 1),
}


@pytest.mark.parametrize(("focus", "position"), FOCUS.values(), ids=FOCUS)
def test_focus(focus, position):
    scene = fovea.Scene.parse(json.dumps({"tokens": NAMES, "embeddings": WORDS.tolist()}))
    # As query, a list is an array.
    for argument in ("focus", "query") if np.ndim(focus) == 0 else ("focus",):
        trace = fovea.explain(embeddings=WORDS, **{argument: focus})
        assert trace["focus.tokens"] == [NAMES[position]]
        assert np.array_equal(trace["focus.weights"], trace["weights"][position])
        assert trace["focus.scores"].shape == (4,)
        for given in (scene, " ".join(NAMES), json.loads(scene.json)):
            assert fovea.explain(given, **{argument: focus})["focus.tokens"] == [NAMES[position]]


VISIBLE = {
    "causal": ("causal", fovea.causal()),
    "none": ("none", fovea.Mask()),
    "no rules": (fovea.Mask(), fovea.Mask()),
    "rules": (fovea.causal() & fovea.window(1, 0), fovea.window(1, 0)),
    "or": (fovea.causal() | fovea.prefix(2), fovea.causal() | fovea.prefix(2)),
    "nested": (
        (fovea.causal() | fovea.prefix(2)) & fovea.key_lengths([3]),
        (fovea.causal() | fovea.prefix(2)) & fovea.key_lengths(3),
    ),
    "an array": (np.tri(4, dtype=bool), fovea.causal()),
    "lists": ([[True, False, True, True]], fovea.dense(np.array([[True, False, True, True]]))),
    "dense": (fovea.dense(np.tri(4) > 0), fovea.causal()),
    "documents": (fovea.documents([1, 1, 2, 2]), fovea.documents([1, 1, 2, 2])),
    "documents and causal": (
        fovea.documents([1, 1, 2, 2]) & fovea.causal(),
        fovea.documents([1, 1, 2, 2]) & fovea.causal(),
    ),
    "a dict": ({"window": np.array([1, 0])}, fovea.window(1, 0)),
    "a dict of rules": ({"any": [fovea.causal(), {"prefix": 2}]}, fovea.causal() | fovea.prefix(2)),
}


@pytest.mark.parametrize("with_causal", [False, True])
@pytest.mark.parametrize(("mask", "rules"), VISIBLE.values(), ids=VISIBLE)
def test_mask(mask, rules, with_causal):
    visible = (rules & fovea.causal() if with_causal else rules).matrix(4, 4)
    trace = fovea.explain(embeddings=WORDS, mask=mask, causal=with_causal)
    assert np.array_equal(trace["weights"] > 0, visible & (trace["weights"] > 0))
    masked = trace["masked_scores"] if "masked_scores" in trace else trace["scaled_scores"]
    assert np.array_equal(np.isfinite(masked), visible)
    if not with_causal:
        scene = {"tokens": NAMES, "embeddings": WORDS, "mask": mask}
        assert np.array_equal(fovea.explain(scene)["weights"], trace["weights"])


def test_mask_of_a_batch_with_heads():
    documents = np.array([[1, 1, 2, 2], [1, 2, 2, 2]])
    trace = fovea.explain(
        embeddings=np.ones((2, 4, 4)), heads=2, kv_heads=1, projections="random", mask=fovea.documents(documents)
    )
    assert trace["weights"].shape == (2, 2, 4, 4)
    assert np.array_equal(trace["weights"] > 0, np.repeat((documents[:, :, None] == documents[:, None])[:, None], 2, 1))


class Recursive:
    def tolist(self):
        return self


class Broken:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not today")


def itself():
    values = []
    values.append(values)
    return values


EYE = np.eye(3)
REFUSED = {
    "complex": (TypeError, {"embeddings": WORDS * 1j}, ["embeddings: expected numbers", "complex128"]),
    "a complex number": (TypeError, {"embeddings": [[1j]]}, ["embeddings[0][0]: expected numbers", "complex"]),
    "dates": (TypeError, {"embeddings": WORDS.astype("M8[s]")}, ["embeddings", "datetime64"]),
    "a set": (TypeError, {"embeddings": {1.0}}, ["embeddings", "set"]),
    "bytes": (TypeError, {"tokens": b"ab"}, ["tokens", "bytes"]),
    "an object": (TypeError, {"embeddings": object()}, ["embeddings", "object"]),
    "a type": (TypeError, {"embeddings": np.ndarray}, ["embeddings", "the type ndarray"]),
    "a broken array": (TypeError, {"embeddings": [Broken()]}, ["embeddings[0]", "Broken", "not today"]),
    "a recursive array": (ValueError, {"embeddings": Recursive()}, ["embeddings: expected at most 32 levels"]),
    "a recursive list": (ValueError, {"embeddings": itself()}, ["embeddings: expected at most 32 levels"]),
    "a vector": (ValueError, {"embeddings": [1, 2]}, ["embeddings: expected an array of rows"]),
    "ragged": (ValueError, {"embeddings": [[1, 2], [3]]}, ["embeddings[1]: expected 2 numbers"]),
    "nan": (ValueError, {"embeddings": [[np.nan]]}, ["embeddings[0][0]: expected a finite number, got nan"]),
    "infinity": (
        ValueError,
        {"embeddings": np.array([[1, np.inf]])},
        ["embeddings[0][1]: expected a finite number, got inf"],
    ),
    "masked": (TypeError, {"embeddings": np.ma.masked_less(WORDS, 0)}, ["embeddings", "masked", "MaskedArray"]),
    "rows of weights": (
        ValueError,
        {"embeddings": WORDS, "w_query": np.eye(2), "w_key": EYE, "w_value": EYE},
        ["w_query: expected 3 rows, one per column of embeddings [4, 3], got [2, 2]"],
    ),
    "a number of weights": (
        ValueError,
        {"embeddings": WORDS, "w_query": EYE, "w_key": [[1], [2], ["x"]], "w_value": EYE},
        ["w_key[2][0]: expected a number"],
    ),
    "one weight": (TypeError, {"embeddings": WORDS, "w_key": EYE}, ["w_query: expected weights", "w_key", "None"]),
    "weights twice": (
        TypeError,
        {"embeddings": WORDS, "w_query": EYE, "w_key": EYE, "w_value": EYE, "projections": "random"},
        ["projections: expected None beside w_query"],
    ),
    "no weights": (ValueError, {"embeddings": WORDS, "projections": "all"}, ["projections", "all"]),
    "words": (ValueError, {"embeddings": WORDS, "tokens": ["a"]}, ["embeddings: expected 1 rows, one per token"]),
    "a surrogate": (ValueError, {"embeddings": [[1]], "tokens": ["\ud800"]}, ["tokens[0]: expected text", r"\ud800"]),
    "a surrogate as focus": (ValueError, {"embeddings": [[1]], "focus": "\ud800"}, ["focus: expected text"]),
    "a surrogate in a sentence": (ValueError, {"scene": "a \ud800"}, ["text: expected text that UTF-8 can encode"]),
    "a text for tokens": (ValueError, {"embeddings": WORDS, "tokens": "a b c d"}, ["tokens", "a b c d"]),
    "a text and tokens": (ValueError, {"embeddings": WORDS, "tokens": NAMES, "text": "a b"}, ["tokens", "text"]),
    "scale": (ValueError, {"embeddings": WORDS, "scale": "big"}, ["scale: expected", "big"]),
    "scale's kind": (ValueError, {"embeddings": WORDS, "scale": [1]}, ["scale: expected"]),
    "mask": (ValueError, {"embeddings": WORDS, "mask": "casual"}, ["mask", "casual", "causal"]),
    "mask of numbers": (
        ValueError,
        {"embeddings": WORDS, "mask": np.tri(4)},
        ["mask: expected true or false, got 1.0"],
    ),
    "mask's shape": (ValueError, {"embeddings": WORDS, "mask": np.tri(3) > 0}, ["mask", "[3, 3]"]),
    "mask of documents": (ValueError, {"embeddings": WORDS, "mask": fovea.documents([1])}, ["documents", "[4]", "[1]"]),
    "documents inside": (
        ValueError,
        {"embeddings": WORDS, "mask": {"all": [fovea.documents([1])]}},
        ["mask: expected rules without arrays", "documents"],
    ),
    "normalizations": (ValueError, {"embeddings": WORDS, "normalizations": "max"}, ["normalizations[0]", "max"]),
    "heads": (ValueError, {"embeddings": WORDS, "heads": 2}, ["heads", "3"]),
    "heads' kind": (ValueError, {"embeddings": WORDS, "heads": "two"}, ["heads", "two"]),
    "dim": (TypeError, {"embeddings": WORDS, "dim": 2}, ["dim: expected with random"]),
    "dim's kind": (TypeError, {"text": "a b", "scale": 1, "dim": 2.5}, ["dim: expected an integer, got float"]),
    "seed": (ValueError, {"text": "a b", "scale": 1, "seed": -1}, ["seed", "-1"]),
    "a word": (ValueError, {"embeddings": WORDS, "focus": "word_5"}, ["word_5", "word_4"]),
    "a position": (ValueError, {"embeddings": WORDS, "focus": 4}, ["focus: expected", "from -4 to 3", "4"]),
    "a position of a sentence": (ValueError, {"scene": "a b", "focus": 2}, ["focus: expected a position from -2 to 1"]),
    "a float": (TypeError, {"scene": "a b", "focus": 1.5}, ["focus: expected a word, a position", "float"]),
    "True": (TypeError, {"scene": "a b", "focus": True}, ["focus: expected a word, a position", "bool"]),
    "a vector as focus": (TypeError, {"scene": "a b", "focus": WORDS[0]}, ["focus: expected a word", "list"]),
    "an item": (ValueError, {"scene": "a b", "focus": [1, 0]}, ["focus: expected an item from -1 to 0, got 1"]),
    "a float of a scene": (ValueError, {"embeddings": WORDS, "focus": 1.5}, ["focus: expected a word", "1.5"]),
    "two of focus": (
        TypeError,
        {"embeddings": WORDS, "focus": 1, "query": "a"},
        ["query: expected an array beside focus"],
    ),
    "a query alone": (ValueError, {"query": WORDS}, ['expected "query", "key" and "value" together']),
    "a key alone": (ValueError, {"key": WORDS}, ['expected "query", "key" and "value" together']),
    "values": (ValueError, {"query": WORDS, "key": WORDS, "value": WORDS[1:]}, ["value: expected 4 rows", "[3, 3]"]),
    "columns": (ValueError, {"query": WORDS, "key": WORDS[:, 1:], "value": WORDS}, ["key: expected", "query [4, 3]"]),
    "heads of keys": (
        ValueError,
        {"query": np.ones((1, 4, 5, 2)), "key": np.ones((1, 3, 5, 2)), "value": np.ones((1, 3, 5, 2))},
        ["kv_heads: expected a divisor of heads = 4, got 3"],
    ),
    "heads of values": (
        ValueError,
        {"query": np.ones((1, 4, 5, 2)), "key": np.ones((1, 2, 5, 2)), "value": np.ones((1, 4, 5, 2))},
        ["value: expected kv_heads = 2 heads, got [1, 4, 5, 2]"],
    ),
    "no words": (ValueError, {"scale": 1}, ["tokens", "text"]),
    "two sentences": (TypeError, {"scene": "a b", "tokens": ["a"]}, ["scene: expected None beside tokens or text"]),
    "with a scene": (
        TypeError,
        {"scene": {"text": "a"}, "scale": 1},
        ["scale: expected with a sentence or arrays only"],
    ),
    "with a file": (
        TypeError,
        {"scene": pathlib.Path("a"), "embeddings": WORDS},
        ["embeddings: expected with a sentence"],
    ),
    "a list as scene": (TypeError, {"scene": [1]}, ["scene: expected a sentence", "arrays by name", "list"]),
    "keys of a scene": (TypeError, {"scene": {"score": {1: 2}}}, ["score: expected keys of type str, got int"]),
}


@pytest.mark.parametrize(("kind", "arguments", "parts"), REFUSED.values(), ids=REFUSED)
def test_refused(kind, arguments, parts):
    with raises(kind, *parts):
        fovea.explain(**arguments)
