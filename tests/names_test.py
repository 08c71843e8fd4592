#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that files of one unity build do not define the same name in their unnamed namespaces.

The files of a folder are compiled together, and so are those of all commands (cmake/unity.cmake). The compiler
rejects most duplicates, but accepts a second function of the same name as an overload, which a call in another file
might then select. Aliases (`using`) may be repeated. Also checks that planted duplicates are detected.
"""

from __future__ import annotations

import collections
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folders whose targets call fovea_unity.
SCANNED = ["src", "cli", "bench/attention", "python/src", "tests/mpi", "tests/unit"]

# Definitions at the start of a line: functions, types, constants, variables.
FUNCTION = re.compile(r"[^\s/#}][^=]*?[\s*&>](\w+)\(")
TYPE = re.compile(r"(?:struct|class|enum|enum class|union) (\w+)")
CONSTANT = re.compile(r"(?:constexpr|const|inline|static|thread_local)\b.*?[\s*&](\w+)(?:\[\w*\])?\s*[={;]")
VARIABLE = re.compile(r"\w[\w:<>*&, ]*[\s*&](\w+) = ")
# Lines of a docstring are not code.
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
# A named namespace without others in it.
NAMED_INSIDE = re.compile(r"^namespace \w+ {\n(?:(?!namespace ).*\n)*?}  // namespace \w+\n", re.MULTILINE)


def local_names(text: str) -> set[str]:
    """Returns the names that a file defines in its unnamed namespaces, except those in nested named namespaces."""
    text = NAMED_INSIDE.sub("", RAW_STRING.sub('""', text))
    names = set()
    inside = False
    for line in text.splitlines():
        if line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        elif inside and not line.startswith("using "):
            match = TYPE.match(line) or FUNCTION.match(line) or CONSTANT.match(line) or VARIABLE.match(line)
            if match:
                names.add(match[1])
    return names


def check(root: pathlib.Path) -> list[str]:
    """Returns a message for each name that several files of one unity build define."""
    files: dict[tuple[pathlib.Path, str], list[str]] = collections.defaultdict(list)
    for scanned in SCANNED:
        for path in sorted((root / scanned).rglob("*.cc")):
            text = path.read_text(encoding="utf-8")
            # Files with foreach_target are compiled separately.
            if "hwy/foreach_target.h" not in text:
                folder = path.parent.relative_to(root)
                if folder.parts[0] == "cli" and folder.parts[1:] != ("shell",):
                    folder = pathlib.Path("cli")
                for name in local_names(text):
                    files[folder, name].append(path.name)
    return [
        f"{folder}: expected one {name} in unnamed namespaces, got one in each of {', '.join(names)}"
        for (folder, name), names in sorted(files.items())
        if len(names) > 1
    ]


class PlantedNames(unittest.TestCase):
    """Each test writes two files and checks the messages."""

    def doubles(self, one: str, other: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "src/io").mkdir(parents=True)
            for name, code in (("a.cc", one), ("b.cc", other)):
                text = f"namespace fovea {{\nnamespace {{\n\n{code}\n\n}}  // namespace\n}}  // namespace fovea\n"
                (root / "src/io" / name).write_text(text, encoding="utf-8")
            return check(root)

    def test_overloads(self):
        errors = self.doubles("void fail(int error) {}", "[[noreturn]] void fail(std::string_view name) {}")
        assert errors == ["src/io: expected one fail in unnamed namespaces, got one in each of a.cc, b.cc"], errors

    def test_types_and_constants(self):
        assert len(self.doubles("struct Entry {", "class Entry {")) == 1
        assert len(self.doubles("int* made = nullptr;", "int* made = nullptr;")) == 1
        assert len(self.doubles("constexpr int kMax = 1;", "constexpr double kMax = 2;")) == 1

    def test_allowed_names(self):
        assert self.doubles("const int kOne = number(1);", "const int kTwo = number(2);") == []
        assert self.doubles("void one() {\n  two();\n}", "void two() {\n  one();\n}") == []
        assert self.doubles("using Kind = int;", "using Kind = int;") == []


def main() -> int:
    errors = check(ROOT)
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        return 1
    return 0 if unittest.main(verbosity=0, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
