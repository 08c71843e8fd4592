# SPDX-License-Identifier: Apache-2.0
"""The overhead of the Python package, and its tables, from bench/results/python.json (records of bench/peers)."""

import statistics

import cells
import results


def of(measured):
    """Returns the package's overhead over the C++ call in microseconds and as a share of it; None if not measured."""
    package = measured.get("fovea_package", {})
    if "median_us" not in package:
        return None
    into, cpp = package["beside_us"]["into"], package["beside_us"]["cpp"]
    added = statistics.median(ours - theirs for ours, theirs in zip(into, cpp, strict=True))
    return added, added / statistics.median(cpp)


def allowed(measured):
    """Returns whether the overhead was measured and is below 1 us + 1 %."""
    added = of(measured)
    return added is not None and added[0] < 1 + 0.01 * statistics.median(measured["fovea_package"]["beside_us"]["cpp"])


def line(result):
    medians = {name: entry["median_us"] for name, entry in result["measured"].items() if "median_us" in entry}
    said = "  ".join(f"{name} {median:.2f}" for name, median in medians.items())
    added = of(result["measured"])
    if added is not None:
        verdict = "" if allowed(result["measured"]) else "  TOO MUCH"
        said += f"  overhead {added[0]:.2f} us, {added[1]:.2%}{verdict}"
    return f"{cells.Cell(**result['cell']).title()}, threads {result['threads']}: us per call: {said}"


def page(kept):
    """Returns the text between the markers of docs/benchmarks.md: a part for each SIMD target."""
    parts = (f"### On {target}\n\n" + part(kept["runs"], records) for target, records in results.in_order(kept).items())
    return "\n\n".join(parts)


def part(runs, records):
    names = ["fovea", "fovea_package", "torch_sdpa", "numpy"]
    heading = ["one call, in µs", "C++", "Fovea", "PyTorch", "NumPy, five calls", "the package adds", "share"]
    lines = ["| " + " | ".join(heading) + " |", "|:--|" + "--:|" * (len(heading) - 1)]
    for record in records:
        medians = [record["measured"].get(name, {}).get("median_us") for name in names]
        added = of(record["measured"])
        row = [f"{median:.2f}" if median and median < 100 else f"{median:.0f}" if median else "" for median in medians]
        verdict = "" if allowed(record["measured"]) else " **more**"
        row += [f"{added[0]:.2f}", f"{added[1]:.1%}{verdict}"] if added else ["**not measured**", ""]
        lines.append("| " + " | ".join([cells.Cell(**record["cell"]).title(), *row]) + " |")
    return "\n".join([*results.sentence({record["run"]: runs[record["run"]] for record in records}), "", *lines])
