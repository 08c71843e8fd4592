# SPDX-License-Identifier: Apache-2.0
"""The page's own computation of a scene (compute.js), its number formats (format.js), and the scenes and programs that
it writes (scene.js), against `fovea explain`: for the example scenes, and for random scenes with all options."""

import html
import json
import math
import random
import re
import warnings

import browser as pages
import numpy
import pytest

SCRIPTS = [pages.ROOT / "src/scene/html/page" / f"{name}.js" for name in ("compute", "format", "scene")]
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
# What a test asks of the scripts: the steps of a scene, each with its format and texts.
ASK = """(text) => {
  const {author, read} = JSON.parse(text), scene = literalScene(author, (name) => read[name]);
  const computed = computeScene(scene), precision = author.precision ?? 4;
  const plain = (x) => Number.isFinite(x) ? x : special(x);
  const steps = computed.steps.map(({name, shape, dims, values, others}) => {
    const format = stepFormat(baseName(name), values, precision, author.dtype === "float32", others);
    const texts = [...values].map((x) => show(format, x));
    return {name, shape, dims, values: [...values].map(plain), texts, ...format};
  });
  const mask = computed.mask ? computed.mask.text : null;
  return JSON.stringify({steps, mask, scale: computed.scale, visible: [...computed.visible],
    scene: sceneText(scene), program: numpyProgram(scene, computed, precision)});
}"""

# Ten random edits of a scene; then the edit must survive an address, and the scene to take away must have its numbers.
EDIT = """(text) => {
  const {author, read, draws} = JSON.parse(text), original = literalScene(author, (name) => read[name]);
  const edit = startEdit(original), {scene} = edit, kinds = Object.values(inputsOf(scene));
  const next = (most) => Math.floor(draws.pop() * most);
  for (let i = 0; i < 10; ++i) {
    const kind = next(8), words = wordsOf(scene), fixed = wordsFixedBy(scene);
    if (kind === 0) setScale(scene, draws.pop());
    else if (kind === 1) setCausal(scene, !isCausal(scene));
    else if (kind === 2 && !fixed) addWord(edit, asToken(scene, typeof words[0] === "string" ? `new ${i}` : `${i}`), 4);
    else if (kind === 3 && !fixed && words.length > 1) removeWord(edit, next(words.length));
    else {
      const rows = inputRows(scene, kinds[next(kinds.length)]), row = rows[next(rows.length)];
      row[next(row.length)] = draws.pop() * 4 - 2;
    }
  }
  const code = encodeEdit(original, edit), again = decodeEdit(original, code).scene;
  const steps = (one) => computeScene(one).steps.map(({name, shape, values}) =>
    ({name, shape, values: [...values].map((x) => Number.isFinite(x) ? x : special(x))}));
  const same = JSON.stringify([wordsOf(again), steps(again)]) === JSON.stringify([wordsOf(scene), steps(scene)]);
  return JSON.stringify({code, same, untouched: encodeEdit(original, startEdit(original)),
    copied: sceneText(takeAway(original, edit, 0, 0, true)), steps: steps(scene)});
}"""


@pytest.fixture(scope="module")
def ask(chromium):
    """Returns a function that computes a scene in the browser."""
    page = chromium.new_page()
    for name, body in {"ask": ASK, "edit": EDIT}.items():
        page.evaluate("([name, text]) => { window[name] = new Function(text)(); }", [name, f"{SOURCE}\nreturn {body}"])

    def answer(author, explained):
        read = {step["name"]: step["values"] for step in explained["steps"]}
        return json.loads(page.evaluate("(text) => ask(text)", json.dumps({"author": author, "read": read})))

    answer.page = page
    yield answer
    page.close()


def explained(scene, *options):
    return json.loads(pages.explain("-", "--format", "json", *options, text=json.dumps(scene)))


def flat(nested):
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [number(nested)]


def number(x):
    return float(x.replace("-inf", "-Infinity")) if isinstance(x, str) else x


def is_dot(scene):
    score = scene.get("score", "dot")
    return score == "dot" or score.get("kind", "dot") == "dot"


def example(path):
    return json.loads(path.read_text(encoding="utf-8"))


EXAMPLES = {path.stem: path for path in sorted(pages.SCENES.glob("*.json")) if is_dot(example(path))}


def numbers(generator, *shape, digits=3):
    if len(shape) == 1:
        return [round(generator.gauss(0, 1), digits) for _ in range(shape[0])]
    return [numbers(generator, *shape[1:], digits=digits) for _ in range(shape[0])]


def random_mask(generator, batch, queries, keys, depth=0):
    rules = {}
    if generator.random() < 0.4:
        rules["causal"] = generator.random() < 0.8
    if generator.random() < 0.2:
        rules["prefix"] = generator.randint(0, keys)
    if generator.random() < 0.3:
        rules["window"] = [generator.randint(-1, 3), generator.randint(-1, 3)]
    if generator.random() < 0.3:
        count = generator.choice([1, batch])
        rules["key_lengths"] = [generator.randint(0, keys) for _ in range(count)]
        if generator.random() < 0.3:
            rules["key_lengths"] = rules["key_lengths"][0]
    if generator.random() < 0.2:
        ids = {"query": queries, "key": keys}
        rules["documents"] = {name: [generator.randint(0, 1) for _ in range(size)] for name, size in ids.items()}
        if generator.random() < 0.3:
            rules["documents"]["key"] = [[generator.randint(0, 1) for _ in range(keys)] for _ in range(batch)]
    if generator.random() < 0.2:
        rows = generator.choice([1, queries])
        rules["dense"] = [[generator.random() < 0.7 for _ in range(keys)] for _ in range(rows)]
    if depth < 2:
        for name in ("all", "any"):
            if generator.random() < 0.2:
                rules[name] = [
                    random_mask(generator, batch, queries, keys, depth + 1) for _ in range(generator.randint(1, 3))
                ]
    return rules or generator.choice(["none", "causal"])


def random_scene(seed):
    """Returns a scene with a random choice of all options of the dot score."""
    generator = random.Random(seed)
    some = lambda share: generator.random() < share  # noqa: E731
    kv_heads = generator.choice([1, 1, 1, 2])
    heads = kv_heads * generator.choice([1, 1, 2, 3])
    batch = generator.choice([1, 1, 1, 2])
    queries, keys = generator.randint(1, 7), generator.randint(1, 7)
    dim, crossed = heads * kv_heads * generator.randint(1, 3), some(0.3)
    keys = keys if crossed else queries
    batched = batch > 1 or some(0.2)
    digits = generator.choice([0, 1, 3, 16])

    def tokens(count):
        items = [[f"w{generator.randint(0, 99)}" for _ in range(count)] for _ in range(batch)]
        return items if batched else items[0]

    def embeddings(count):
        if some(0.3):
            return {"draw": "randn", "dim": dim}
        items = numbers(generator, batch, count, dim, digits=digits)
        return items if batched else items[0]

    direct = some(0.2)
    scene = {"seed": seed, "tokens": tokens(queries)}
    if crossed:
        scene["source"] = {"tokens": tokens(keys)}
    if heads > 1:
        scene |= {"heads": heads, "kv_heads": kv_heads}
    if direct:
        # Queries, keys and values in place of embeddings, each literal or drawn.
        head = generator.randint(1, 3)
        rows = {"query": queries, "key": keys, "value": keys}
        columns = {"query": heads * head, "key": kv_heads * head, "value": kv_heads * generator.randint(1, 3)}
        for name, count in columns.items():
            items = numbers(generator, batch, rows[name], count, digits=digits)
            scene[name] = {"draw": "rand", "dim": count} if some(0.3) else items if batched else items[0]
    else:
        scene["embeddings"] = embeddings(queries)
        if crossed:
            scene["source"]["embeddings"] = embeddings(keys)
    if not direct and (some(0.6) or kv_heads < heads):
        head = generator.randint(1, 3)
        columns = {"query": heads * head, "key": kv_heads * head, "value": kv_heads * generator.randint(1, 3)}
        scene["projections"] = {name: numbers(generator, dim, count, digits=digits) for name, count in columns.items()}
        if some(0.2):
            scene["projections"]["key"] = {"draw": "rand", "dim": columns["key"]}
        if some(0.2):
            scene["projections"] = {"draw": "randint", "high": 3, "dim": heads * head}
    score = {"kind": "dot"}
    if some(0.5):
        score["scale"] = generator.choice([1, 0.5, -1.25, 300, 1e-6, "1/sqrt(head_dim)"])
    if some(0.3):
        score["softcap"] = generator.choice([0.5, 5])
    if some(0.3):
        shape = generator.choice([[queries, keys], [1, keys], [heads, queries, keys], [batch, 1, queries, 1]])
        score["bias"] = numbers(generator, *shape)
        if shape == [queries, keys] and some(0.5):
            score["bias"][0][0] = "-inf"
    if some(0.3):
        score["alibi"] = generator.choice([True, numbers(generator, heads)])
    if some(0.3):
        bidirectional = some(0.5)
        buckets = generator.choice([4, 6, 8])
        score["relative"] = {
            "table": numbers(generator, buckets, heads),
            "bidirectional": bidirectional,
            "max_distance": generator.choice([5, 128]),
        }
    kinds = ["softmax", "softmax_unshifted", "sum"]
    if some(0.3):
        score["sinks"] = numbers(generator, heads)
        kinds.pop()
    scene["score"] = score if len(score) > 1 else "dot"
    generator.shuffle(kinds)
    scene["normalizations"] = kinds[: generator.randint(1, len(kinds))]
    if some(0.6):
        scene["mask"] = random_mask(generator, batch, queries, keys)
    if some(0.3):
        scene["alignment"] = generator.choice(
            ["bottom-right", "top-left", generator.randint(-2, 3), [generator.randint(-2, 3) for _ in range(batch)]]
        )
    if some(0.2):
        scene["dtype"] = "float32"
    scene["precision"] = generator.choice([4, 4, 2, 0, 7])
    return scene


SCENES = {name: example(path) for name, path in EXAMPLES.items()}
SCENES |= {f"random_{seed}": random_scene(seed) for seed in range(40)}
# The numbers of a sink, which the steps do not have, change the formats of these.
SCENES |= {
    f"sink_{number}": {
        "tokens": ["a", "b"],
        "embeddings": embeddings,
        "score": {"scale": 1, "sinks": [sink]},
        "dtype": dtype,
        "normalizations": ["naive", "softmax"],
    }
    for number, (embeddings, sink, dtype) in enumerate(
        [
            ([[1, 0], [1, 1]], 0.5, "float64"),
            ([[0, 0], [0, 0]], -0.3, "float64"),
            ([[1], [2]], -1e308, "float64"),
            ([[1], [0.1]], 0.1, "float32"),
        ]
    )
}


def allowed(scene):
    """Returns the relative error of a number: exp and tanh may differ in the last bit, and errors of scores grow."""
    return 1e-5 if scene.get("dtype") == "float32" else 1e-12


def assert_close(ours, theirs, name, share):
    assert len(ours) == len(theirs), name
    largest = max((abs(x) for x in theirs if math.isfinite(x)), default=0)
    for x, y in zip(ours, theirs, strict=True):
        if math.isfinite(y):
            assert abs(x - y) <= share * max(largest, 1e-300), (name, x, y)
        else:
            assert (math.isnan(x) and math.isnan(y)) or x == y, (name, x, y)


@pytest.mark.parametrize("name", SCENES)
def test_steps_and_formats(ask, name):
    scene = SCENES[name]
    expected = explained(scene)
    answer = ask(scene, expected)
    wanted = [step for step in expected["steps"] if not re.search(r"^focus\.|tokens$", step["name"])]
    assert [step["name"] for step in answer["steps"]] == [step["name"] for step in wanted]
    for ours, theirs in zip(answer["steps"], wanted, strict=True):
        assert ours["shape"] == theirs["shape"], ours["name"]
        assert_close([number(x) for x in ours["values"]], flat(theirs["values"]), ours["name"], allowed(scene))


def cells(page, step):
    """Returns the texts of the cells in all tables of a step, row by row."""
    pattern = rf'<figure class="map[^"]*" data-step="{re.escape(step)}".*?</figure>'
    return [
        html.unescape(text)
        for figure in re.findall(pattern, page, re.S)
        for body in re.findall("<tbody>(.*?)</tbody>", figure, re.S)
        for kind, text in re.findall(r"<td([^>]*)>([^<]*)</td>", body)
        if 'class="sum"' not in kind
    ]


@pytest.mark.parametrize("name", SCENES)
def test_texts_of_cells(ask, name):
    scene = SCENES[name]
    page = pages.explain("-", "--format", "html", text=json.dumps(scene))
    expected = explained(scene)
    answer = ask(scene, expected)
    exact = {step["name"]: flat(step["values"]) for step in expected["steps"] if "tokens" not in step["name"]}
    hides = [visible == 0 for visible in answer["visible"]]
    for step in answer["steps"]:
        shown = cells(page, step["name"])
        if not shown:
            continue
        maskable = any(hides) and re.match(r"weights|masked_scores", step["name"]) and "_weights" not in step["name"]
        assert len(shown) == len(step["texts"]), step["name"]
        for i, (theirs, ours) in enumerate(zip(shown, step["texts"], strict=True)):
            # The last bit of exp and tanh can change the last digit shown.
            same = repr(number(step["values"][i])) == repr(exact[step["name"]][i])
            if same and not (maskable and hides[i]):
                assert ours == theirs, (step["name"], i)


@pytest.mark.parametrize("name", SCENES)
def test_literal_scene_and_numpy_program(ask, name):
    scene = SCENES[name]
    expected = explained(scene)
    answer = ask(scene, expected)
    literal = json.loads(answer["scene"])
    assert "seed" not in literal
    assert '"draw":' not in answer["scene"]
    assert explained(literal)["steps"] == expected["steps"]

    found = {}
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        exec(compile(answer["program"], "program", "exec"), found)
    steps = {step["name"]: flat(step["values"]) for step in expected["steps"] if "tokens" not in step["name"]}
    for name, step in {
        "scores": "scores",
        "weights": "weights",
        "context": "context",
        "merged": "merged_context",
    }.items():
        if name in found:
            assert_close(found[name].ravel().tolist(), steps[step], step, allowed(scene))


@pytest.mark.parametrize("name", SCENES)
def test_edited_scenes(ask, name):
    scene = SCENES[name]
    read = {step["name"]: step["values"] for step in explained(scene)["steps"]}
    generator = random.Random(name)
    draws = [generator.random() for _ in range(60)]
    text = json.dumps({"author": scene, "read": read, "draws": draws})
    answer = json.loads(ask.page.evaluate("(text) => edit(text)", text))
    assert answer["untouched"] == ""
    assert answer["same"], answer["code"]
    expected = explained(json.loads(answer["copied"]))
    wanted = [step for step in expected["steps"] if not re.search(r"^focus\.|tokens$", step["name"])]
    assert [step["name"] for step in answer["steps"]] == [step["name"] for step in wanted]
    for ours, theirs in zip(answer["steps"], wanted, strict=True):
        assert ours["shape"] == theirs["shape"]
        assert_close([number(x) for x in ours["values"]], flat(theirs["values"]), ours["name"], allowed(scene))
