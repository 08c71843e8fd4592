# SPDX-License-Identifier: Apache-2.0
"""One contender in a process of its own, doing what the driver says: python worker.py NAME THREADS CPUS

Lines of JSON on standard input and output. A request is {"do": ..., ...}; the answer to

    {"do": "versions"}                  {"versions": {...}}
    {"do": "prepare", "cell": {...}}    {"how", "note", "error", "tolerance", "seconds"} after the
                                        result was checked and two calls more; or {"cannot": reason},
                                        {"wrong": what}, {"failed": what}
    {"do": "time", "repeats": n}        {"seconds": per call, "cpu": share of the threads' time,
                                         "beside": {name: seconds per call} of what is measured beside}
    {"do": "forget"}                    {} once the problem's memory is free

Ends when its input does. The environment (OMP_NUM_THREADS and the like) is the driver's to set.
"""

import gc
import json
import os
import sys
import time

import cells
import contenders

# Turns of what is measured beside each other, in one of a contender's turns.
SPELLS = 12


def first_line(error):
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}"


class Worker:
    def __init__(self, name, threads):
        self.threads = threads
        self.contender = contenders.make(name, threads)
        self.prepared = None
        self.turn = 0

    def versions(self, request):
        return {"versions": self.contender.versions()}

    def prepare(self, request):
        from problem import Problem

        self.forget(request)
        problem = Problem(cells.Cell(**request["cell"]))
        try:
            prepared = self.contender.prepare(problem)
            prepared.run(1)
        except contenders.Cannot as reason:
            return {"cannot": str(reason)}
        error, tolerance = problem.check(prepared.results())
        if not error <= tolerance:
            return {"wrong": f"off by {error:.3g} from float64, {tolerance:.3g} allowed"}
        self.prepared = prepared
        self.measure(self.prepared.run, 1)
        seconds, _ = self.measure(self.prepared.run, 1)
        return {
            "how": prepared.how,
            "note": prepared.note,
            "error": error,
            "tolerance": tolerance,
            "seconds": seconds,
        }

    def measure(self, run, repeats):
        cpu, start = time.process_time(), time.perf_counter()
        run(repeats)
        elapsed = time.perf_counter() - start
        return elapsed / repeats, (time.process_time() - cpu) / elapsed / self.threads

    def time(self, request):
        ways = {"": self.prepared, **self.prepared.beside}
        names = list(ways)
        elapsed, cpu = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        # What is compared takes turns in short spells, so that what slows the machine for a while slows
        # all of it; each way is first in its turn.
        spells = min(SPELLS, request["repeats"]) if len(ways) > 1 else 1
        for spell in range(spells):
            calls = request["repeats"] * (spell + 1) // spells - request["repeats"] * spell // spells
            self.turn += 1
            for i in range(len(names)):
                name = names[(self.turn + i) % len(names)]
                per_call, share = self.measure(ways[name].run, calls)
                elapsed[name] += per_call * calls
                cpu[name] += per_call * calls * share
        seconds = {name: total / request["repeats"] for name, total in elapsed.items()}
        return {
            "seconds": seconds.pop(""),
            "cpu": round(cpu[""] / elapsed[""], 3),
            "beside": seconds,
        }

    def forget(self, request):
        self.prepared = None
        gc.collect()
        return {}


def main():
    name, threads, cpus = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    # Before any library counts the CPUs.
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    # Whatever libraries print goes to standard error; the answers keep the real output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(name, threads)
    actions = {name: getattr(worker, name) for name in ("versions", "prepare", "time", "forget")}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = actions[request["do"]](request)
        except Exception as error:  # any library, any kind: the driver puts it on record
            worker.forget(request)
            answer = {"failed": first_line(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
