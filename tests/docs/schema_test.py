# SPDX-License-Identifier: Apache-2.0
"""docs/scene.schema.json is a JSON Schema, takes every scene that is right and refuses what is wrong.

The right ones are examples/scenes, the whole scenes of docs/scene.md, and those of
tests/data/scene_schema_cases.json, which has the wrong ones too; tests/unit/scene/read/schema_test.cc
gives the same to the parser. FOVEA_SOURCE is the source directory; without it, this one's.
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
    """JSON, without the NaN and Infinity that Python would take."""
    return json.loads(text, parse_constant=refuse_constant)


def read(*path):
    return SOURCE.joinpath(*path).read_text(encoding="utf-8")


def json_blocks(markdown):
    """The ```json blocks of a document, each with the line it begins at, counted from 1."""
    for fence in re.finditer(r"^```json\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        yield markdown.count("\n", 0, fence.start()) + 1, fence.group(1)


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = parse(read("docs", "scene.schema.json"))
        cls.validator = jsonschema.Draft7Validator(cls.schema)
        cls.cases = parse(read("tests", "data", "scene_schema_cases.json"))

    def complaints(self, scene):
        return [f"{'.'.join(map(str, error.absolute_path)) or 'scene'}: {error.message}"
                for error in self.validator.iter_errors(scene)]

    def test_it_is_a_schema(self):
        self.assertEqual(self.schema["$schema"], "http://json-schema.org/draft-07/schema#")
        jsonschema.Draft7Validator.check_schema(self.schema)

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
                # A block that shows only a part of a scene need not be JSON by itself.
                if not text.startswith("{") or not re.search(r'"(tokens|text)"', text):
                    continue
                count += 1
                self.assertEqual(self.complaints(parse(text)), [])
        self.assertGreaterEqual(count, 8)

    def test_right_scenes_conform(self):
        self.assertGreaterEqual(len(self.cases["right"]), 57)
        for scene in self.cases["right"]:
            with self.subTest(json.dumps(scene)):
                self.assertEqual(self.complaints(scene), [])

    def test_wrong_scenes_do_not(self):
        self.assertGreaterEqual(len(self.cases["wrong"]), 132)
        for wrong in self.cases["wrong"]:
            with self.subTest(wrong["why"]):
                self.assertNotEqual(self.complaints(wrong["scene"]), [], json.dumps(wrong["scene"]))


if __name__ == "__main__":
    unittest.main()
