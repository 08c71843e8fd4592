#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the sources and the texts of pages (src/scene/texts) agree.

Every key in the sources is in en.json, every key of en.json is used, and each translation has its keys in the same
order. A key with varying parts is a literal such as "story.{}", "name." or `step.${base}.title`; the parts must then be
literals, too. Also checks that planted mistakes are detected.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = ROOT / "src" / "scene" / "texts"
SCANNED = ["src/scene", "src/train", "cli"]
SUFFIXES = {".h", ".cc", ".js"}
# Groups of texts that no source uses yet. Whoever uses one removes it here.
PLANNED: set[str] = set()
# Groups that a source reads as a whole.
WHOLE = {"glossary"}

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`([^`\n]*)`')
VARYING = re.compile(r"\$\{[^}]*\}|\{\}")
KEY = re.compile(r"[a-z]\w*(\.(\w+|\*))*(\.|\.\w+|\.\*)")


def literals_of(source: str) -> set[str]:
    """Returns the literals of a source file, with * for varying parts; those inside of others, too."""
    found = set()
    for match in LITERAL.finditer(source):
        found.add(VARYING.sub("*", match[1] or match[2] or ""))
        found |= {inner for inner, _ in LITERAL.findall(match[2] or "")}
    return found


def check(keys: list[str], literals: set[str]) -> list[str]:
    """Returns a message for each key that only the sources or only the texts have."""
    parts = {key.partition(".")[0] for key in keys if "." in key}
    used: set[str] = {"language", "language.name"}
    errors = []
    for literal in sorted(literals):
        if not KEY.fullmatch(literal) or literal.partition(".")[0] not in parts:
            continue
        # A prefix continues with a varying part, and a counted text with .one or .other.
        star = literal + "*" if literal.endswith(".") else literal
        pattern = re.compile(re.escape(star).replace(r"\*", r"([\w.]+)") + r"(?:\.(one|other))?")
        meant = [(key, found) for key in keys if (found := pattern.fullmatch(key))]
        if not meant:
            errors.append(f'"{literal}": no such key in {(TEXTS / "en.json").relative_to(ROOT)}')
        for key, found in meant:
            filled = [part for group in found.groups() if group for part in group.split(".")]
            if all(part in literals for part in filled):
                used.add(key)
    return errors + [
        f'"{key}": no source uses it' for key in keys if key not in used and key.split(".")[0] not in PLANNED | WHOLE
    ]


class PlantedMistakes(unittest.TestCase):
    def test_mistakes(self):
        keys = ["page.in", "page.all", "edit.word", "sum.one", "sum.other", "name.query"]
        source = 'f("page." + id("in")); text(`name.${"query"}`); n == 1 ? "one" : "other"; h("sum.{}"); p("page.out");'
        assert check(keys, literals_of(source)) == [
            '"page.out": no such key in src/scene/texts/en.json',
            '"page.all": no source uses it',
            '"edit.word": no source uses it',
        ]


def main() -> int:
    sources = (path for folder in SCANNED for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    literals = set().union(*(literals_of(path.read_text(encoding="utf-8")) for path in sources))
    languages = {path.name: list(json.loads(path.read_text(encoding="utf-8"))) for path in TEXTS.glob("*.json")}
    keys = languages["en.json"]
    errors = check(keys, literals)
    for name, others in sorted(languages.items()):
        for key, other in itertools.zip_longest(keys, others):
            if key != other:
                errors.append(f"{name}: expected the keys of en.json in the same order: {key}, got {other}")
                break
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0 if unittest.main(verbosity=0, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
