# SPDX-License-Identifier: Apache-2.0
"""The variables of five lessons about attention go into fovea.explain as they are, and every array that a lesson prints
comes out of the trace, to the printed digits.

The cells are those of the notebooks that the scenes 000 to 004 are about, without prints and magics. Libraries that are
not installed have stand-ins with the functions that the cells call.
"""

import ast
import importlib.util
import re
import sys
import types

import numpy as np
import pytest

import fovea

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def assert_printed(found, text, digits=8, units=0.5):
    """Asserts that `found` has the shape and the numbers of a printed array: integers exactly, others within `units`
    units of the last of `digits` decimals (of the mantissa, if printed with an exponent)."""
    values = np.array(ast.literal_eval(re.sub(r"(?<=[\d.\]])\s+(?=[-\d\[])", ", ", text.strip())))
    found = np.asarray(found)
    assert found.shape == values.shape
    for number, value in zip(NUMBER.findall(text), found.ravel(), strict=True):
        exponent = int(number.partition("e")[2] or 0)
        allowed = units * 10.0 ** (exponent - digits) * (1 + 1e-6) if "." in number else 0.0
        assert abs(float(value) - float(number)) <= allowed, f"{number}: {value!r}"


def run(cells, lines, names=None):
    """Runs cells of a notebook, then the lines that are added to it. Returns all variables."""
    assert lines.strip().count("\n") < 5
    names = {"fovea": fovea} if names is None else names
    exec(cells, names)
    exec(lines, names)
    return names


def softmax(x, axis=None):
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@pytest.fixture(autouse=True)
def scipy(monkeypatch):
    if importlib.util.find_spec("scipy") is None:
        monkeypatch.setitem(sys.modules, "scipy", types.ModuleType("scipy"))
        monkeypatch.setitem(sys.modules, "scipy.special", types.SimpleNamespace(softmax=softmax))


IMPORTS_000 = """
import numpy as np
from scipy.special import softmax

# encoder representations of four different words
word_1 = np.array([1, 0, 0])
word_2 = np.array([0, 1, 0])
word_3 = np.array([1, 1, 0])
word_4 = np.array([0, 0, 1])

# generating the weight matrices
np.random.seed(42)
"""
CELLS_000 = """
W_Q = np.random.randint(3, size=(3,3))
W_K = np.random.randint(3, size=(3,3))
W_V = np.random.randint(3, size=(3,3))

# generating the queries, keys and values
query_1 = word_1 @ W_Q
key_1 = word_1 @ W_K
value_1 = word_1 @ W_V

query_2 = word_2 @ W_Q
key_2 = word_2 @ W_K
value_2 = word_2 @ W_V

query_3 = word_3 @ W_Q
key_3 = word_3 @ W_K
value_3 = word_3 @ W_V

query_4 = word_4 @ W_Q
key_4 = word_4 @ W_K
value_4 = word_4 @ W_V

scores = np.array([np.dot(query_1, key_1), np.dot(query_1, key_2), np.dot(query_1, key_3), np.dot(query_1, key_4)])
weights = softmax(scores / key_1.shape[0] ** 0.5)

# computing the attention by a weighted sum of the value vectors
attention = (weights[0] * value_1) + (weights[1] * value_2) + (weights[2] * value_3) + (weights[3] * value_4)

# stacking the word embeddings into a single array
words = np.array([word_1, word_2, word_3, word_4])

# generating the queries, keys and values
Q = words @ W_Q
K = words @ W_K
V = words @ W_V
"""


def test_000():
    # The cell that draws was run several times, with other limits. The stream of its seed has what it printed after 72
    # words, and then the weights of all later results.
    names = run(IMPORTS_000, "np.random.bytes(4 * 72)")
    run(
        CELLS_000.replace("randint(3", "randint(9", 1),
        "words = [word_1, word_2, word_3, word_4]\n"
        "printed = fovea.explain(embeddings=words, w_query=W_Q, w_key=W_K, w_value=W_V)",
        names,
    )
    assert_printed(names["printed"]["query_weights"], "[[8, 4, 1], [3, 6, 7], [2, 0, 3]]")
    assert_printed(names["printed"]["key_weights"], "[[1, 1, 1], [1, 1, 1], [1, 0, 2]]")
    assert_printed(names["printed"]["value_weights"], "[[1, 1, 1], [1, 1, 1], [2, 2, 1]]")

    run(
        CELLS_000,
        "trace = fovea.explain(embeddings=words, w_query=W_Q, w_key=W_K, w_value=W_V)\n"
        "direct = fovea.explain(query=Q, key=K, value=V)",
        names,
    )
    for trace in (names["trace"], names["direct"]):
        assert trace["tokens"] == ["word_1", "word_2", "word_3", "word_4"]
        assert_printed(trace["focus.scores"], "[0, 0, 0, 2]")
        assert_printed(trace["focus.weights"], "[0.16199, 0.16199, 0.16199, 0.51402]", digits=5)
        assert_printed(trace["focus.context"], "[1.67601, 1.67601, 0.64798]", digits=5)
        assert_printed(trace["context"][0], "[1.67601, 1.67601, 0.64798]", digits=5)
        assert_printed(
            trace["context"],
            """[[1.67601, 1.67601, 0.64798],
                [1.67601, 1.67601, 0.64798],
                [1.84696, 1.84696, 0.30608],
                [1.67601, 1.67601, 0.64798]]""",
            digits=5,
        )


CELLS_001 = """
import torch

# Just for illustration, let's use small embedding dimension (3-dimensional vector)
inputs = torch.tensor(
    [[0.43,0.15,0.89], # Your (x^1)
     [0.55,0.87,0.66], # journey (x^2)
     [0.57,0.85,0.64], # starts (x^3)
     [0.22,0.58,0.33], # with (x^4)
     [0.77,0.25,0.10], # one (x^6)
     [0.05,0.80,0.55]] # step (x^7)
    )

# let's get context for 'journey' which in second input in inputs tensor.
query = inputs[1]
attention_scores_2 = torch.empty(inputs.shape[0])

for i, x_i in enumerate(inputs):
  attention_scores_2[i] = torch.dot(x_i, query)
"""


@pytest.mark.parametrize("library", ["torch", "stand-in"])
@pytest.mark.parametrize("gradients", [False, True])
def test_001(library, gradients, monkeypatch):
    if library == "torch":
        pytest.importorskip("torch", exc_type=ImportError)
    else:
        stand_in = types.SimpleNamespace(
            tensor=lambda values: Tensor(np.array(values, np.float32)),
            empty=lambda length: np.empty(length, np.float32),
            dot=lambda a, b: np.dot(a, b),
        )
        monkeypatch.setitem(sys.modules, "torch", stand_in)
    trace = run(
        CELLS_001,
        ("inputs = inputs.requires_grad_()\n" if gradients else "")
        + 'steps = ["sum", "naive", "softmax"]\n'
        + 'sentence = "Your journey starts with one step"\n'
        + "trace = fovea.explain(sentence, embeddings=inputs, scale=1, focus=1, normalizations=steps)",
    )["trace"]
    assert trace["weights"].dtype == np.float32
    printed = {
        "focus.scores": "[0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865]",
        "focus.weights[sum]": "[0.1455, 0.2278, 0.2249, 0.1285, 0.1077, 0.1656]",
        "focus.row_sums[sum]": "1.0000",
        "focus.weights[naive]": "[0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581]",
        "focus.row_sums[naive]": "1.",
        "focus.weights": "[0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581]",
        "focus.row_sums": "1.",
        "focus.context": "[0.4419, 0.6515, 0.5683]",
        "scores": """
            [[0.9995, 0.9544, 0.9422, 0.4753, 0.4576, 0.6310],
             [0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865],
             [0.9422, 1.4754, 1.4570, 0.8296, 0.7154, 1.0605],
             [0.4753, 0.8434, 0.8296, 0.4937, 0.3474, 0.6565],
             [0.4576, 0.7070, 0.7154, 0.3474, 0.6654, 0.2935],
             [0.6310, 1.0865, 1.0605, 0.6565, 0.2935, 0.9450]]""",
        "weights": """
            [[0.2098, 0.2006, 0.1981, 0.1242, 0.1220, 0.1452],
             [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581],
             [0.1390, 0.2369, 0.2326, 0.1242, 0.1108, 0.1565],
             [0.1435, 0.2074, 0.2046, 0.1462, 0.1263, 0.1720],
             [0.1526, 0.1958, 0.1975, 0.1367, 0.1879, 0.1295],
             [0.1385, 0.2184, 0.2128, 0.1420, 0.0988, 0.1896]]""",
        "context": """
            [[0.4421, 0.5931, 0.5790],
             [0.4419, 0.6515, 0.5683],
             [0.4431, 0.6496, 0.5671],
             [0.4304, 0.6298, 0.5510],
             [0.4671, 0.5910, 0.5266],
             [0.4177, 0.6503, 0.5645]]""",
    }
    for name, text in printed.items():
        assert_printed(trace[name], text, digits=4)


class Tensor:
    """Stands in for the tensors of torch and TensorFlow: converts by __array__() only, as TensorFlow's, and not at all
    if it requires gradients, as torch's, which then have tolist() only."""

    def __init__(self, array):
        self.array, self.dtype, self.shape = np.asarray(array), np.asarray(array).dtype, np.shape(array)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype)

    def __getitem__(self, index):
        return Tensor(self.array[index])

    def __iter__(self):
        return map(Tensor, self.array)

    def __add__(self, other):
        return Tensor(self.array + np.asarray(other))

    def __mul__(self, other):
        return Tensor(self.array * np.asarray(other))

    def __truediv__(self, other):
        return Tensor(self.array / np.asarray(other))

    def __matmul__(self, other):
        return Tensor(self.array @ np.asarray(other))

    def requires_grad_(self):
        return Differentiable(self.array)


class Differentiable(Tensor):
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")

    def tolist(self):
        return self.array.tolist()


def tensorflow(drawn):
    """Stands in for TensorFlow, whose random numbers without a seed are `drawn`, in turn."""
    return types.SimpleNamespace(
        int32=np.int32,
        float32=np.float32,
        constant=lambda values: Tensor(np.array(values, np.int32)),
        stack=lambda tensors, axis=0: Tensor(np.stack(list(map(np.asarray, tensors)), axis)),
        squeeze=lambda tensor: Tensor(np.squeeze(tensor.array)),
        cast=lambda tensor, dtype: Tensor(np.asarray(tensor).astype(dtype)),
        shape=lambda tensor: Tensor(np.array(tensor.shape, np.int32)),
        matmul=lambda a, b, transpose_b=False: Tensor(a.array @ (b.array.T if transpose_b else b.array)),
        random=types.SimpleNamespace(uniform=lambda **_: Tensor(np.array(next(drawn), np.int32))),
        nn=types.SimpleNamespace(softmax=lambda tensor: Tensor(softmax(tensor.array, axis=-1))),
        math=types.SimpleNamespace(sqrt=lambda tensor: Tensor(np.sqrt(tensor.array))),
    )


CELLS_002 = """
import numpy as np
import tensorflow as tf

word_1 = tf.constant([[0, 1, 1, 2]])
word_2 = tf.constant([[1, 0, 0, 2]])
word_3 = tf.constant([[1, 1, 0, 2]])
word_4 = tf.constant([[2, 1, 1, 1]])

word_emb_stack = tf.stack([word_1, word_2, word_3, word_4], axis = 1)

shape = (4, 4)

W_Q = tf.random.uniform(shape = shape, minval = 0, maxval = 3, dtype = tf.int32)
W_K = tf.random.uniform(shape = shape, minval = 0, maxval = 3, dtype = tf.int32)
W_V = tf.random.uniform(shape = shape, minval = 0, maxval = 3, dtype = tf.int32)
"""
MORE_CELLS_002 = """
# generating the queries, keys and values
query_1 = tf.matmul(word_1, W_Q)
key_1 = tf.matmul(word_1, W_K)
value_1 = tf.matmul(word_1, W_V)

word_emb_stack = tf.squeeze(word_emb_stack)

Query = word_emb_stack @ W_Q
Key = word_emb_stack @ W_K
Value = word_emb_stack @ W_V
"""
DRAWN_002 = {
    "query_weights": "[[1, 1, 0, 0], [0, 0, 2, 2], [1, 2, 2, 2], [0, 0, 2, 2]]",
    "key_weights": "[[1, 1, 0, 2], [1, 1, 2, 0], [2, 1, 0, 2], [0, 0, 0, 1]]",
    "value_weights": "[[1, 2, 1, 1], [1, 2, 0, 1], [0, 0, 2, 0], [2, 1, 1, 2]]",
}


def test_002(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow(map(ast.literal_eval, DRAWN_002.values())))
    names = run(
        CELLS_002,
        "batch = fovea.explain(embeddings=word_emb_stack, w_query=W_Q, w_key=W_K, w_value=W_V, dtype=tf.float32)",
    )
    run(
        MORE_CELLS_002,
        "trace = fovea.explain(embeddings=word_emb_stack, w_query=W_Q, w_key=W_K, w_value=W_V, dtype=tf.float32)\n"
        "direct = fovea.explain(query=Query, key=Key, value=Value, dtype=tf.float32)\n"
        "one = fovea.explain(query=query_1, key=Key, value=Value, dtype=tf.float32)",
        names,
    )
    batch, trace, direct, one = (names[name] for name in ("batch", "trace", "direct", "one"))
    words = "[[0, 1, 1, 2], [1, 0, 0, 2], [1, 1, 0, 2], [2, 1, 1, 1]]"
    assert_printed(batch["embeddings"], f"[{words}]")
    assert_printed(trace["embeddings"], words)
    for name, text in DRAWN_002.items():
        assert_printed(trace[name], text)
    assert_printed(batch["query"][:, 0], "[[1, 2, 8, 8]]")
    assert_printed(batch["key"][:, 0], "[[3, 2, 2, 4]]")
    assert_printed(batch["value"][:, 0], "[[5, 4, 4, 5]]")
    assert_printed(one["query"], "[[1, 2, 8, 8]]")

    # TensorFlow computes exp() of several float32 numbers at once, not always rounded to the nearest, and prints the
    # third weight of the first word in two ways. So one digit less than printed of the weights; and one unit of the
    # last digit of the contexts, since neighbouring float32 numbers are 4.8e-7 apart there.
    weights = "[3.0590218e-07, 1.3887937e-11, 1.8553905e-07, 9.9999952e-01]"
    context = "[[5.0000005, 6.999999, 4.9999995, 5.0000005]]"
    for found in (batch, trace, direct, one):
        assert found["weights"].dtype == np.float32
        assert_printed(found["focus.scores"], "[55, 35, 54, 85]")
        assert_printed(found["focus.weights"], weights, digits=6)
        assert_printed(found["focus.context"][None], context, digits=7, units=1)
    assert_printed(one["scores"], "[[55, 35, 54, 85]]")
    assert_printed(one["context"], context, digits=7, units=1)
    for found in (trace, direct):
        assert_printed(found["query"], "[[1, 2, 8, 8], [1, 1, 4, 4], [1, 1, 6, 6], [3, 4, 6, 6]]")
        assert_printed(found["key"], "[[3, 2, 2, 4], [1, 1, 0, 4], [2, 2, 2, 4], [5, 4, 2, 7]]")
        assert_printed(found["value"], "[[5, 4, 4, 5], [5, 4, 3, 5], [6, 6, 3, 6], [5, 7, 5, 5]]")
        assert_printed(found["scores"], "[[55, 35, 54, 85], [29, 18, 28, 45], [41, 26, 40, 63], [53, 31, 50, 85]]")
        assert_printed(
            found["weights"],
            """[[3.0590218e-07, 1.3887937e-11, 1.8553907e-07, 9.9999952e-01],
                [3.3528148e-04, 1.3702189e-06, 2.0335850e-04, 9.9946004e-01],
                [1.6701253e-05, 9.2372021e-09, 1.0129822e-05, 9.9997318e-01],
                [1.1253516e-07, 1.8795284e-12, 2.5109987e-08, 9.9999988e-01]]""",
            digits=6,
        )
        assert_printed(
            found["context"],
            """[[5.0000005, 6.999999 , 4.9999995, 5.0000005],
                [5.0002036, 6.998787 , 4.9992557, 5.0002036],
                [5.0000105, 6.99994  , 4.9999633, 5.0000105],
                [5.       , 6.9999995, 5.       , 5.       ]]""",
            digits=7,
            units=1,
        )


CELLS_003 = """
import numpy as np
#import matplotlib.pyplot as plt

# how many tokens?
ntokens=4

# dimensionality of embedding space
dim=3

tokens=np.random.randint(0, 100, size=ntokens, dtype=int)

# Generate a matrix of size n x m with values between 0 and 1
input = np.random.rand(ntokens, dim)

qIndex=1

q=input[qIndex,:]

score=np.empty(ntokens)

for i in range(ntokens):
    # `x` is a vector
    x=input[i,:]

    score[i]=x @ q
"""
LINES_003 = 'trace = fovea.explain(tokens=tokens, embeddings=input, scale=1, focus=qIndex, normalizations="naive")'
# The notebook has no seed. These numbers are printed as those of the notebook, and chosen among all such numbers so
# that its other printed numbers, which come from all digits, come out as well.
DRAWN_003 = [
    [0.8637949943732159, 0.930427476668807, 0.8214965810815702],
    [0.11288871855026261, 0.23407152562678413, 0.2618596901294299],
    [0.7945145334783329, 0.636262617943792, 0.3941565443732158],
    [0.5924805625272268, 0.7013516696541331, 0.5183087343732159],
]


def test_003(monkeypatch):
    monkeypatch.setattr(np.random, "randint", lambda *_, **__: np.array([72, 3, 64, 69]))
    monkeypatch.setattr(np.random, "rand", lambda *_: np.array(DRAWN_003))
    names = run(CELLS_003, LINES_003 + "\none = fovea.explain(query=q, key=input, value=input, scale=1)")
    trace, one = names["trace"], names["one"]
    assert_printed(trace["tokens"], "[72,  3, 64, 69]")
    assert_printed(
        trace["embeddings"],
        """[[0.86379499, 0.93042748, 0.82149658],
            [0.11288872, 0.23407153, 0.26185969],
            [0.79451453, 0.63626262, 0.39415654],
            [0.59248056, 0.70135167, 0.51830873]]""",
    )
    for found in (trace, one):
        assert_printed(found["focus.scores"], "[0.53041613, 0.13610384, 0.3418364 , 0.36677499]")
        assert_printed(found["focus.weights"], "[0.29838948, 0.20115732, 0.24710661, 0.25334659]")
        assert_printed(found["focus.weights"][0], "0.29838947615945444", digits=17, units=6)  # an ulp is 5.6e-17
        assert_printed(found["focus.context"], "[0.62688845, 0.65962472, 0.52651137]")
    assert_printed(
        trace["scores"],
        """[[2.28669371, 0.53041613, 1.60209215, 1.59012746],
            [0.53041613, 0.13610384, 0.3418364 , 0.36677499],
            [1.60209215, 0.3418364 , 1.19144284, 1.12127305],
            [1.59012746, 0.36677499, 1.12127305, 1.11157133]]""",
    )
    assert_printed(
        trace["weights"],
        """[[0.45971284, 0.07938619, 0.2318291 , 0.22907187],
            [0.29838948, 0.20115732, 0.24710661, 0.25334659],
            [0.38985174, 0.11055474, 0.25855726, 0.24103626],
            [0.39375687, 0.11585984, 0.24638103, 0.24400226]]""",
    )
    assert_printed(
        trace["context"],
        """[[0.72597167, 0.75447563, 0.60854748],
            [0.62688845, 0.65962472, 0.52651137],
            [0.69746917, 0.72216799, 0.57605494],
            [0.69352439, 0.72137613, 0.57739014]]""",
    )


def test_003_with_a_seed():
    """The stream of a seed gives the notebook's tokens and embeddings without its variables."""
    np.random.seed(7)
    trace = run(CELLS_003, LINES_003)["trace"]
    drawn = fovea.explain(
        tokens={"draw": "randint", "low": 0, "high": 100, "count": 4},
        embeddings={"draw": "rand", "dim": 3},
        seed=7,
        scale=1,
        focus=1,
        normalizations="naive",
    )
    for name in trace:
        assert np.array_equal(trace[name], drawn[name]), name


CELLS_004 = """
# importing required functions
from numpy import array  # for creating and handling arrays
from numpy import random  # for generating random numbers
from scipy.special import softmax  # for applying the softmax function

# manually defining word embeddings for four words
word_1 = array([1, 0, 0])
word_2 = array([0, 1, 0])
word_3 = array([1, 1, 0])
word_4 = array([0, 0, 1])

# stacking all word embeddings into one array
words = array([word_1, word_2, word_3, word_4])

# setting a seed for reproducibility
random.seed(42)

# defining weight matrices for query, key, and value
W_Q = random.randint(3, size=(3, 3))  # query weights
W_K = random.randint(3, size=(3, 3))  # key weights
W_V = random.randint(3, size=(3, 3))  # value weights

# computing query, key, and value matrices
Q = words @ W_Q  # query
K = words @ W_K  # key
V = words @ W_V  # value
"""


def test_004():
    names = run(
        CELLS_004,
        "trace = fovea.explain(embeddings=words, w_query=W_Q, w_key=W_K, w_value=W_V)\n"
        "direct = fovea.explain(query=Q, key=K, value=V)\n"
        'any_of_three = {"draw": "randint", "high": 3}\n'
        "drawn = fovea.explain(embeddings=words, projections=any_of_three, seed=42)",
    )
    for trace in (names["trace"], names["drawn"]):
        assert_printed(trace["embeddings"], "[[1 0 0]\n [0 1 0]\n [1 1 0]\n [0 0 1]]")
        assert_printed(trace["query_weights"], "[[2 0 2]\n [2 0 0]\n [2 1 2]]")
        assert_printed(trace["key_weights"], "[[2 2 2]\n [0 2 1]\n [0 1 1]]")
        assert_printed(trace["value_weights"], "[[1 1 0]\n [0 1 1]\n [0 0 0]]")
    for trace in (names["trace"], names["direct"], names["drawn"]):
        assert_printed(trace["query"], "[[2 0 2]\n [2 0 0]\n [4 0 2]\n [2 1 2]]")
        assert_printed(trace["key"], "[[2 2 2]\n [0 2 1]\n [2 4 3]\n [0 1 1]]")
        assert_printed(trace["value"], "[[1 1 0]\n [0 1 1]\n [1 2 1]\n [0 0 0]]")
        assert_printed(trace["scores"], "[[8 2 10 2]\n [ 4 0 4 0]\n [12 2 14 2]\n [10 4 14 3]]")
        assert_printed(
            trace["weights"],
            """[[2.36089863e-01 7.38987555e-03 7.49130386e-01 7.38987555e-03]
                [4.54826323e-01 4.51736775e-02 4.54826323e-01 4.51736775e-02]
                [2.39275049e-01 7.43870015e-04 7.59237211e-01 7.43870015e-04]
                [8.99501754e-02 2.81554063e-03 9.05653685e-01 1.58059922e-03]]""",
        )
        assert_printed(
            trace["context"],
            """[[0.98522025 1.74174051 0.75652026]
                [0.90965265 1.40965265 0.5       ]
                [0.99851226 1.75849334 0.75998108]
                [0.99560386 1.90407309 0.90846923]]""",
        )


def test_004_in_another_order():
    """`order` draws the key weights first, as a notebook may."""
    cells = CELLS_004.replace("W_Q = random", "W_X = random").replace("W_K = random", "W_Q = random")
    names = run(
        cells.replace("W_X = random", "W_K = random"),
        'any_of_three, order = {"draw": "randint", "high": 3}, ["W_K", "W_Q", "W_V"]\n'
        "trace = fovea.explain(embeddings=words, projections=any_of_three, seed=42, order=order)",
    )
    for name, step in (("W_K", "key_weights"), ("W_Q", "query_weights"), ("W_V", "value_weights"), ("Q", "query")):
        assert np.array_equal(names["trace"][step], names[name])
    assert_printed(names["W_K"], "[[2 0 2]\n [2 0 0]\n [2 1 2]]")


def test_assert_printed():
    assert_printed([[0.12344999, 2e-7]], "[[0.12345, 2.0e-07]]", digits=5)
    for found, text in (([0.123456], "[0.12345]"), ([1.0001], "[1]"), ([[1.0]], "[1]"), ([1.0, 2.0], "[1]")):
        with pytest.raises(AssertionError):
            assert_printed(found, text, digits=5)
