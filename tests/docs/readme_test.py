# SPDX-License-Identifier: Apache-2.0
"""Runs the commands and programs in README.md and in the pages of docs/ that are named below.

```sh    every command must succeed. The block runs in a copy of examples/ and docs/ with build/release/fovea and
         fovea-bench. Lines that start with `make` would run these tests again or install packages, so the test
         only checks that the target exists. Lines with `fovea view` start the viewer, which then ends at once.
         Lines with --steps train for 60 steps only.
```cpp   a complete program: compiled, linked to the installed library with the flags of pkg-config, and run.
```python  checked by tests/python/test_readme.py, which runs where the package is installed.
```json  part of a file; not checked.
```text  directly below one of these blocks: its exact output; after some words: an excerpt of its output.

Run by ctest, which sets FOVEA, FOVEA_BUILD, FOVEA_SOURCE, CMAKE, CXX, and FOVEA_NUMPY_PYTHON, the interpreter that
`python3` runs.
"""

import collections
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["FOVEA_SOURCE"])
# The environment, except variables of a make that started ctest: they would affect the make started here.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"}}

# `expected` is the whole output of the block, None if the document does not show it; `excerpts` are parts of it.
Block = collections.namedtuple("Block", "language line text expected excerpts")


def blocks(markdown):
    """Returns the fenced blocks of a document with their first line numbers, counted from 1."""
    result = []
    end = 0
    for fence in re.finditer(r"^```(\w*)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        language, text = fence.groups()
        if language != "text":
            line = markdown.count("\n", 0, fence.start()) + 1
            result.append(Block(language, line, text, None, []))
        elif not markdown[end:fence.start()].strip():
            result[-1] = result[-1]._replace(expected=text)
        else:
            result[-1].excerpts.append(text)
        end = fence.end()
    return result


class Blocks(unittest.TestCase):
    def test_extraction(self):
        text = "a\n```sh\nx\ny\n```\n\n```text\nout\n```\nwords\n```cpp\nz\n```\nmore\n```text\npart\n```\n"
        self.assertEqual(blocks(text), [
            Block("sh", 2, "x\ny\n", "out\n", []),
            Block("cpp", 11, "z\n", None, ["part\n"]),
        ])


class Document:
    """Base class of the documents; each subclass sets NAME to its file."""

    NAME = ""
    LANGUAGES = {"sh"}

    @classmethod
    def setUpClass(cls):
        cls.blocks = blocks((SOURCE / cls.NAME).read_text(encoding="utf-8"))
        directory = tempfile.TemporaryDirectory(prefix="fovea-readme-")
        cls.addClassCleanup(directory.cleanup)
        cls.scratch = pathlib.Path(directory.name)
        for name in ("docs", "examples"):
            shutil.copytree(SOURCE / name, cls.scratch / name)
        (cls.scratch / "build" / "release").mkdir(parents=True)
        built = pathlib.Path(os.environ["FOVEA"])
        for program in ("fovea", "fovea-bench"):
            (cls.scratch / "build" / "release" / program).symlink_to(built.with_name(program))

        programs = cls.scratch / "bin"
        programs.mkdir()
        # Not a symlink: the Python of a virtual environment must be called by its own path.
        (programs / "python3").write_text('#!/bin/sh\nexec "$FOVEA_NUMPY_PYTHON" "$@"\n', encoding="utf-8")
        (programs / "python3").chmod(0o755)
        cls.environment = {**ENVIRONMENT, "PATH": f"{programs}{os.pathsep}{ENVIRONMENT['PATH']}"}

    def run_command(self, *command, cwd, env=ENVIRONMENT):
        result = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                timeout=300)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout}{result.stderr}")
        return result.stdout

    def each(self, language, check):
        chosen = [block for block in self.blocks if block.language == language]
        self.assertTrue(chosen, f"{self.NAME} has no ```{language} block")
        for block in chosen:
            with self.subTest(f"{self.NAME}:{block.line}"):
                output = check(block)
                if block.expected is not None:
                    self.assertEqual(output, block.expected)
                for excerpt in block.excerpts:
                    self.assertIn(excerpt, output)

    def test_languages(self):
        # Blocks in other languages would not be tested.
        self.assertLessEqual({block.language for block in self.blocks}, self.LANGUAGES)

    def test_commands(self):
        if "sh" in self.LANGUAGES:
            self.each("sh", self.run_commands)

    def run_commands(self, block):
        commands = []
        for line in block.text.splitlines():
            if re.match(r"make\b", line):
                self.run_command("make", "-n", *shlex.split(line, comments=True)[1:], cwd=SOURCE)
            elif re.match(r"\S*fovea view\b", line):
                commands.append(f"{line} --no-open --until-closed </dev/null")
            else:
                commands.append(re.sub(r"--steps \d+", "--steps 60", line))
        return self.run_command("bash", "-euo", "pipefail", "-c", "\n".join(commands), cwd=self.scratch,
                                env=self.environment)


class Programs(Document):
    """A document with C++ programs, which use the library PACKAGE."""

    PACKAGE = "fovea"

    def test_programs(self):
        prefix = self.scratch / "prefix"
        self.run_command(os.environ["CMAKE"], "--install", os.environ["FOVEA_BUILD"], "--prefix",
                         str(prefix), cwd=self.scratch)
        library_dir = next(prefix.rglob("libfovea.so")).parent
        env = {**ENVIRONMENT, "PKG_CONFIG_PATH": str(library_dir / "pkgconfig"),
               "LD_LIBRARY_PATH": str(library_dir)}
        flags = shlex.split(self.run_command("pkg-config", "--cflags", "--libs", self.PACKAGE,
                                             cwd=self.scratch, env=env))

        def run_program(block):
            source = self.scratch / f"program_{block.line}.cc"
            source.write_text(block.text, encoding="utf-8")
            program = str(source.with_suffix(""))
            self.run_command(os.environ["CXX"], "-std=c++20", "-Wall", "-Wextra", "-Werror",
                             str(source), "-o", program, *flags, cwd=self.scratch, env=env)
            return self.run_command(program, cwd=self.scratch, env=env)

        self.each("cpp", run_program)


class Readme(Programs, unittest.TestCase):
    NAME = "README.md"
    LANGUAGES = {"sh", "cpp", "python"}

    def test_one_screen(self):
        lines = (SOURCE / self.NAME).read_text(encoding="utf-8").splitlines()
        self.assertLessEqual(len(lines), 130)
        self.assertLess(lines.index("```sh"), 40)
        self.assertLess(lines.index("```python"), 40)


class Cpp(Programs, unittest.TestCase):
    NAME = "docs/cpp.md"
    LANGUAGES = {"cpp"}
    PACKAGE = "fovea-recording"


@unittest.skipIf(os.environ.get("FOVEA_NN") == "0", "built without fovea::nn")
class CommandLine(Document, unittest.TestCase):
    NAME = "docs/command-line.md"


@unittest.skipIf(os.environ.get("FOVEA_VIEW") == "0", "built without fovea view")
class Viewer(Document, unittest.TestCase):
    NAME = "docs/view.md"
    LANGUAGES = {"sh", "python"}


@unittest.skipIf(os.environ.get("FOVEA_NN") == "0", "built without fovea::nn")
class Training(Document, unittest.TestCase):
    NAME = "docs/training.md"
    LANGUAGES = {"sh", "json"}


if __name__ == "__main__":
    unittest.main()
