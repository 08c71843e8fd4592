# SPDX-License-Identifier: Apache-2.0
"""Model of a forward pass of fovea::mpi on a cluster, and the tables of docs/distributed.md (bench/mpi/simulate).

A pass is a sequence of steps. In each, a rank computes its queries with the keys that it has, while the next keys
arrive. A step takes as long as the longer of the two:

    max(pairs * seconds per pair, latency + bytes / bandwidth)

The pass also has a few collective calls with little data, which agree on arguments, plan and errors.
"""

import dataclasses
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import report  # noqa: E402

HEADS, DIM = 8, 64
GIGABIT = 1e9 / 8
LINK_LATENCY = 1e-6
# The properties that SimGrid's SMPI gives a link, from measurements of MPI over TCP: the share of the bandwidth and the multiple of
# the latency that messages from 65,472 bytes on reach, and those of a few hundred bytes to a few kilobytes.
LARGE_SHARE, LARGE_LATENCY = 0.940694, 11.6436
SMALL_SHARE, SMALL_LATENCY = 0.608902, 2.0
# Waiting ranks look for messages every 5 µs (simulated_time.h), after 2 ms every 50 µs (mpi_transport.cc).
POLL, PAUSE, SPINNING = 5e-6, 50e-6, 2e-3
# Of a forward pass: arguments, plan, memory, errors.
GATHERS = 5
HEADER_BYTES = 64
ALLOWED = 0.05  # deviation of the model from the simulation

# Down-links of each level of a fat tree, by ranks. Each level has as many up-links as down-links.
TREES = {4: (4,), 16: (4, 4), 64: (8, 8)}


@dataclasses.dataclass(frozen=True)
class Case:
    ranks: int
    tokens: int
    gigabits: int
    speed: int  # of a rank, as a multiple of the measured one
    window: int = 0  # 0: causal, zigzag; otherwise contiguous
    element: int = 4  # bytes; 2: messages of bfloat16, at the same speed

    @property
    def own(self):
        return self.tokens // self.ranks

    @property
    def sharding(self):
        return "contiguous" if self.window else "zigzag"


def cases():
    """Returns all simulated cases."""
    plain = [
        Case(ranks, tokens << 10, gigabits, speed)
        for speed in (1, 32)
        for tokens in (32, 128, 512, 1024, 4096)
        for ranks in TREES
        for gigabits in (25, 100, 400)
    ]
    windowed = [
        Case(ranks, 1 << 20, gigabits, speed, 4096)
        for speed in (1, 32)
        for ranks in TREES
        for gigabits in (25, 100, 400)
    ]
    short = [Case(ranks, 128 << 10, gigabits, 32, 0, 2) for ranks in TREES for gigabits in (25, 100, 400)]
    return plain + windowed + short


def platform(case):
    """Returns the description of the cluster in SimGrid's XML."""
    tree = TREES[case.ranks]
    ups = (1, *tree[:-1])
    levels = ";".join([str(len(tree)), *(",".join(map(str, part)) for part in (tree, ups, (1,) * len(tree)))])
    return f"""<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="cluster" prefix="node" suffix="" radical="0-{case.ranks - 1}" speed="1Gf" bw="{case.gigabits}Gbps"
    lat="{LINK_LATENCY * 1e6:g}us" sharing_policy="SPLITDUPLEX" topology="FAT_TREE" topo_parameters="{levels}"/>
</platform>
"""


# ---- the model ---------------------------------------------------------------------------------


def links(case):
    """Returns the number of links between the two ranks of the ring that are farthest from each other."""
    return 2 * len(TREES[case.ranks])


def steps(case):
    """Returns (pairs of one head, keys that travel meanwhile) of each step, of the rank with the most."""
    own = case.own
    if case.window:
        # The last window - 1 keys of the rank before, which travel in units of 256 keys.
        travelling = math.ceil((case.window - 1) / 256) * 256
        outside = case.window * (case.window - 1) // 2
        return [(own * case.window - outside, travelling), (outside, 0)]
    # Of its own keys, a rank sees two triangles and a square of own / 2; of others', two squares.
    square = (own // 2) ** 2
    return [
        (2 * square + (own // 2 if step == 0 else 0), own if step + 1 < case.ranks else 0) for step in range(case.ranks)
    ]


def message_bytes(case, keys):
    return HEADER_BYTES + 2 * keys * HEADS * DIM * case.element


def message_seconds(case, size):
    return LARGE_LATENCY * links(case) * LINK_LATENCY + size / (LARGE_SHARE * case.gigabits * GIGABIT)


def polled(seconds):
    """Returns the duration of a wait for a message that arrives after this time."""
    if seconds <= 0:
        return 0
    if seconds <= SPINNING:
        return math.ceil(seconds / POLL) * POLL
    return SPINNING + math.ceil((seconds - SPINNING) / PAUSE) * PAUSE


def fixed_seconds(case):
    """Returns the time of the collective calls: a latency each, and the plan, in which every rank sends to every other
    which part it needs of each range of keys, 16 bytes."""
    ranges = case.ranks if case.window else 2 * case.ranks
    plan = (case.ranks - 1) * 16 * ranges / (SMALL_SHARE * case.gigabits * GIGABIT)
    return GATHERS * polled(SMALL_LATENCY * links(case) * LINK_LATENCY) + plan


def compute_seconds(case, seconds_per_pair):
    """Returns the time of a pass whose messages take none."""
    return sum(pairs for pairs, _ in steps(case)) * HEADS * seconds_per_pair / case.speed


def model_seconds(case, seconds_per_pair):
    """Returns the time of a pass."""
    total = fixed_seconds(case)
    for pairs, keys in steps(case):
        compute = pairs * HEADS * seconds_per_pair / case.speed
        message = message_seconds(case, message_bytes(case, keys)) if keys else 0
        total += compute + polled(message - compute)
    return total


def hidden_from(gigabits, seconds_per_pair):
    """Returns the tokens per rank from which a causal pass hides its messages of float32, without latency: the pairs
    of a step, own² / 2, take as long as 2 * own * DIM elements of each head."""
    return 4 * DIM * 4 / (seconds_per_pair * LARGE_SHARE * gigabits * GIGABIT)


def deviation(row):
    return row["model"] / row["simulated"] - 1


# ---- the tables --------------------------------------------------------------------------------


def tokens_text(tokens):
    return f"{tokens >> 20}M" if tokens % (1 << 20) == 0 else f"{tokens >> 10}k"


def duration_text(seconds):
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return report.time_text(seconds)


def case_of(row):
    return Case(**{field.name: row[field.name] for field in dataclasses.fields(Case)})


def provenance_text(kept):
    run, rates = kept["run"], kept["rates"]
    pair = rates[0]["seconds_per_pair"]
    smaller = " and ".join(
        f"{rate['seconds_per_pair'] * 1e9:.2f} ns with {rate['tokens'] // rate['ranks']:,}" for rate in rates[1:]
    )
    load = f" beside other work (load {run['load_before']:.1f})" if run["load_before"] > 0.5 else ""
    return (
        f"Measured rate of a rank: {pair * 1e9:.2f} ns per pair of a query and a key of one head of D {DIM}, "
        f"{4 * DIM / pair / 1e9:.0f} GFLOP/s, with {rates[0]['tokens'] // rates[0]['ranks']:,} tokens per rank "
        f"({smaller}): the best of {rates[0]['passes']} passes{load}, merging included. {run['cpu']}, "
        f"{run['cores']} threads; {run['target']}; {run['compiler']}; commit {run['commit']}; {run['date'][:10]}. "
        f"{kept['simgrid']}. {HEADS} heads, float32. `bench/mpi/simulate` measures and simulates."
    )


def page(kept):
    """Returns the generated part of docs/distributed.md."""
    pair = kept["rates"][0]["seconds_per_pair"]
    found = {case_of(row): row for row in kept["rows"]}
    networks = sorted({case.gigabits for case in found})
    network_names = [f"{one} Gbit/s" for one in networks]
    fastest = max(case.speed for case in found)

    def share(case):
        """Returns the share of the speed without messages that the simulation reaches."""
        return compute_seconds(case, pair) / found[case]["simulated"]

    lowest = min(share(case) for case in found if case.speed == 1)
    body = []
    for case in found:
        if case.gigabits != networks[0] or case.speed != fastest:
            continue
        mask = f"window {case.window:,}" if case.window else "causal"
        mask += ", bfloat16" if case.element == 2 else ""
        times = [duration_text(compute_seconds(dataclasses.replace(case, speed=speed), pair)) for speed in (1, fastest)]
        shares = [report.percent(share(dataclasses.replace(case, gigabits=one))) for one in networks]
        body.append([tokens_text(case.tokens), mask, str(case.ranks), f"{case.own:,}", *times, *shares])
    heading = [
        "tokens",
        "mask",
        "ranks",
        "tokens per rank",
        "measured rank",
        f"{fastest} times as fast",
        *network_names,
    ]
    worst = max(abs(deviation(row)) for row in kept["rows"])
    bound = [abs(deviation(row)) for case, row in found.items() if share(case) < 0.9]
    lines = [
        provenance_text(kept),
        "",
        "Time of a pass whose messages take none, for both kinds of ranks, and the share of that speed which the "
        f"simulated pass of the faster ones reaches. The measured ranks reach at least {report.percent(lowest)}.",
        "",
        *report.table(heading, body),
        "",
        f"The model deviates from the {len(found)} simulations by at most {100 * worst:.1f} %, and on average by "
        f"{100 * sum(bound) / len(bound):.1f} % in the {len(bound)} in which messages take more than 10 % of the time.",
        "",
        "Tokens per rank from which a causal pass hides its messages:",
        "",
    ]
    body = []
    for speed in sorted({case.speed for case in found}):
        name = "measured" if speed == 1 else f"{speed} times as fast"
        name += f", {4 * DIM / pair * speed / 1e9:,.0f} GFLOP/s"
        body.append([name, *(f"{math.ceil(hidden_from(one, pair / speed)):,}" for one in networks)])
    lines += [*report.table(["rank", *network_names], body), ""]
    return "\n".join([*lines, *example(found, pair)])


def example(found, pair):
    """Returns the worked example: 4M tokens on 64 machines, each much faster than the measured one."""
    speed = max(case.speed for case in found)
    case = Case(64, 4 << 20, 25, speed)
    pairs, keys = steps(case)[1]
    size = message_bytes(case, keys)
    compute, message = pairs * HEADS * pair / speed, message_seconds(case, size)
    tensors = 4 * case.own * HEADS * DIM * 4
    hidden = math.ceil(hidden_from(case.gigabits, pair / speed))
    of_model, simulated = duration_text(model_seconds(case, pair)), duration_text(found[case]["simulated"])
    return [
        f"**Example**: 4M tokens on 64 machines of {4 * DIM / pair * speed / 1e9:,.0f} GFLOP/s each, with links of "
        f"{case.gigabits} Gbit/s.",
        "",
        f"1. Each rank has n = {case.tokens:,} / 64 = {case.own:,} tokens, more than {hidden:,}: messages are hidden.",
        f"2. A step has n² / 2 · {HEADS} heads = {pairs * HEADS:.3g} pairs, which take {duration_text(compute)}.",
        f"3. A message has 2 · n · {HEADS} · {DIM} · 4 bytes = {size / 1e6:.0f} MB and takes "
        f"{duration_text(message)}, {100 * message / compute:.0f} % of the step.",
        f"4. 64 steps take {of_model} in the model and {simulated} in the simulation.",
        f"5. Memory of a rank: query, key, value and context, {tensors / 1e6:.0f} MB; two messages, "
        f"{2 * size / 1e6:.0f} MB.",
        f"6. With more than {case.tokens // hidden:,} such machines, messages would no longer be hidden.",
    ]
