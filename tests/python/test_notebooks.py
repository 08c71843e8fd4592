# SPDX-License-Identifier: Apache-2.0
"""Runs the notebooks of examples/python and compares their outputs with the stored ones, and their numbers with the
scenes."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from run_notebook import dump, run_cell

import fovea

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"
RUN = pathlib.Path(__file__).with_name("run_notebook.py")
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {"transformers": ("torch", "transformers")}

# Pages have numbers in full precision, and the last digits of an exponential differ between processors.
LONG_NUMBER = re.compile(r"(?<![\w.])\d+\.\d{12,}(?:e[-+]?\d+)?")
# The style and the script depend on the version of the program that minifies them. Data has a type.
MINIFIED = re.compile(r"&lt;(style|script)&gt;.*?&lt;/\1&gt;", re.DOTALL)


def comparable(form, text):
    if form != "text/html":
        return text
    return LONG_NUMBER.sub(lambda found: f"{float(found[0]):.11g}", MINIFIED.sub("", text))


def contents(cell):
    """Returns the outputs of the cell: [(kind, text)]."""
    shown = []
    for output in cell["outputs"]:
        forms = output["data"] if "data" in output else {output["name"]: output["text"]}
        shown += [(form, comparable(form, "".join(text))) for form, text in sorted(forms.items())]
    return shown


def difference(kept, found):
    """Returns a brief description of the first difference between two cells (a page has 100 kB), or None if equal."""
    if [form for form, _ in kept] != [form for form, _ in found]:
        return f"kept {[form for form, _ in kept]}, found {[form for form, _ in found]}"
    for (form, old), (_, new) in zip(kept, found, strict=True):
        if old != new:
            at = next(
                (i for i, pair in enumerate(zip(old, new, strict=False)) if len(set(pair)) > 1),
                min(map(len, (old, new))),
            )
            here = slice(max(0, at - 40), at + 60)
            return f"{form}: kept ...{old[here]!r}..., found ...{new[here]!r}..."
    return None


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path.stem[0] == "0"], ids=lambda path: path.stem)
def test_numbers_are_those_of_the_scene(path):
    """The scene expects the numbers printed by the original notebook of this name."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    (source,) = ["".join(cell["source"]) for cell in code_cells(notebook) if cell["id"] == "explain"]
    namespace = {"fovea": fovea}
    run_cell(source, "explain", namespace)
    same = json.loads((FOLDER.parent / "scenes" / f"{path.stem}.json").read_text(encoding="utf-8"))
    trace = fovea.explain(namespace["scene"] | {"expect": same["expect"]})
    assert len(trace.checks) == len(same["expect"])
    assert [check.message for check in trace.checks if not check.passed] == []


def executed(path):
    result = subprocess.run([sys.executable, "-B", str(RUN), str(path)], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_all_are_there():
    scenes = FOLDER.parent / "scenes"
    seeds = {path.stem for path in scenes.glob("0*.json")}
    assert len(seeds) == 5
    assert {path.stem for path in NOTEBOOKS} == seeds | {"masks", "transformers"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs(path):
    for module in NEEDS.get(path.stem, ()):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{path.name} needs {module}; make test-peers runs it")
    kept, found = (code_cells(notebook) for notebook in (json.loads(path.read_text(encoding="utf-8")), executed(path)))
    for old, new in zip(kept, found, strict=True):
        told = difference(contents(old), contents(new))
        assert told is None, f"{path.name}, cell {old['id']}: {told} (run_notebook.py --write renews it)"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_form(path):
    """Notebooks are nbformat 4.5, and nothing in them changes from run to run."""
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert text == dump(notebook)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{0,63}", one) for one in ids)
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert [cell["execution_count"] for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))
    # Jupyter shows lines of up to 88 characters without wrapping or scrolling.
    assert [
        line for cell in code_cells(notebook) for line in "".join(cell["source"]).split("\n") if len(line) > 88
    ] == []
    outputs = [output for cell in code_cells(notebook) for output in contents(cell)]
    shown = [form for form, _ in outputs]
    assert "image/svg+xml" in shown
    assert ("text/html" in shown) == path.stem.startswith("0")
    assert "stderr" not in shown
    for form, text in outputs:
        if form == "image/svg+xml":
            assert xml.etree.ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


class Shown:
    def __repr__(self):
        return "as text"

    def _repr_html_(self):
        return "as <i>a page</i>\nof two lines"


def test_run_cell():
    namespace = {"Shown": Shown}
    assert run_cell("x = 1", "cell", namespace) == []
    assert run_cell("None", "cell", namespace) == []
    first, second = run_cell("print(x)\nprint('b')\nx + 1", "cell", namespace)
    assert first == {"name": "stdout", "output_type": "stream", "text": ["1\n", "b\n"]}
    assert second["data"] == {"text/plain": ["2"]}
    (shown,) = run_cell("Shown()", "cell", namespace)
    assert shown["data"] == {"text/html": ["as <i>a page</i>\n", "of two lines"], "text/plain": ["as text"]}
    with pytest.raises(ZeroDivisionError):
        run_cell("1 / 0", "cell", namespace)


def page(text, form="text/html"):
    return contents({"outputs": [{"data": {form: [text]}}]})


SAME = {
    "equal": (page("a"), page("a")),
    "nothing": ([], []),
    "last digits": (page("[0.49369999999999997]"), page("[0.4937000000000001]")),
    "rounded": (page("[0.49369999999999997]"), page("[0.4937]")),
    "one": (page("[0.9999999999999999]"), page("[1]")),
}
OTHER = {
    "a letter": (page("a"), page("b")),
    "an end": (page("a"), page("ab")),
    "a form": (page("a"), page("a", "text/plain")),
    "nothing": (page("a"), []),
    "a sign": (page("[0.49369999999999997]"), page("[-0.49369999999999997]")),
    "a digit": (page("[0.49369999999999997]"), page("[0.4937000007000003]")),
    "a short number": (page("0.4936"), page("0.4937")),
    "last digits of a text": (page("0.49369999999999997", "text/plain"), page("0.4937000000000001", "text/plain")),
}


@pytest.mark.parametrize(("kept", "found"), SAME.values(), ids=SAME)
def test_no_difference(kept, found):
    assert difference(kept, found) is None


@pytest.mark.parametrize(("kept", "found"), OTHER.values(), ids=OTHER)
def test_differences_are_reported(kept, found):
    assert "kept" in difference(kept, found)
    assert "kept" in difference(found, kept)
