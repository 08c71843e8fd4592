#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps a benchmark run, and writes its tables into docs/benchmarks.md.

    make bench && python3 bench/report.py

reads build/release/explain_bench.json, keeps what matters in bench/results/explain.json together
with the machine, the compiler, the commit and the date, and replaces the part of
docs/benchmarks.md between its markers. Give --keep to only rewrite the page from what is kept.
"""

import argparse
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = ROOT / "build" / "release" / "explain_bench.json"
KEPT = ROOT / "bench" / "results" / "explain.json"
PAGE = ROOT / "docs" / "benchmarks.md"
MARKERS = ("<!-- begin: written by bench/report.py -->", "<!-- end -->")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def commit():
    """The commit, and whether the tree has changes on top."""
    dirty = output("git", "status", "--porcelain", "--untracked-files=no").strip()
    return output("git", "rev-parse", "--short", "HEAD").strip(), bool(dirty)


def keep():
    run = json.loads(RUN.read_text())
    info = json.loads(output("build/release/fovea", "info", "--json"))
    medians = {}
    for row in run["benchmarks"]:
        name, _, aggregate = row["name"].rpartition("_")
        if aggregate in ("median", "stddev"):
            entry = medians.setdefault(name.removesuffix("/real_time"), {})
            entry[aggregate + "_ms"] = round(row["real_time"], 4)
    name, dirty = commit()
    kept = {
        "machine": machine(),
        "processors": run["context"]["num_cpus"],
        "compiler": info["compiler"],
        "commit": name + ("+" if dirty else ""),
        "date": run["context"]["date"][:10],
        "repetitions": 9,
        "results": medians,
    }
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=2) + "\n")


def tables(kept):
    results = kept["results"]
    lines = [
        f"{kept['machine']}, {kept['processors']} processors; {kept['compiler']}; "
        f"commit {kept['commit']}; {kept['date']}. Medians of {kept['repetitions']} interleaved "
        "repetitions, in milliseconds.",
        "",
        "| whole process, start to exit | text | html |",
        "|:--|--:|--:|",
    ]
    scenes = sorted({name.split("/")[1] for name in results if name.startswith("process/")})
    for scene in scenes:
        cells = [f"{results[f'process/{scene}/{form}']['median_ms']:.2f}" for form in ("text", "html")]
        lines.append(f"| {scene} | {' | '.join(cells)} |")
    parts = ["parse", "trace", "text", "json", "markdown", "html"]
    lines += ["", "| in the library | " + " | ".join(parts) + " |", "|:--|" + "--:|" * len(parts)]
    for scene in sorted({name.split("/")[1] for name in results if name.startswith("library/")}):
        cells = [f"{results[f'library/{scene}/{part}']['median_ms']:.3f}" for part in parts]
        lines.append(f"| {scene} | {' | '.join(cells)} |")
    return "\n".join(lines)


def replace_part(markers, body):
    """Puts body between these two markers of the page, which has them once; the rest stays."""
    pattern = re.escape(markers[0]) + ".*?" + re.escape(markers[1])
    replaced, count = re.subn(
        pattern, lambda _: f"{markers[0]}\n{body}\n{markers[1]}", PAGE.read_text(), flags=re.S
    )
    if count != 1:
        raise SystemExit(f"{PAGE}: expected one pair of {markers[0]} ... {markers[1]}, got {count}")
    PAGE.write_text(replaced)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="only rewrite the page")
    if not parser.parse_args().keep:
        keep()
    replace_part(MARKERS, tables(json.loads(KEPT.read_text())))


if __name__ == "__main__":
    main()
