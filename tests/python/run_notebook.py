# SPDX-License-Identifier: Apache-2.0
"""Runs a notebook without Jupyter. All cells share one namespace; the output of a cell is its printed text and the
representations of its last expression.

    run_notebook.py NOTEBOOK          prints the notebook with the outputs of this run
    run_notebook.py --write NOTEBOOK  writes them to the file

The text of a value is its repr(), as in Jupyter, except that Jupyter breaks long lists and dicts into lines.
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
    """Returns the cell's outputs in notebook format, without execution counts."""
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
    """Runs the notebook in its own folder, as Jupyter does, and returns it with the outputs of this run."""
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
    """Returns the canonical text of a notebook, so that diffs show only changes of content."""
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
