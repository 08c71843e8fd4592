# SPDX-License-Identifier: Apache-2.0
"""Saved results of bench/training, their checks, and their tables.

{"run": {date, cpu, commit, versions, ...}, "task": {...}, "gflop": ...,
 "check": {"losses": {contender: [...]}, "norms": {...}, "largest_difference": ...},
 "speed": {"1": {"rounds": [{contender: [seconds per step], "ceiling": [before, after]}], ...}},
 "curves": {contender: {seed: [loss per step]}}}
"""

import math
import statistics

CONTENDERS = ("fovea", "torch")
# Losses in the table are means over this many steps.
WINDOW = 20
# Seeds of dropout.
SEEDS = (1, 2, 3)
# Quantile of Student's t distribution that is exceeded with a probability of 1 %, for len(SEEDS) seeds of each
# contender.
MOST_ERRORS = 4.6
# Tolerances for the relative difference of the same float32 computation with another summation order. The first
# loss may differ by a few ulp. Gradients may differ more, because an input of relu occasionally has the other sign.
# Later losses may differ more, because Adam's first steps are equally large for large and for tiny gradients.
FIRST_DIFFERENCE = 2e-6
LATER_DIFFERENCE = 1e-4


def worst_difference(ours, theirs):
    """Returns the largest relative difference of corresponding numbers; inf if one is None or the lengths differ."""
    if len(ours) != len(theirs):
        return math.inf
    pairs = zip(ours, theirs, strict=True)
    return max((math.inf if a is None or b is None else abs(a - b) / abs(b) for a, b in pairs), default=math.inf)


def judge_check(answers):
    """Returns the record of the check, in which both contenders made the same steps without dropout."""
    ours, theirs = (answers[name] for name in CONTENDERS)
    first = worst_difference(ours["losses"][:1], theirs["losses"][:1])
    norm = worst_difference(ours["norms"][:1], theirs["norms"][:1])
    later = worst_difference(ours["losses"], theirs["losses"])
    return {"losses": {name: answers[name]["losses"] for name in CONTENDERS},
            "norms": {name: answers[name]["norms"] for name in CONTENDERS},
            "first_difference": first, "norm_difference": norm, "later_difference": later,
            "agrees": first <= FIRST_DIFFERENCE and max(norm, later) <= LATER_DIFFERENCE}  # fmt: skip


def median_seconds(speed, name):
    return statistics.median(seconds for one in speed["rounds"] for seconds in one[name])


def ratio(speed):
    """Returns Fovea's speedup over PyTorch: the median over rounds, in which the contenders alternate."""
    return statistics.median(statistics.median(one["torch"]) / statistics.median(one["fovea"])
                             for one in speed["rounds"])  # fmt: skip


def share(speed, name, gflop):
    """Returns the share of the ceiling: the higher of those measured before and after each round."""
    return statistics.median(gflop / statistics.median(one[name]) / max(one["ceiling"]) for one in speed["rounds"])


def windows(losses):
    return [statistics.fmean(losses[first : first + WINDOW]) for first in range(0, len(losses), WINDOW)]


def judge_curves(curves):
    """Compares the contenders' mean losses over all seeds and the second half of the steps. Returns {"difference",
    "error", "equal"}: the difference of these means, its standard error estimated from the variance between seeds,
    and whether chance explains the difference."""
    means = [[statistics.fmean(losses[len(losses) // 2 :]) for losses in curves[name].values()]
             for name in CONTENDERS]  # fmt: skip
    difference = abs(statistics.fmean(means[0]) - statistics.fmean(means[1]))
    error = math.sqrt(sum(statistics.variance(some) / len(some) for some in means))
    return {"difference": difference, "error": error, "equal": difference <= MOST_ERRORS * error}


# ---- tables ------------------------------------------------------------------------------------


def sentence(run):
    versions = ", ".join(f"{name} {version}" for name, version in sorted(run["versions"].items()))
    commit = run["commit"] + ("+" if run["dirty"] else "")
    return (f"{run['cpu']}, {run['cores']} cores; {run['compiler']}; {run['target']}; commit {commit}; "
            f"{run['date'][:10]}; {versions}.")  # fmt: skip


def table(heading, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [heading, *rows]]
    lines.insert(1, "|:--|" + "--:|" * (len(heading) - 1))
    return lines


def speed_table(kept):
    rows = []
    for threads, speed in sorted(kept["speed"].items()):
        cells = []
        for name in CONTENDERS:
            seconds = median_seconds(speed, name)
            cells += [f"{seconds * 1e3:.0f} ms", f"{kept['gflop'] / seconds:.1f}",
                      f"{share(speed, name, kept['gflop']) * 100:.1f} %"]  # fmt: skip
        # Rounded down, so that a slower result never reads 1.00.
        rows.append([threads, *cells, f"{math.floor(ratio(speed) * 100 + 1e-6) / 100:.2f} x"])
    heading = ["threads", "Fovea", "GFLOP/s", "of ceiling", "PyTorch", "GFLOP/s", "of ceiling", "Fovea / PyTorch"]
    return table(heading, rows)


def curves_table(kept):
    curves = kept["curves"]
    columns = [(name, seed) for name in CONTENDERS for seed in curves[name]]
    smoothed = [windows(curves[name][seed]) for name, seed in columns]
    heading = ["steps", *(f"{'Fovea' if name == 'fovea' else 'PyTorch'}, seed {seed}" for name, seed in columns)]
    rows = [[f"{place * WINDOW + 1} to {(place + 1) * WINDOW}", *(f"{loss:.3f}" for loss in losses)]
            for place, losses in enumerate(zip(*smoothed, strict=True))]  # fmt: skip
    return table(heading, rows)


def page(kept):
    """Returns the text between the markers of docs/benchmarks.md."""
    check, rounds = kept["check"], {len(speed["rounds"]) for speed in kept["speed"].values()}
    lines = [sentence(kept["run"]) + f" Medians of {max(rounds)} rounds.", "", *speed_table(kept), ""]
    steps = len(check["losses"]["fovea"])
    lines.append(f"Without dropout, the relative difference of the first losses is {check['first_difference']:.1e}, that of "
                 f"their gradient norms {check['norm_difference']:.1e}, and that of the losses of the first {steps} steps at "
                 f"most {check['later_difference']:.1e}.")  # fmt: skip
    if "curves" in kept:
        judged = judge_curves(kept["curves"])
        verdict = "equal within noise" if judged["equal"] else "**not equal**"
        lines[-1] += (f" With dropout, losses are {verdict}: their means over the second half of the steps differ by "
                      f"{judged['difference']:.4f}, and the standard error of this difference is {judged['error']:.4f}, "
                      f"with {len(SEEDS)} seeds each.")  # fmt: skip
        lines += ["", *curves_table(kept)]
    return "\n".join(lines)
