# SPDX-License-Identifier: Apache-2.0
"""Checks the scripts of pages with TypeScript's compiler (part of `make check`; Debian's node-typescript).

Types come from JSDoc comments, otherwise they are inferred. The parts of a script are joined as in the build
(src/CMakeLists.txt) into one function scope; messages name the parts and their lines. Values that may be
null are not checked: the pages' elements exist, and most parameters have no declared type.
"""

import bisect
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "scripts"
OPTIONS = {
    "allowJs": True,
    "checkJs": True,
    "noEmit": True,
    "strict": True,
    "noImplicitAny": False,
    "strictNullChecks": False,
    "noUnusedLocals": True,
    "noFallthroughCasesInSwitch": True,
    "target": "es2022",
    "lib": ["es2022", "dom", "dom.iterable"],
    "types": [],
}


def scripts() -> dict[str, tuple[str, list[pathlib.Path]]]:
    """Returns for each page what it defines before its script, and the parts of the script in their order."""
    text = (ROOT / "src" / "CMakeLists.txt").read_text(encoding="utf-8")
    names = re.search(r"set\(scripts ([^)]*)\)", text)
    if names is None:
        raise SystemExit("tools/check_scripts.py: expected set(scripts ...) in src/CMakeLists.txt")
    return {
        "page": ("", [ROOT / "src/scene/html/page" / f"{name}.js" for name in names[1].split()]),
        "slides": ("", [ROOT / "src/scene/html/slides/slides.js"]),
        "heads": ("const heads = JSON.parse('{}');", [ROOT / "src/picture/page/heads.js"]),
        "map": ("const map = JSON.parse('{}');", [ROOT / "src/picture/page/map.js"]),
    }


def joined(before: str, parts: list[pathlib.Path]) -> tuple[str, list[int]]:
    """Returns the parts in one function, and the line before the first one of each part."""
    lines = ["(() => {", '"use strict";', before]
    starts = []
    for part in parts:
        starts.append(len(lines))
        lines += part.read_text(encoding="utf-8").splitlines()
    return "\n".join([*lines, "})();", ""]), starts


def main() -> int:
    BUILD.mkdir(parents=True, exist_ok=True)
    found = scripts()
    starts: dict[str, list[int]] = {}
    for name, (before, parts) in found.items():
        text, starts[name] = joined(before, parts)
        (BUILD / f"{name}.js").write_text(text, encoding="utf-8")
    project = {"compilerOptions": OPTIONS, "files": [f"{name}.js" for name in found]}
    (BUILD / "jsconfig.json").write_text(json.dumps(project, indent=2))
    command = ["tsc", "--pretty", "false", "-p", "jsconfig.json"]
    result = subprocess.run(command, cwd=BUILD, stdout=subprocess.PIPE, encoding="utf-8")

    def place(match: re.Match[str]) -> str:
        name, line, column = match[1], int(match[2]), match[3]
        part = max(0, bisect.bisect_left(starts[name], line) - 1)
        return f"{found[name][1][part].relative_to(ROOT)}:{line - starts[name][part]}:{column}"

    sys.stdout.write(re.sub(r"^(\w+)\.js\((\d+),(\d+)\)", place, result.stdout, flags=re.MULTILINE))
    return result.returncode or check_modules()


def check_modules() -> int:
    """Checks the modules of the viewer, which are files of their own, with all of their types declared."""
    options = {**OPTIONS, "noImplicitAny": True, "strictNullChecks": True, "module": "es2022"}
    files = [str(path) for path in sorted((ROOT / "src/view/page").rglob("*.js"))]
    project = BUILD / "modules.json"
    project.write_text(json.dumps({"compilerOptions": options, "files": files}, indent=2))
    return subprocess.run(["tsc", "--pretty", "false", "-p", project.name], cwd=BUILD).returncode


if __name__ == "__main__":
    sys.exit(main())
