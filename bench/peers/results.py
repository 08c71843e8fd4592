# SPDX-License-Identifier: Apache-2.0
"""Results of bench/peers: saved in a JSON file, merged cell by cell, and formatted as tables.

{"runs": {id: {date, cpu, target, commit, versions, ...}},
 "results": {"AVX3/full_512_64/1": {"run": id, "cell": {...}, "threads": 1, "useful_gflop": ...,
                                    "measured": {contender: {"samples_us", "median_us", ...} or a reason}}}}

A new measurement of a cell on the same SIMD target of Fovea replaces its whole record, so that results compared with
each other come from the same rounds. Runs without any cell are dropped.
"""

import dataclasses
import json
import math
import os

import cells

HEADINGS = {
    "fovea": "Fovea",
    "torch_sdpa": "PyTorch SDPA",
    "torch_flex": "FlexAttention",
    "ort_mha": "ORT MHA",
    "ort_gqa": "ORT GQA",
    "ort_attention": "ORT Attention",
    "jax": "JAX",
    "numpy": "NumPy, five calls",
}
# numpy is only measured for the tiny problem, which has a separate table.
PEERS_OF_THE_TABLE = [name for name in HEADINGS if name not in ("fovea", "numpy")]
REASONS = ("cannot", "wrong", "failed")


def load(path):
    if not path.exists():
        return {"runs": {}, "results": {}}
    return json.loads(path.read_text())


def save(path, kept):
    """Saves atomically: a reader finds the old or the new file, also after an interruption."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(kept, indent=1) + "\n")
    os.replace(beside, path)


def key_of(target, cell, threads):
    return f"{target}/{cell.name}/{threads}"


def merge(kept, run_id, run, cell, threads, measured):
    """Returns `kept` with this cell's record added or replaced."""
    results = dict(kept["results"])
    results[key_of(run["target"], cell, threads)] = {
        "run": run_id,
        "cell": dataclasses.asdict(cell),
        "threads": threads,
        "useful_gflop": cell.useful_flop() / 1e9,
        **({"key_value_gbytes": cell.key_value_bytes() / 1e9} if cell.queries else {}),
        "measured": measured,
    }
    used = {result["run"] for result in results.values()}
    runs = {name: old for name, old in {**kept["runs"], run_id: run}.items() if name in used}
    return {"runs": runs, "results": results}


def rate(result, name):
    """Returns GFLOP/s of useful work, or GB/s for decoding, at the median time; None if not measured."""
    median = result["measured"].get(name, {}).get("median_us")
    return result.get("key_value_gbytes", result["useful_gflop"]) / median * 1e6 if median else None


def in_order(kept):
    """Returns {target: results}: the results in the order of every_cell(), followed by those of removed cells. The
    target with the most results comes first."""
    places = {cell.name: place for place, cell in enumerate(cells.every_cell())}
    ordered = {}
    for key, result in sorted(kept["results"].items(), key=lambda item: (
            places.get(item[1]["cell"]["name"], len(places)), item[1]["threads"])):
        ordered.setdefault(key.split("/")[0], []).append(result)
    return dict(sorted(ordered.items(), key=lambda item: -len(item[1])))


def multiple(ours, theirs):
    """Formats the ratio rounded down, so that a slower result never reads 1.00."""
    return f"{math.floor(ours / theirs * 100 + 1e-6) / 100:.2f}"


def peer_text(result, name):
    """Returns a peer's table entry: its rate, and Fovea's rate as a multiple of it."""
    measured = result["measured"].get(name)
    if measured is None:
        return ""
    for reason in REASONS:
        if reason in measured:
            return "–" if reason == "cannot" else f"**{reason}**"
    theirs, ours = rate(result, name), rate(result, "fovea")
    mark = " ᵐ" if measured["how"] == "mask tensor" else ""
    mark += " ᵘ" if measured["note"] else ""
    return f"{theirs:.1f}{mark}" + (f" ({multiple(ours, theirs)})" if ours else "")


def verdict(result, peers):
    """Returns Fovea's rate as a multiple of the fastest peer's, marked as lost if below 1."""
    theirs, ours = [rate(result, name) for name in peers if rate(result, name)], rate(result, "fovea")
    if not theirs or not ours:
        return ""
    text = multiple(ours, max(theirs))
    return text if ours >= max(theirs) else f"**{text} lost**"


def own_text(result, text):
    measured = result["measured"].get("fovea", {})
    failed = [reason for reason in REASONS if reason in measured]
    return f"**{failed[0]}**" if failed else text(measured["median_us"]) if measured else ""


def table(results, unit="GFLOP/s of useful work"):
    present = [name for name in PEERS_OF_THE_TABLE if any(name in result["measured"] for result in results)]
    peers = [HEADINGS[name] for name in present]
    heading = [unit, "threads", "Fovea", *peers, "Fovea / best peer"]
    lines = ["| " + " | ".join(heading) + " |", "|:--|" + "--:|" * (len(heading) - 1)]
    for result in results:
        ours = own_text(result, lambda _: f"{rate(result, 'fovea'):.1f}")
        row = [cells.Cell(**result["cell"]).title(), str(result["threads"]), ours]
        row += [peer_text(result, name) for name in present]
        lines.append("| " + " | ".join([*row, verdict(result, present)]) + " |")
    return lines


def tiny_table(results):
    timed = [name for result in results for name, entry in result["measured"].items() if "median_us" in entry]
    names = [name for name in HEADINGS if name in timed]
    heading = ["one call, in µs", "threads", *(HEADINGS[name] for name in names)]
    lines = ["| " + " | ".join(heading) + " |", "|:--|" + "--:|" * (len(heading) - 1)]
    for result in results:
        medians = [result["measured"].get(name, {}).get("median_us") for name in names]
        row = [f"{median:.2f}" if median else "" for median in medians]
        title = "{length} x {length} x {key_dim}, one head".format(**result["cell"])
        lines.append("| " + " | ".join([title, str(result["threads"]), *row]) + " |")
    return lines


def sentence(runs):
    """Returns one line per run with machine, compiler, commit, date and versions."""
    lines = []
    for run in sorted(runs.values(), key=lambda run: run["date"]):
        versions = ", ".join(f"{name} {version}" for name, version in sorted(run["versions"].items()))
        commit = run["commit"] + (" with changes on top" if run["dirty"] else "")
        lines.append(
            f"{run['cpu']}, {run['cores']} cores; {run['compiler']}; commit {commit}; "
            f"{run['date'][:10]}; {versions}."
        )
    return lines


def footnotes(results):
    """Returns the reasons for missing or failed entries, each reason once."""
    reasons = {}
    for result in results:
        for name, measured in result["measured"].items():
            for reason in REASONS:
                if reason in measured:
                    cell = cells.Cell(**result["cell"])
                    reasons.setdefault((HEADINGS[name], reason, measured[reason]), set()).add(cell.title())
    lines = []
    for (heading, reason, why), titles in sorted(reasons.items()):
        where = "" if reason == "cannot" else f" ({'; '.join(sorted(titles))})"
        label = "not supported" if reason == "cannot" else reason
        lines.append(f"- {heading}, {label}: {why}{where}.")
    return lines


HOW_TO_READ = """\
`bench/peers/run` measures and writes this part; every sample is in `bench/results/peers.json`. The libraries alternate
in random order, each in its own process on the same CPUs and with the same inputs. Each result is compared with float64
before timing. A rate is the median of {rounds}. Batch is 1, and tensors are float32 unless another type is named. D is
the key dimension, or key/value dimension; H is the number of heads, or query/key heads. Useful work is 2 (key dim + value
dim) flop for each query and each key visible to it. For gradients it is 2 (3 key dim + 2 value dim), without the
preceding forward call. For decoding, GB/s counts keys and values once. In parentheses: Fovea's rate as a multiple of the
peer's.

- ᵐ the mask or bias was passed as a tensor, N x N or one row of it, built before timing
- ᵘ not the library's fused path
- – not supported; the reasons are below"""


def rounds_text(results):
    counts = [len(entry["samples_us"]) for result in results for entry in result["measured"].values()
              if "samples_us" in entry]
    fewest, most = min(counts, default=0), max(counts, default=0)
    if fewest == most:
        return "one round" if most == 1 else f"{most} rounds"
    return f"{fewest} to {most} rounds"


def page(kept):
    """Returns the text between the markers of docs/benchmarks.md."""
    lines = ["## Compared with other libraries", ""]
    if not kept["results"]:
        return "\n".join([*lines, "Not measured yet: `bench/peers/run` does."])
    lines += [HOW_TO_READ.format(rounds=rounds_text(kept["results"].values()))]
    for target, results in in_order(kept).items():
        lines += ["", f"### On {target}", "", *part(kept["runs"], results)]
    return "\n".join(lines)


def part(runs, results):
    """Returns the lines of one target."""
    large = [result for result in results if not result["cell"]["tiny"]]
    tiny = [result for result in results if result["cell"]["tiny"]]
    lines = sentence({result["run"]: runs[result["run"]] for result in results})
    if large:
        lost = sum("lost" in verdict(result, PEERS_OF_THE_TABLE) for result in large)
        lines += ["", f"Fovea is slower than the best peer in {lost} of {len(large)} rows."]
        decoding = [result for result in large if "key_value_gbytes" in result]
        backward = [result for result in large if result["cell"].get("backward")]
        forward = [result for result in large if result not in decoding and result not in backward]
        for some in (forward, backward):
            if some:
                lines += ["", *table(some)]
        if decoding:
            lines += ["", *table(decoding, "GB/s of keys and values")]
    if tiny:
        lines += ["", *tiny_table(tiny)]
    if large and (notes := footnotes(large)):
        lines += ["", *notes]
    return lines
