# SPDX-License-Identifier: Apache-2.0
"""Tests the texts of tokens in recordings of models."""

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
transformers = pytest.importorskip("transformers", exc_type=ImportError)

from test_record_architectures import recorded  # noqa: E402
from test_transformers_architectures import DECODERS  # noqa: E402
from transformers_models import text  # noqa: E402

import fovea  # noqa: E402
from fovea._recording.tokens import token_texts  # noqa: E402


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


class Vocabulary:
    """A tokenizer, as far as token_texts() uses one."""

    all_special_tokens = ("<s>",)

    def __init__(self, *tokens):
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def convert_ids_to_tokens(self, ids):
        return [self.tokens[number] for number in ids]


def test_texts_of_tokens():
    byte_level = Vocabulary("<s>", "Ġthe", "cat", "Ċ", "ðŁ", "Ã©")
    assert token_texts(byte_level, [0, 1, 2, 3, 4, 5]) == ["<s>", " the", "cat", "\n", "\\xf0\\x9f", "é"]
    pieces = Vocabulary("<s>", "▁the", "é", "<0x0A>", "<0xF0>")
    assert token_texts(pieces, [0, 1, 2, 3, 4]) == ["<s>", " the", "é", "\n", "\\xf0"]
    assert token_texts(byte_level, [99, 2]) == ["99", "cat"]
    added = Vocabulary("Ġthe", "café")
    added.get_added_vocab = lambda: {"café": 1}
    assert token_texts(added, [0, 1]) == [" the", "café"]
    words = Vocabulary("[CLS]", "un", "##seen")
    assert token_texts(words, [2, 1]) == ["##seen", "un"]
    assert token_texts(Vocabulary("\ud800"), [0]) == ["\\ud800"]
    assert token_texts(None, [5, 7]) == ["5", "7"]


def test_hostile_tokens_are_kept_as_they_are(path):
    model = DECODERS["Llama"]()
    tokens = ["<script>alert(1)</script>", "\x1b[31m", "\u202e", 'a"b'] * 24 + ["x"]
    recorded(model, {"input_ids": text(batch=1)}, path, tokenizer=Vocabulary(*tokens), text="a <b>text</b>")
    recording = fovea.Recording(path)
    assert set(recording.tokens["text"]) <= set(tokens)
    page = recording._repr_html_()
    assert "<script>" not in page
    assert "a &lt;b&gt;text&lt;/b&gt;" in page
