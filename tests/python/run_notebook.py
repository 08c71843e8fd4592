# SPDX-License-Identifier: Apache-2.0
"""Runs a notebook without Jupyter: each cell in one namespace, its output what it prints and the repr of its
last expression, in every form that the value offers.

    run_notebook.py NOTEBOOK          prints the notebook with the outputs of this run
    run_notebook.py --write NOTEBOOK  puts them into the file

A value's text is its repr(), as Jupyter has it but for long lists and dicts, which Jupyter breaks into lines.
"""

import ast
import contextlib
import io
import json
import os
import pathlib
import sys

FORMS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}


def lines(text):
    return text.splitlines(keepends=True)


def run_cell(source, name, namespace):
    """The cell's outputs, as they are kept in a notebook but for the count of a result."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
    with contextlib.redirect_stdout(streams["stdout"]), contextlib.redirect_stderr(streams["stderr"]):
        exec(compile(tree, name, "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs = [
        {"name": stream, "output_type": "stream", "text": lines(written.getvalue())}
        for stream, written in streams.items()
        if written.getvalue()
    ]
    if value is not None:
        data = {form: lines(getattr(value, method)()) for form, method in FORMS.items() if hasattr(value, method)}
        data["text/plain"] = lines(repr(value))
        outputs.append({"data": data, "metadata": {}, "output_type": "execute_result"})
    return outputs


def run(path):
    """The notebook with the outputs of this run; it runs in its own folder, as in Jupyter."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    os.chdir(path.parent)
    sys.path.insert(0, "")
    namespace = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        cell["execution_count"] = count
        cell["outputs"] = run_cell("".join(cell["source"]), f"<cell {cell['id']}>", namespace)
        for output in cell["outputs"]:
            if output["output_type"] == "execute_result":
                output["execution_count"] = count
    return notebook


def dump(notebook):
    """The one text of a notebook, so that a change of a notebook is a change of what it says."""
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def main():
    *options, path = sys.argv[1:]
    path = pathlib.Path(path).resolve()
    text = dump(run(path))
    if options == ["--write"]:
        path.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
