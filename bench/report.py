#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves benchmark results in bench/results, and writes the tables of README.md and docs/benchmarks.md.

  bench/report.py                    write the tables from the saved results
  bench/report.py --measure          run the benchmarks, save the results and write the tables;
                                     `make bench` builds the benchmarks and runs this
  bench/report.py --take FILE...     save results printed by `fovea-bench --json` instead of measuring

Results of `fovea explain` are in bench/results/explain.json. Results of attention are in attention.json, one record
for each measured SIMD target: the machine's best, AVX3 if the best is a different one, and AVX2. A new measurement
replaces all previous results. --take replaces those of the same machine; of a target that another machine has
measured, it adds a second record. bench/peers/run measures other libraries and writes its own tables; the README repeats
some of its figures.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "bench" / "peers"), str(ROOT / "bench" / "grid")]
import cells  # noqa: E402
import results  # noqa: E402
import tables  # noqa: E402: of bench/grid

KEPT = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
EXPLAIN_MARKERS = ("<!-- explain:begin -->", "<!-- explain:end -->")
FORWARD_MARKERS = ("<!-- forward:begin -->", "<!-- forward:end -->")
SPEED_MARKERS = ("<!-- speed:begin -->", "<!-- speed:end -->")
EXPLAIN_REPETITIONS = 9


# ---- records -----------------------------------------------------------------------------------


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def machine():
    """Returns the name of this machine's CPU, as bench/attention/machine.cc."""
    return cpu_name(pathlib.Path("/proc/cpuinfo").read_text())


def cpu_name(cpuinfo):
    """Returns the name of the first CPU in the text of /proc/cpuinfo. A name without a number, which a hypervisor may
    hide, is followed by the generation, as in "AMD EPYC (Zen 4)", or by family and model."""
    first, _, _ = cpuinfo.partition("\n\n")
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    name, family, model = facts.get("model name"), facts.get("cpu family"), facts.get("model")
    if not name or re.search(r"\d", name) or not family:
        return name or "unknown CPU"
    if facts.get("vendor_id") == "AuthenticAMD":
        if family == "26":
            return f"{name} (Zen 5)"
        if family == "25" and "avx512f" in facts["flags"]:
            return f"{name} (Zen 4)"
        if family == "25" and model in ("0", "1"):
            return f"{name} (Zen 3)"
    return f"{name} (family {family}, model {model})"


def commit():
    """Returns the commit, and whether the tree has uncommitted changes that can affect a measurement."""
    texts = [f":(exclude){path}" for path in ("*.md", "docs", "bench/results")]
    dirty = output("git", "status", "--porcelain", "--untracked-files=no", "--", ".", *texts).strip()
    return output("git", "rev-parse", "--short", "HEAD").strip(), bool(dirty)


def commit_text():
    name, dirty = commit()
    return name + ("+" if dirty else "")


def caption(kept):
    """Returns the first sentence of every table: machine, compiler, commit and date."""
    return (f"{kept['machine']}, {kept['processors']} processors; {kept['compiler']}; "
            f"commit {kept['commit']}; {kept['date']}.")


def load(name):
    """Returns the saved results, or None if there are none."""
    path = KEPT / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def measured(program, *arguments, **environment):
    """Runs the program and returns its standard output. Progress on standard error is shown."""
    if not program.exists():
        raise SystemExit(f"bench/report.py: no {program}; run make bench")
    run = subprocess.run([program, *arguments], env={**os.environ, **environment}, stdout=subprocess.PIPE)
    if run.returncode != 0:
        raise SystemExit(f"bench/report.py: {program.name} ended with {run.returncode}; nothing was kept")
    return run.stdout.decode()


def measure_explain(build, commit_name):
    run = json.loads(measured(
        build / "bench" / "explain_bench", f"--benchmark_repetitions={EXPLAIN_REPETITIONS}",
        "--benchmark_min_time=0.1", "--benchmark_enable_random_interleaving=true",
        "--benchmark_report_aggregates_only=true", "--benchmark_format=json"))
    info = json.loads(measured(build / "fovea", "info", "--json"))
    medians = {}
    for row in run["benchmarks"]:
        name, _, aggregate = row["name"].rpartition("_")
        if aggregate in ("median", "stddev"):
            entry = medians.setdefault(name.removesuffix("/real_time"), {})
            entry[aggregate + "_ms"] = round(row["real_time"], 4)
    return {
        "machine": machine(),
        "processors": run["context"]["num_cpus"],
        "compiler": info["compiler"],
        "commit": commit_name,
        "date": run["context"]["date"][:10],
        "repetitions": EXPLAIN_REPETITIONS,
        "results": medians,
    }


def measure_forward(build):
    """Returns the output of `fovea-bench --json` for the best SIMD target, and for AVX3 and AVX2 on other machines."""
    info = json.loads(measured(build / "fovea", "info", "--json"))
    targets = [info["targets"][0], *(name for name in info["targets"][1:] if name in ("AVX3", "AVX2"))]
    return [measured(build / "fovea-bench", "--json", FOVEA_TARGET=target) for target in targets]


def median(numbers):
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def in_short(number):
    return float(f"{number:.5g}") if isinstance(number, float) else number


def kept_row(row):
    """Returns the row in saved form: the median time of each round, and numbers rounded to five digits."""
    kept = {name: in_short(value) for name, value in row.items() if name != "rounds"}
    kept["rounds"] = [{"calls": len(one["seconds"]), "median_s": in_short(median(one["seconds"])),
                       **{name: [in_short(ceiling) for ceiling in one[name]]
                          for name in ("ceilings_gflops", "ceilings_gb_per_s") if name in one}}
                      for one in row["rounds"]]
    return kept


def forward_record(printed, commit_name, date):
    """Returns (target, record) for the output of `fovea-bench --json`."""
    run = json.loads(printed)
    if not run.get("forward"):
        raise ValueError("it has no part \"forward\"")
    record = {"machine": run["cpu"], "processors": run["cpus"], "compiler": run["compiler"],
              "build_type": run["build_type"], "commit": commit_name, "date": date}
    record["ceilings"] = [{name: in_short(value) for name, value in one.items()}
                          for one in run.get("ceilings", [])]
    for part in ("forward", "backward", "decode", "lenses"):
        if part in run:
            record[part] = [kept_row(row) for row in run[part]]
    if "looks" in run:
        record["looks"] = [{name: in_short(value) for name, value in look.items() if name != "seconds"}
                           for look in run["looks"]]
    if "tiny" in run:
        record["tiny"] = {name: in_short(run["tiny"][name]) for name in ("median_s", "best_s", "at_most_s")}
    if "memory" in run:
        record["memory"] = run["memory"]
    return run["target"], record


def keep_forward(records):
    kept = load("attention.json") or {}
    for target, record in dict(records).items():
        others = target in kept and kept[target]["machine"] != record["machine"]
        kept[f"{target}, {record['machine']}" if others else target] = record
    results.save(KEPT / "attention.json", kept)


# ---- tables ------------------------------------------------------------------------------------


def table(heading, rows):
    """Returns the lines of a table with the first column left-aligned and all others right-aligned."""
    lines = ["| " + " | ".join(row) + " |" for row in [heading, *rows]]
    lines.insert(1, "|:--|" + "--:|" * (len(heading) - 1))
    return lines


def explain_tables(kept):
    figures = kept["results"]

    def rows(kind, parts, digits):
        scenes = sorted({name.split("/")[1] for name in figures if name.startswith(kind + "/")})
        return [[scene, *(f"{figures[f'{kind}/{scene}/{part}']['median_ms']:.{digits}f}" for part in parts)]
                for scene in scenes]

    forms, parts = ["text", "html"], ["parse", "trace", "text", "json", "markdown", "html"]
    return "\n".join([
        f"{caption(kept)} Medians of {kept['repetitions']} interleaved repetitions, in milliseconds.",
        "", *table(["whole process, start to exit", *forms], rows("process", forms, 2)),
        "", *table(["in the library", *parts], rows("library", parts, 3)),
    ])


def describe(problem):
    """Describes a problem of `fovea-bench`'s JSON in the same form as its table."""
    def both(a, b):
        return f"{a}" if a == b else f"{a}/{b}"

    length = f"{problem['q_len']}" + (f" x {problem['kv_len']}" if problem["kv_len"] != problem["q_len"] else "")
    parts = [f"N {length}", f"D {both(problem['head_dim'], problem['value_dim'])}"]
    if (problem["q_heads"], problem["kv_heads"]) != (1, 1):
        parts.append(f"{both(problem['q_heads'], problem['kv_heads'])} heads")
    if problem["batch"] != 1:
        parts.append(f"batch {problem['batch']}")
    if problem["mask"] != "all":
        parts.append(problem["mask"])
    if problem["softcap"]:
        parts.append(f"softcap {problem['softcap']:g}")
    parts += [name for key, name in (("alibi", "ALiBi"), ("bias", "bias"), ("relative", "relative table"),
                                     ("functor", "functor")) if problem[key]]
    if problem["dtype"] != "float32":
        parts.append(problem["dtype"])
    lenses = problem.get("lenses", {})
    if lenses.get("map_rows"):
        parts.append(f"map {lenses['map_rows']} x {lenses['map_columns']}")
    if lenses.get("statistics"):
        parts.append("statistics")
    if lenses.get("top"):
        parts.append(f"top {lenses['top']}")
    if lenses.get("received"):
        parts.append("received")
    if lenses.get("relevance"):
        parts.append("gradients, relevance")
    if lenses.get("rising"):
        parts.append("rising scores")
    if problem["block_size"]:
        parts.append(f"blocks of {problem['block_size']}")
    return ", ".join(parts)


def time_text(seconds):
    for unit, per_second in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3), ("s", 1)):
        number = seconds * per_second
        if number < 999.5 or unit == "s":
            return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f} {unit}"


def percent(share):
    return f"{share * 100:.1f} %"


def judged(row):
    """Returns the texts (measured, floor) of a row: its share of the ceiling, or its speedup over the comparison. For
    lenses, returns the time relative to the same call without lenses, and the limit of that ratio."""
    if "cost" in row:
        most = row["cost_at_most"]
        floor = "–" if most is None else f"{most:.2f} x" + (" **missed**" if row["cost"] > most else "")
        return f"{row['cost']:.3f} x", floor
    if row["speedup"] is not None:
        value, floor, text = row["speedup"], row["speedup_at_least"], lambda number: f"{number:.2f} x"
    else:
        value, floor, text = row["share"], row["share_at_least"], percent
    if row["at_most_s"] is not None:
        missed = row["median_s"] > row["at_most_s"]
        return text(value), f"≤ {time_text(row['at_most_s'])}" + (" **missed**" if missed else "")
    if floor is None:
        return text(value), "–"
    return text(value), text(floor) + (" **missed**" if value < floor else "")


def rows_table(rows, unit, rate, measured="of ceiling", floor="at least"):
    lines = []
    for row in rows:
        lines.append([describe(row["problem"]), str(row["threads"]), time_text(row["median_s"]),
                      f"{row[rate]:.1f}", *judged(row), f"{row['error']:.1e}", f"{row['allowed_error']:.1e}"])
    return table(["one call", "threads", "median", unit, measured, floor, "error", "allowed"], lines)


def look_text(look):
    of = f"N {look['length']}, D {look['head_dim']}"
    if look["cells"]:
        side = look["queries"] // look["cells"]
        return f"{look['cells']} x {look['cells']} cells of {side} x {side}, of {of}"
    if look["queries"] == 1 and look["keys"] == look["length"]:
        return f"a row, of {of}"
    return f"{look['queries']} x {look['keys']}, of {of}"


def looks_table(looks):
    lines = []
    for look in looks:
        most = look["at_most_s"]
        missed = " **missed**" if most is not None and look["median_s"] > most else ""
        lines.append([look_text(look), time_text(look["median_s"]), time_text(look["best_s"]),
                      ("–" if most is None else time_text(most)) + missed, f"{look['error']:.1e}"])
    return table(["one call", "median", "best", "at most", "error"], lines)


def best_first(kept):
    """Returns (target, record) pairs, with AVX2 last because it is measured in addition to the best target, and
    further machines after the first one."""
    return sorted(kept.items(), key=lambda item: ("," in item[0], item[0].startswith("AVX2")))


def rounds_text(rows):
    fewest, most = min(len(row["rounds"]) for row in rows), max(len(row["rounds"]) for row in rows)
    return f"{most} round" + ("s" if most > 1 else "") if fewest == most else f"{fewest} to {most} rounds"


def forward_page(kept):
    """Returns the part of docs/benchmarks.md on attention_forward (with and without lenses), attention_backward and
    attention_decode."""
    if not kept:
        return "Not measured yet: `make bench` does."
    lines = []
    for target, record in best_first(kept):
        rows = [row for part in ("forward", "backward", "decode", "lenses") for row in record.get(part, [])]
        missed = sum("missed" in judged(row)[1] for row in rows)
        floors = sum(judged(row)[1] != "–" for row in rows)
        lines += [f"### {target}", "", f"{caption(record)} Medians of {rounds_text(rows)}."]
        if floors:
            lines.append(f"Of {floors} rows with a floor, {missed or 'none'} missed it.")
        for one in record["ceilings"]:
            threads = f"{one['threads']} thread" + ("s" if one["threads"] > 1 else "")
            bf16 = f"{one['bf16_gflops']:.0f} of bfloat16 products, " if one["bf16_gflops"] else ""
            lines.append(f"Ceilings of {threads}: {one['fma_gflops']:.0f} GFLOP/s of float32 FMA, {bf16}"
                         f"{one['read_gb_per_s']:.1f} GB/s of memory reads.")
        if "tiny" in record:
            tiny = record["tiny"]
            limit = f" (at most {time_text(tiny['at_most_s'])})" if tiny["at_most_s"] else ""
            lines.append(f"A call with 4 queries and 4 keys of 3 dimensions: {time_text(tiny['median_s'])}{limit}.")
        if "memory" in record:
            memory = record["memory"]
            missed = " **missed**" if memory["bytes"] > memory["at_most"] else ""
            lines.append(f"Memory in addition to inputs and outputs, for {describe(memory['problem'])}: "
                         f"{memory['bytes'] * 1e-6:.1f} MB (at most {memory['at_most'] * 1e-6:.0f} MB){missed}.")
        lines += ["", "`attention_forward`", "", *rows_table(record["forward"], "GFLOP/s", "gflops"), ""]
        if "backward" in record:
            lines += ["`attention_backward`", "", *rows_table(record["backward"], "GFLOP/s", "gflops"), ""]
        if "decode" in record:
            lines += ["`attention_decode`", "", *rows_table(record["decode"], "GB/s", "gb_per_s"), ""]
        if "lenses" in record:
            lines += ["`attention_forward` with lenses; \"of plain\": time relative to the same call without lenses", "",
                      *rows_table(record["lenses"], "GFLOP/s", "gflops", "of plain", "at most"), ""]
        if "looks" in record:
            lines += ["Recomputed weights: `attention_weights` and `attention_row`", "",
                      *looks_table(record["looks"]), ""]
    return "\n".join(lines[:-1])


# ---- the README's table ------------------------------------------------------------------------

# Names of cells in bench/peers/cells.py, measured with one thread.
SPEED_ROWS = ["full_4096_64", "full_4096_128", "causal_4096_64", "window_16384_64", "softcap_4096_64"]
LIBRARIES = {
    "PyTorch": ["torch_sdpa", "torch_flex"],
    "ONNX Runtime": ["ort_mha", "ort_gqa", "ort_attention"],
    "JAX": ["jax"],
}
SPEED_TEXT = "Float32 on one thread: useful GFLOP/s, and the share of the CPU's limit for multiply-adds"
PEERS_TEXT = ("Right: Fovea's speed as a multiple of each library's fastest call (**below 1** Fovea is slower, – the library "
              "has no such call)")


def problem_of(cell):
    """Converts a cell of bench/peers to a problem of `fovea-bench`; its tables may lack this problem."""
    masks = {"full": "all", "causal": "causal()", "window": f"window({cell.window}, 0)"}
    return {"batch": 1, "q_heads": cell.q_heads, "kv_heads": cell.kv_heads, "q_len": cell.length,
            "kv_len": cell.length, "head_dim": cell.key_dim, "value_dim": cell.value_dim,
            "mask": masks.get(cell.mask, cell.mask), "softcap": cell.softcap, "alibi": cell.score == "alibi",
            "bias": cell.score == "bias", "relative": False, "functor": False, "dtype": "float32",
            "block_size": 0}


def own_cells(record, problem):
    """Returns Fovea's speed and share of the ceiling on one thread, empty if `problem` was not measured."""
    for row in record["forward"]:
        if row["threads"] == 1 and describe(row["problem"]) == describe(problem):
            return [f"{row['gflops']:.1f}", percent(row["share"])]
    return ["", ""]


def multiple_text(result, names):
    """Returns Fovea's speed as a multiple of the fastest contender of `names`."""
    if result is None:
        return ""
    ours = results.rate(result, "fovea")
    theirs = [rate for rate in (results.rate(result, name) for name in names) if rate]
    if not ours:
        return "**failed**"
    if not theirs:
        reasons = {reason for name in names for reason in result["measured"].get(name, {})}
        return "**failed**" if reasons & {"wrong", "failed"} else "–"
    text = results.multiple(ours, max(theirs))
    return text if ours >= max(theirs) else f"**{text}**"


def lost_cells(measured):
    """Returns the results in which the fastest peer is faster than Fovea, with any number of threads."""
    return [result for result in measured
            if not result["cell"]["tiny"] and "lost" in results.verdict(result, results.PEERS_OF_THE_TABLE)]


def peers_sentence(by_target):
    counts = []
    for target, measured in by_target.items():
        total = sum(not result["cell"]["tiny"] for result in measured)
        counts.append(f"{len(lost_cells(measured)) or 'none'} of {total} on {target}")
    return (f"Of the problems in this comparison, on one and two threads, Fovea is slower than the fastest peer in "
            f"{', '.join(counts)}.")


def beside(forward, peers):
    """Returns the SIMD target and the record to show beside the comparison: of its machine, or else the first."""
    compared = {(key.partition("/")[0], peers["runs"][result["run"]]["cpu"])
                for key, result in peers["results"].items()} if peers else ()
    records = [(name.partition(",")[0], record) for name, record in best_first(forward)]
    return next((item for item in records if (item[0], item[1]["machine"]) in compared), records[0])


def speed_page(forward, peers, grid=()):
    """Returns the README's table: SPEED_ROWS, and every problem in which a peer is faster on one thread. Mentions
    missing measurements."""
    if not forward and not peers:
        return "Speed: not measured yet; `make bench` and `make bench-peers` do."
    every_cell = {cell.name: cell for cell in cells.every_cell()}
    heading, texts, captions = ["one thread"], [], []
    names = list(SPEED_ROWS)
    target, record = beside(forward, peers) if forward else (None, None)
    if forward:
        heading += ["GFLOP/s", "of limit"]
        texts.append(f"{SPEED_TEXT} ({target}; {caption(record).removesuffix('.')}).")
    else:
        texts.append("Fovea alone: not measured yet; `make bench` does.")
    if peers:
        heading += LIBRARIES
        by_target = results.in_order(peers)
        shown_target = target if target in by_target else next(iter(by_target))  # the one with most problems
        names += [result["cell"]["name"] for result in lost_cells(by_target[shown_target])
                  if result["threads"] == 1 and result["cell"]["name"] not in SPEED_ROWS]
        shown = [peers["results"].get(results.key_of(shown_target, every_cell[name], 1)) for name in names]
        runs = {result["run"]: peers["runs"][result["run"]] for result in shown if result}
        captions = results.sentence(runs)
        texts.append(f"{PEERS_TEXT}. {peers_sentence(by_target)}")
    else:
        texts.append("Comparison with other libraries: not measured yet; `make bench-peers` does.")
    texts[-1] = f"{texts[-1]} {tables.sentence(grid or [])}".rstrip()
    rows = []
    for name in names:
        problem = problem_of(every_cell[name])
        row = [describe(problem)]
        if forward:
            row += own_cells(record, problem)
        if peers:
            result = peers["results"].get(results.key_of(shown_target, every_cell[name], 1))
            row += [multiple_text(result, names) for names in LIBRARIES.values()]
        if any(row[1:]):
            rows.append(row)
    lines = [*texts, "", *table(heading, rows), ""]
    lines += [f"Comparison measured on: {text}" for text in captions]
    return "\n".join(lines).rstrip("\n")


# ---- writing -----------------------------------------------------------------------------------


def replace_part(markers, body, page=PAGE):
    """Replaces the text between the two markers of a page, each of which must occur exactly once."""
    pattern = re.escape(markers[0]) + ".*?" + re.escape(markers[1])
    replaced, count = re.subn(pattern, lambda _: f"{markers[0]}\n{body}\n{markers[1]}",
                              page.read_text(encoding="utf-8"), flags=re.S)
    if count != 1:
        raise SystemExit(f"{page}: expected one pair of {markers[0]} ... {markers[1]}, got {count}")
    page.write_text(replaced, encoding="utf-8")


def write_pages():
    explain, forward = load("explain.json"), load("attention.json")
    if explain:
        replace_part(EXPLAIN_MARKERS, explain_tables(explain))
    replace_part(FORWARD_MARKERS, forward_page(forward))
    replace_part(SPEED_MARKERS, speed_page(forward, load("peers.json"), tables.load()), README)


def take(paths):
    records = []
    for path in paths:
        date = datetime.date.fromtimestamp(path.stat().st_mtime).isoformat()
        try:
            records.append(forward_record(path.read_text(encoding="utf-8"), commit_text(), date))
        except (ValueError, KeyError) as error:
            raise SystemExit(f"{path}: expected what `fovea-bench forward --json` prints: {error}") from None
    keep_forward(records)


def measure(build):
    name, today = commit_text(), datetime.date.today().isoformat()
    explain = measure_explain(build, name)
    records = [forward_record(printed, name, today) for printed in measure_forward(build)]
    results.save(KEPT / "explain.json", explain)
    results.save(KEPT / "attention.json", dict(records))  # drops targets of earlier runs


def main():
    what, _, how = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(description=f"{what}\n\n{how}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--measure", action="store_true", help="run the benchmarks of a build tree")
    source.add_argument("--take", nargs="+", type=pathlib.Path, metavar="FILE",
                        help="keep these; dated by the files, and taken to be of this commit")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release", metavar="DIR",
                        help="the build tree (build/release)")
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.build.resolve())
    elif arguments.take:
        take(arguments.take)
    write_pages()


if __name__ == "__main__":
    main()
