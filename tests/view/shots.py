# SPDX-License-Identifier: Apache-2.0
"""Writes the pictures of docs/view.md.

tests/view/run shots                 into docs/images
  --to FOLDER                        another folder
  --recording FILE                   of this recording instead of a made one
"""

import argparse
import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "pages"))

import browser as pages
import inputs
from server import ROOT, Viewer

SIZE = {"width": 1280, "height": 800}


def options():
    parser = argparse.ArgumentParser(prog="tests/view/run shots")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs" / "images")
    parser.add_argument("--recording", type=pathlib.Path)
    return parser.parse_args()


def pictures(name, layer, head, length):
    """Returns {file: (path, fragment)}."""
    middle = length // 2
    return {
        "view_heads": (f"/heads/{name}", ""),
        "view_map": (f"/map/{name}/{layer}.{head}", f"query={middle}&key={middle // 2}&panel=row"),
        "view_text": (f"/text/{name}/{layer}.{head}", f"query={middle}"),
        "view_compare": (f"/compare/{name}/{layer}.{head}/{name}/{layer}.{head + 1}", ""),
    }


def main():
    chosen = options()
    chosen.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, pages.chromium() as chromium:
        path = chosen.recording
        if path is None:
            path = pathlib.Path(folder) / "run.safetensors"
            inputs.recording(path, inputs.patterned_layers(6, 8, 96), inputs.words(96), model="A made model")
        server = Viewer(path)
        try:
            entry = server.input()
            layer = entry["layers"][len(entry["layers"]) // 2]
            for file, (place, fragment) in pictures(
                entry["id"], layer["label"], layer["heads"][1], layer["queries"]
            ).items():
                page = chromium.new_context(viewport=SIZE, color_scheme="light").new_page()
                page.goto(server.address(place, fragment))
                page.wait_for_load_state("networkidle")
                pages.settle(page)
                page.screenshot(path=chosen.to / f"{file}.png")
                page.context.close()
                print(chosen.to / f"{file}.png")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
