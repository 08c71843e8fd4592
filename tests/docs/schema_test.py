# SPDX-License-Identifier: Apache-2.0
"""docs/scene.schema.json is a JSON Schema that accepts every valid scene and rejects invalid ones.

Valid scenes are those of examples/scenes, the complete scenes of docs/scene.md, and those of
tests/data/scene_schema_cases.json, which also holds the invalid scenes. tests/unit/scene/read/schema_test.cc
passes the same cases to the parser. FOVEA_SOURCE is the source directory; default: the one that contains this file.
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


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.schema = parse(read("docs", "scene.schema.json"))
        cls.validator = jsonschema.Draft7Validator(cls.schema)
        cls.cases = parse(read("tests", "data", "scene_schema_cases.json"))

    def complaints(self, scene):
        return [f"{'.'.join(map(str, error.absolute_path)) or 'scene'}: {error.message}"
                for error in self.validator.iter_errors(scene)]

    def test_schema_is_valid(self):
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
                # A block that shows only part of a scene may not be valid JSON.
                if not text.startswith("{") or not re.search(r'"(tokens|text)"', text):
                    continue
                count += 1
                self.assertEqual(self.complaints(parse(text)), [])
        self.assertGreaterEqual(count, 16)

    def test_valid_scenes_conform(self):
        self.assertGreaterEqual(len(self.cases["right"]), 70)
        for scene in self.cases["right"]:
            with self.subTest(json.dumps(scene)):
                self.assertEqual(self.complaints(scene), [])

    def test_invalid_scenes_are_rejected(self):
        self.assertGreaterEqual(len(self.cases["wrong"]), 164)
        for wrong in self.cases["wrong"]:
            with self.subTest(wrong["why"]):
                self.assertNotEqual(self.complaints(wrong["scene"]), [], json.dumps(wrong["scene"]))


if __name__ == "__main__":
    unittest.main()
