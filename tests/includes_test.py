#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no file includes a header of a higher layer or of an unrelated one (docs/architecture.md).

Reads the #include lines of include/, src/, cli/ and bench/attention. Also checks that wrong includes planted in a
temporary copy are detected.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Each folder with the folders directly below it. A file may include its own folder and all folders below it,
# directly or not. A source folder that is missing here is an error.
LAYERS = {
    "include/fovea": [],
    "include/fovea/nn": ["include/fovea"],
    "src/core": ["include/fovea"],
    "src/problem": ["src/core"],
    "src/reference": ["src/problem"],
    "src/cache": ["src/problem"],
    "src/kernels/simd": ["src/problem"],
    "src/kernels/tile": ["src/kernels/simd"],
    "src/kernels/lenses": ["src/kernels/tile"],
    "src/kernels/forward": ["src/kernels/lenses"],
    "src/kernels/weights": ["src/kernels/lenses"],
    "src/kernels/decode": ["src/kernels/lenses"],
    "src/kernels/backward": ["src/kernels/lenses"],
    "src/kernels": ["src/kernels/forward", "src/kernels/weights", "src/kernels/decode", "src/kernels/backward"],
    "src/engine/call": [
        "src/reference",
        "src/cache",
        "src/kernels/forward",
        "src/kernels/weights",
        "src/kernels/decode",
        "src/kernels/backward",
    ],
    "src/engine/lenses": ["src/engine/call"],
    "src/engine/forward": ["src/engine/decode"],
    "src/engine/backward": ["src/engine/lenses"],
    "src/engine/decode": ["src/engine/lenses"],
    "src/engine/weights": ["src/engine/decode"],
    "src/ceilings": ["src/kernels/simd"],
    "src/text": ["src/core"],
    "src/io": ["src/core"],
    "src/json": ["src/problem", "src/text", "src/io"],
    "src/files": ["src/json"],
    "src/recording": ["src/files", "src/engine/weights"],
    "src/distributed": ["src/engine/forward", "src/engine/backward", "src/engine/weights"],
    "src/mpi": ["src/distributed"],
    "src/scene/texts": ["src/json"],
    "src/scene/read": ["src/scene/texts", "src/files", "src/reference"],
    "src/scene/trace": ["src/scene/read"],
    "src/scene/tell": ["src/scene/trace"],
    "src/scene/html": ["src/scene/tell"],
    "src/picture": ["src/json"],
    "src/nn": [
        "include/fovea/nn",
        "src/files",
        "src/engine/forward",
        "src/engine/backward",
        "src/engine/weights",
    ],
    "src/train": ["src/nn", "src/scene/html"],
    "src/view/input": ["src/recording"],
    "src/view/explorer": ["src/view/input"],
    "src/view/http": ["src/picture"],
    "src/view/api": ["src/view/explorer", "src/view/http"],
    "cli/pages": [],
    "cli/shell": ["cli/pages", "src/text", "src/io", "src/mpi"],
    "cli/problem": ["cli/shell", "src/recording", "src/reference", "src/ceilings"],
    "cli/attend": ["cli/problem"],
    "cli/map": ["cli/problem", "src/picture", "src/scene/tell"],
    "cli/heads": ["cli/problem", "src/engine/weights", "src/picture"],
    "cli/explain": ["cli/shell", "src/scene/html"],
    "cli/learn": ["cli/shell", "src/scene/html"],
    "cli/diff": ["cli/problem", "src/picture"],
    "cli/rollout": ["cli/problem", "src/picture"],
    "cli/record": ["cli/problem"],
    "cli/inspect": ["cli/problem", "src/files"],
    "cli/info": ["cli/shell"],
    "cli/completion": ["cli/shell"],
    "cli/view": ["cli/problem", "src/view/api"],
    "cli/train": ["cli/explain", "src/train", "src/picture"],
    "cli": ["cli/attend", "cli/map", "cli/heads", "cli/diff", "cli/rollout", "cli/record", "cli/explain", "cli/inspect",
            "cli/info", "cli/completion", "cli/learn", "cli/view", "cli/train"],
    "bench/attention": ["cli/shell", "src/reference", "src/ceilings"],
}

SCANNED = ["include", "src", "cli", "bench/attention"]
SUFFIXES = {".h", ".cc"}
# The include directories of the builds.
INCLUDE_PATHS = ["include", "src", "."]
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def layers_below(folder: str) -> set[str]:
    """Returns all folders that files of `folder` may include, besides `folder` itself."""
    below: set[str] = set()
    left = list(LAYERS[folder])
    while left:
        layer = left.pop()
        if layer not in below:
            below.add(layer)
            left += LAYERS[layer]
    return below


def find_included(root: pathlib.Path, include: str) -> str | None:
    """Returns the file that an include names, relative to the root, or None if it belongs to another project."""
    for path in INCLUDE_PATHS:
        if (root / path / include).is_file():
            return include if path == "." else f"{path}/{include}"
    return None


def find_cycle() -> str | None:
    """Returns a folder of the table that is below itself, or None."""
    return next((folder for folder in LAYERS if folder in layers_below(folder)), None)


def check(root: pathlib.Path) -> list[str]:
    """Returns a message for each include that breaks the rule, and for each folder missing from the table."""
    cycle = find_cycle()
    if cycle is not None:
        return [f"{cycle}: below itself in the table of layers"]
    below = {folder: layers_below(folder) for folder in LAYERS}
    paths = (path for folder in SCANNED for path in (root / folder).rglob("*"))
    names = sorted(path.relative_to(root).as_posix() for path in paths if path.suffix in SUFFIXES)
    errors = [
        f"{folder}: not in the table of layers; place it in tests/includes_test.py"
        for folder in sorted({folder_of(name) for name in names} - set(LAYERS))
    ]
    for name in names:
        folder = folder_of(name)
        if folder not in LAYERS:
            continue
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if match is None:
                continue
            include = match[1] or match[2]
            place = f"{name}:{number}: includes {include}"
            included = find_included(root, include)
            if included is None:
                if match[1] is not None:
                    errors.append(f"{place}: no such file in {', '.join(INCLUDE_PATHS)}")
                continue
            target = folder_of(included)
            if target == folder or target in below[folder]:
                continue
            if target in LAYERS:
                relation = "above" if folder in below[target] else "beside"
                errors.append(f"{place}: {target} is {relation} {folder}, which may include {rule_of(folder)}")
            else:
                errors.append(f"{place}: {target} is not in the table of layers")
    return errors


def rule_of(folder: str) -> str:
    if not LAYERS[folder]:
        return "itself alone"
    return f"itself, {', '.join(LAYERS[folder])} and what is below"


class PlantedIncludes(unittest.TestCase):
    """Each test changes a copy of the tree and checks the message."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        for scanned in SCANNED:
            shutil.copytree(ROOT / scanned, cls.root / scanned)

    def plant(self, file: str, include: str) -> None:
        """Adds a line to a file, which may be new, until the test ends."""
        path = self.root / file
        if path.exists():
            self.addCleanup(path.write_bytes, path.read_bytes())
        else:
            self.addCleanup(path.unlink)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(f"{include}\n")

    def expect(self, *parts: str) -> None:
        errors = check(self.root)
        assert len(errors) == 1, errors
        for part in parts:
            assert part in errors[0], errors[0]

    def test_unchanged_copy(self):
        assert check(self.root) == []

    def test_upward(self):
        lines = len((self.root / "src/kernels/simd/arena.h").read_text(encoding="utf-8").splitlines())
        self.plant("src/kernels/simd/arena.h", '#include "kernels/tile/scratch.h"')
        self.expect(
            f"src/kernels/simd/arena.h:{lines + 1}: includes kernels/tile/scratch.h",
            "src/kernels/tile is above src/kernels/simd, which may include itself, src/problem and what is below",
        )

    def test_sideways(self):
        self.plant("src/kernels/decode/decode.h", '#include "kernels/forward/forward.h"')
        self.expect("src/kernels/forward is beside src/kernels/decode")

    def test_public_header(self):
        self.plant("include/fovea/mask.h", '#  include "core/fail.h"')
        self.expect("include/fovea/mask.h", "src/core is above include/fovea, which may include itself alone")

    def test_angle_brackets(self):
        self.plant("include/fovea/mask.h", "#include <fovea/nn/model.h>")
        self.expect("include/fovea/nn is above include/fovea")

    def test_command_line(self):
        self.plant("cli/shell/planted.h", '#include "cli/problem/inputs.h"')
        self.expect("cli/shell/planted.h:1", "cli/problem is above cli/shell")

    def test_new_folder(self):
        self.plant("src/planted/planted.h", "#include <vector>")
        self.expect("src/planted: not in the table of layers")

    def test_missing_file(self):
        self.plant("src/core/planted.h", '#include "core/absent.h"')
        self.expect("src/core/planted.h:1: includes core/absent.h: no such file")

    def test_downward(self):
        self.plant("src/scene/html/planted.h", '#include "core/fail.h"')
        assert check(self.root) == []


def main() -> int:
    errors = check(ROOT)
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        return 1
    return 0 if unittest.main(verbosity=0, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
