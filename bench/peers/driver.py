# SPDX-License-Identifier: Apache-2.0
"""Measures contenders alternately, each in a persistent worker process."""

import dataclasses
import json
import os
import random
import select
import statistics
import subprocess
import sys
import time

from environment import PEERS

# Approximate duration of a batch of calls, which determines the number of calls.
BATCH_SECONDS = 0.12
# Pause before each batch, in which the threads of the previous contender go to sleep.
PAUSE_SECONDS = 0.02
# Preparation includes the compilation of kernels.
PREPARE_LIMIT = 240
TIME_LIMIT = 120


class WorkerDied(Exception):
    pass


def cpus_available():
    return sorted(os.sched_getaffinity(0))


def log(text):
    print(text, file=sys.stderr, flush=True)


class Worker:
    """A process that exchanges lines of JSON. It is killed if a request exceeds its time limit."""

    def __init__(self, name, command, environment):
        environment = {**os.environ, **environment}
        pipe = subprocess.PIPE
        self.name = name
        self.errors = open(environment["FOVEA_PEERS_LOG"], "ab")
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, env=environment)

    def ask(self, limit, **request):
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerDied(self.end()) from None
        # Each request has a one-line answer, so nothing is left in Python's buffer, where select would not see it.
        if not select.select([self.process.stdout], [], [], limit)[0]:
            self.end()
            raise WorkerDied(f"took longer than {limit} s")
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerDied(self.end())
        return json.loads(line)

    def end(self):
        """Ends the process and returns a message with its exit status."""
        if self.process.poll() is None and self.process.stdin.closed is False:
            try:
                self.process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        status = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        return f"the worker ended with {status}; build/peers/workers.log may say why"


def worker_command(python, name, threads):
    # Use the last CPUs, because the first one handles most of the system's interrupts.
    cpus = cpus_available()[-threads:]
    return [python, str(PEERS / "worker.py"), name, str(threads), ",".join(map(str, cpus))]


class Team:
    """The workers of one thread count. A worker that has died is restarted for the next cell."""

    def __init__(self, python, names, threads, environment):
        self.python, self.names, self.threads, self.environment = python, names, threads, environment
        self.workers, self.versions = {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers.values():
            worker.process.kill()
            worker.end()

    def ask(self, name, limit, **request):
        if name not in self.workers:
            worker = self.workers[name] = Worker(
                name, worker_command(self.python, name, self.threads), self.environment)
            try:
                answer = worker.ask(PREPARE_LIMIT, do="versions")
            except WorkerDied:
                del self.workers[name]
                raise
            self.versions.update(answer.get("versions", {}))
        try:
            return self.workers[name].ask(limit, **request)
        except WorkerDied:
            del self.workers[name]
            raise

    def prepare(self, cell):
        """Prepares all contenders, including check and warm-up. Returns {contender: answer}; an answer may be a reason
        for failure."""
        answers = {}
        for name in self.names:
            if name == "numpy" and not cell.tiny:
                continue
            start = time.monotonic()
            try:
                answers[name] = self.ask(name, PREPARE_LIMIT, do="prepare", cell=dataclasses.asdict(cell))
            except WorkerDied as death:
                answers[name] = {"failed": str(death)}
            if "seconds" not in answers[name]:
                reason = "; ".join(f"{key}: {text}" for key, text in answers[name].items())
                log(f"    {name:14} {reason}")
            elif time.monotonic() - start > 20:
                log(f"    {name:14} took {time.monotonic() - start:.0f} s to prepare")
        return answers

    def measure(self, cell, rounds, seed):
        """Returns one cell's record: {contender: {"samples_us": [...], ...} or {"cannot" ...}}."""
        record = self.prepare(cell)
        active = [name for name in record if "seconds" in record[name]]
        repeats = {name: max(1, round(BATCH_SECONDS / record[name]["seconds"])) for name in active}
        samples = {name: [] for name in active}
        order = random.Random(f"{seed} {cell.name} {self.threads}")
        for _ in range(rounds):
            for name in order.sample(active, len(active)):
                time.sleep(PAUSE_SECONDS)
                try:
                    samples[name].append(self.ask(name, TIME_LIMIT, do="time", repeats=repeats[name]))
                except WorkerDied as death:
                    record[name] = {"failed": str(death)}
                    active.remove(name)
        for name in active:
            answer = record[name]
            answer.pop("seconds")
            failed = [sample["failed"] for sample in samples[name] if "failed" in sample]
            if failed:
                record[name] = {"failed": failed[0]}
                continue
            answer["repeats"] = repeats[name]
            answer["samples_us"] = [round(sample["seconds"] * 1e6, 3) for sample in samples[name]]
            for way in samples[name][0]["beside"]:
                beside = [round(sample["beside"][way] * 1e6, 3) for sample in samples[name]]
                answer.setdefault("beside_us", {})[way] = beside
            answer["median_us"] = round(statistics.median(answer["samples_us"]), 3)
            answer["cpu_share"] = min(sample["cpu"] for sample in samples[name])
        for name in list(self.workers):
            try:
                self.ask(name, TIME_LIMIT, do="forget")
            except WorkerDied:
                pass
        return record
