# SPDX-License-Identifier: Apache-2.0
"""A worker process with one contender, controlled by the driver: python worker.py NAME THREADS CPUS

Requests and answers are lines of JSON on standard input and output. A request is {"do": ..., ...}:

    {"do": "versions"}                  {"versions": {...}}
    {"do": "prepare", "cell": {...}}    {"how", "note", "error", "tolerance", "seconds"} after checking
                                        the result and two more calls; or {"cannot": reason},
                                        {"wrong": text} or {"failed": text}
    {"do": "time", "repeats": n}        {"seconds": per call, "cpu": CPU time / (threads * time),
                                         "beside": {name: seconds per call} for Prepared.beside}
    {"do": "forget"}                    {} after freeing the problem's memory

Exits at the end of its input. The driver sets the environment (OMP_NUM_THREADS and similar).
"""

import gc
import json
import os
import sys
import time

import cells
import contenders

# Number of alternations between run and Prepared.beside in one "time" request.
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
        # Alternate in short spells, so that a temporary slowdown of the machine affects all ways of calling.
        # The order rotates, so that each is first equally often.
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
    # Must precede the import of libraries, which count the CPUs.
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    # Redirect the output of libraries to standard error; answers use the original standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(name, threads)
    actions = {name: getattr(worker, name) for name in ("versions", "prepare", "time", "forget")}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = actions[request["do"]](request)
        except Exception as error:  # libraries raise any type; the driver records the message
            worker.forget(request)
            answer = {"failed": first_line(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
