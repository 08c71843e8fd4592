# SPDX-License-Identifier: Apache-2.0
"""The summary of a grid of shapes, random or named, and its tables, from bench/results/grid.json."""

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
    for kind in (*shapes.MEANING, *shapes.NAMED_MEANING):
        mine = [cell for cell in cells if cell["kind"] == kind]
        if not mine:
            continue
        entry = kinds[kind] = {"cells": len(mine)}
        for door in DOORS:
            ratios = [cell[door] for cell in mine]
            entry[door] = {"lost": sum(ratio < 1 for ratio in ratios),
                           "median": round(statistics.median(ratios), 2), "worst": round(min(ratios), 2)}
        if "decode" in mine[0]:
            entry["times_decode"] = round(max(cell["decode"] / cell["sdpa"] for cell in mine), 3)
    return kinds


def lost(cells, door):
    """Returns the cells that Fovea loses through a door, the worst first."""
    return sorted((cell for cell in cells if cell[door] < 1), key=lambda cell: cell[door])


def is_named(record):
    return record.get("named", False)


def count_of_cells(record):
    return sum(entry["cells"] for entry in record["kinds"].values())


def threads_text(record):
    return "one thread" if record["threads"] == 1 else f"{record['threads']} threads"


def sentence(kept):
    """Returns what the README says of all records of random shapes."""
    groups = {}
    for one in kept:
        if is_named(one):
            continue
        worst = min(entry["sdpa"]["worst"] for entry in one["kinds"].values())
        count = len(lost(one["lost"], "sdpa"))
        said = f"{count} of {count_of_cells(one)} in {one['dtype']} (worst {worst:.2f})"
        if count == 0:
            said = f"none of {count_of_cells(one)} in {one['dtype']}"
        where = f"{one['cpu']}, {one['target']}, {threads_text(one)}"
        group = groups.setdefault(where, {"lost": [], "dates": set()})
        group["lost"].append(said)
        group["dates"].add(one["date"])
    if not groups:
        return ""
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
        drawn = f"{seeds} {', '.join(map(str, one['seeds']))}, {one['seconds']:g} s each"
        title = f"{'Named shapes, ' if is_named(one) else ''}{one['dtype']}, {one['target']}, {threads_text(one)}"
        lines += [f"**{title}**: {len(lost(one['lost'], 'sdpa'))} of {count_of_cells(one)} cells lost. {one['cpu']}; "
                  f"{versions}; {'' if is_named(one) else drawn + '; '}commit {one['commit']}; {one['date']}.", "",
                  "| kind | cells | lost | median | worst | `fovea.attention`: lost | median | worst |",
                  "|:--|--:|--:|--:|--:|--:|--:|--:|"]
        meaning = {**shapes.MEANING, **shapes.NAMED_MEANING}
        for kind, entry in one["kinds"].items():
            figures = " | ".join(f"{entry[door]['lost']} | {entry[door]['median']:.2f} | {entry[door]['worst']:.2f}"
                                 for door in DOORS)
            lines.append(f"| {kind}: {meaning[kind]} | {entry['cells']} | {figures} |")
        lines.append("")
        for entry in one["kinds"].values():
            if "times_decode" in entry:
                lines += ["One query through `scaled_dot_product_attention` takes at most "
                          f"{entry['times_decode']:.3f} times as long as through `fovea.decode`.", ""]
        for door, text in (("sdpa", "Lost"), ("attention", "Lost by `fovea.attention`")):
            cells = lost(one["lost"], door)
            # Older records list only the cells lost by sdpa. A ratio of 0.996 is printed as 0.99, not as 1.00.
            if cells and len(cells) == sum(entry[door]["lost"] for entry in one["kinds"].values()):
                told = "; ".join(f"{min(cell[door], 0.99):.2f} {cell['title']}" for cell in cells)
                lines += [f"{text}: {told}.", ""]
    return "\n".join(lines).rstrip("\n")
