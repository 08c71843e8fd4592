# SPDX-License-Identifier: Apache-2.0
"""The summary of a grid of random shapes, and its tables, from bench/results/grid.json."""

import json
import pathlib
import statistics

import shapes

KEPT = pathlib.Path(__file__).resolve().parent.parent / "results" / "grid.json"
MARKERS = ("<!-- grid:begin -->", "<!-- grid:end -->")
DOORS = ("sdpa", "attention")


def load():
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []


def summary(cells):
    """Returns {kind: {"cells": count, door: {"lost", "median", "worst"}}} for the kinds that have cells."""
    kinds = {}
    for kind in shapes.DRAW:
        mine = [cell for cell in cells if cell["kind"] == kind]
        if not mine:
            continue
        entry = kinds[kind] = {"cells": len(mine)}
        for door in DOORS:
            ratios = [cell[door] for cell in mine]
            entry[door] = {"lost": sum(ratio < 1 for ratio in ratios),
                           "median": round(statistics.median(ratios), 2), "worst": round(min(ratios), 2)}
    return kinds


def count_of_cells(record):
    return sum(entry["cells"] for entry in record["kinds"].values())


def threads_text(record):
    return "one thread" if record["threads"] == 1 else f"{record['threads']} threads"


def sentence(kept):
    """Returns what the README says of all records."""
    if not kept:
        return ""
    groups = {}
    for one in kept:
        worst = min(entry["sdpa"]["worst"] for entry in one["kinds"].values())
        lost = f"{len(one['lost'])} of {count_of_cells(one)} in {one['dtype']} (worst {worst:.2f})"
        if not one["lost"]:
            lost = f"none of {count_of_cells(one)} in {one['dtype']}"
        where = f"{one['cpu']}, {one['target']}, {threads_text(one)}"
        group = groups.setdefault(where, {"lost": [], "dates": set()})
        group["lost"].append(lost)
        group["dates"].add(one["date"])
    parts = [f"{', '.join(group['lost'])} on {where}, {' and '.join(sorted(group['dates']))}"
             for where, group in groups.items()]
    return ("Of random everyday shapes through `scaled_dot_product_attention`, Fovea is slower than PyTorch in "
            f"{'; '.join(parts)} ([the kinds](docs/benchmarks.md#random-shapes)).")


def page(kept):
    if not kept:
        return "Not measured yet: `bench/grid/run --keep` does."
    lines = []
    for one in kept:
        versions = ", ".join(f"{name} {version}" for name, version in one["versions"].items())
        seeds = "seed" if len(one["seeds"]) == 1 else "seeds"
        lines += [f"**{one['dtype']}, {one['target']}, {threads_text(one)}**: {len(one['lost'])} of "
                  f"{count_of_cells(one)} cells lost. {one['cpu']}; {versions}; {seeds} "
                  f"{', '.join(map(str, one['seeds']))}, {one['seconds']:g} s each; commit {one['commit']}; "
                  f"{one['date']}.", "",
                  "| kind | cells | lost | median | worst | `fovea.attention`: lost | median | worst |",
                  "|:--|--:|--:|--:|--:|--:|--:|--:|"]
        for kind, entry in one["kinds"].items():
            figures = " | ".join(f"{entry[door]['lost']} | {entry[door]['median']:.2f} | {entry[door]['worst']:.2f}"
                                 for door in DOORS)
            lines.append(f"| {kind}: {shapes.MEANING[kind]} | {entry['cells']} | {figures} |")
        lines.append("")
        if one["lost"]:
            lines += ["Lost: " + "; ".join(f"{cell['sdpa']:.2f} {cell['title']}" for cell in one["lost"]) + ".", ""]
    return "\n".join(lines).rstrip("\n")
