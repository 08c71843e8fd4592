# SPDX-License-Identifier: Apache-2.0
"""docs/scene.schema.json and docs/recording.schema.json are JSON Schemas that accept every valid scene, or
description of a recording, and reject invalid ones.

Valid scenes are those of examples/scenes, the complete scenes of docs/scene.md, and those of
tests/data/scene_schema_cases.json, which also holds the invalid scenes. tests/unit/scene/read/schema_test.cc
passes the same cases to the parser. Descriptions are those of docs/recordings.md and of
tests/data/recording_schema_cases.json, which tests/unit/recording/schema_test.cc passes to the reader and compares
with those of the writer. FOVEA_SOURCE is the source directory; default: the one that contains this file.
"""

import json
import os
import pathlib
import re
import unittest

import jsonschema

SOURCE = pathlib.Path(os.environ.get("FOVEA_SOURCE") or pathlib.Path(__file__).parents[2]).resolve()


def refuse_constant(name):
    raise ValueError(f"{name} is not JSON")


def parse(text):
    """Parses JSON; rejects NaN and Infinity, which Python accepts by default."""
    return json.loads(text, parse_constant=refuse_constant)


def read(*path):
    return SOURCE.joinpath(*path).read_text(encoding="utf-8")


def json_blocks(markdown):
    """Yields the ```json blocks of a document with their first line numbers, counted from 1."""
    for fence in re.finditer(r"^```json\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        yield markdown.count("\n", 0, fence.start()) + 1, fence.group(1)


class Cases:
    """Base class of the tests of a schema. Subclasses set NAME, "scene", and KEY, the part of a wrong case that the
    schema rejects."""

    @classmethod
    def setUpClass(cls):
        cls.schema = parse(read("docs", f"{cls.NAME}.schema.json"))
        cls.validator = jsonschema.Draft7Validator(cls.schema)
        cls.cases = parse(read("tests", "data", f"{cls.NAME}_schema_cases.json"))

    def complaints(self, value):
        return [f"{'.'.join(map(str, error.absolute_path)) or self.NAME}: {error.message}"
                for error in self.validator.iter_errors(value)]

    def test_schema_is_valid(self):
        self.assertEqual(self.schema["$schema"], "http://json-schema.org/draft-07/schema#")
        jsonschema.Draft7Validator.check_schema(self.schema)

    def expect_valid(self, values):
        for value in values:
            with self.subTest(json.dumps(value)):
                self.assertEqual(self.complaints(value), [])

    def test_invalid_cases_are_rejected(self):
        self.assertGreaterEqual(len(self.cases["wrong"]), self.WRONG)
        for wrong in self.cases["wrong"]:
            with self.subTest(wrong["why"]):
                self.assertNotEqual(self.complaints(wrong[self.KEY]), [], json.dumps(wrong[self.KEY]))


class Scenes(Cases, unittest.TestCase):
    NAME = "scene"
    KEY = "scene"
    WRONG = 164

    def test_examples_conform(self):
        examples = sorted((SOURCE / "examples" / "scenes").glob("*.json"))
        self.assertGreaterEqual(len(examples), 11)
        for path in examples:
            with self.subTest(path.name):
                self.assertEqual(self.complaints(parse(path.read_text(encoding="utf-8"))), [])

    def test_scenes_of_the_guide_conform(self):
        count = 0
        for line, text in json_blocks(read("docs", "scene.md")):
            with self.subTest(f"docs/scene.md:{line}"):
                # A block that shows only part of a scene may not be valid JSON.
                if not text.startswith("{") or not re.search(r'"(tokens|text)"', text):
                    continue
                count += 1
                self.assertEqual(self.complaints(parse(text)), [])
        self.assertGreaterEqual(count, 16)

    def test_valid_scenes_conform(self):
        self.assertGreaterEqual(len(self.cases["right"]), 70)
        self.expect_valid(self.cases["right"])


class Recordings(Cases, unittest.TestCase):
    NAME = "recording"
    KEY = "content"
    WRONG = 74

    def test_valid_descriptions_conform(self):
        self.assertGreaterEqual(len(self.cases["right"]), 34)
        self.expect_valid(self.cases["right"])

    def test_descriptions_of_the_writer_conform(self):
        self.assertGreaterEqual(sum(len(each["attentions"]) for each in self.cases["written"]), 14)
        self.expect_valid(self.cases["written"])

    def test_descriptions_of_the_guide_conform(self):
        described = [parse(text) for _, text in json_blocks(read("docs", "recordings.md")) if '"attentions"' in text]
        self.assertGreaterEqual(len(described), 1)
        self.expect_valid(described)

    def test_an_example_conforms(self):
        self.expect_valid([{
            "model": "SmolLM2-135M-Instruct", "written_by": "fovea 0.2.0", "source": "text of 1,204 tokens",
            "attentions": [{"name": "layers.0", "layer": 0, "kind": "self", "query_tokens": "text",
                            "key_tokens": "text",
                            "options": {"score": {"scale": 0.125, "softcap": 0}, "mask": {"causal": True},
                                        "alignment": "bottom-right"}}]}])


if __name__ == "__main__":
    unittest.main()
