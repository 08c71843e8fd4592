# SPDX-License-Identifier: Apache-2.0
"""Shared code of the command-line tests: locating and running the program, small scenes.

Environment variables: FOVEA is the path of the program, with fovea-bench in the same directory;
FOVEA_SOURCE is the source directory; FOVEA_NN=0 means that the program was built without fovea::nn, and FOVEA_VIEW=0
without the viewer.
By default, the release build of this source tree is tested.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ.get("FOVEA_SOURCE") or pathlib.Path(__file__).parents[2]).resolve()
FOVEA = os.path.abspath(os.environ.get("FOVEA") or SOURCE / "build" / "release" / "fovea")
BENCH = os.path.join(os.path.dirname(FOVEA), "fovea-bench")
EXAMPLES = sorted((SOURCE / "examples" / "scenes").glob("*.json"))
TIMEOUT_S = 60
# Whether the program was built with fovea::nn.
TRAINS = os.environ.get("FOVEA_NN") != "0"
# Whether it was built with the viewer.
VIEWS = os.environ.get("FOVEA_VIEW") != "0"
SANITIZED = os.environ.get("FOVEA_SANITIZED") == "1"
# Sanitizers reserve more address space than tests with a memory limit allow.
limits_memory = unittest.skipIf(SANITIZED, "sanitizers reserve memory")

if not os.access(FOVEA, os.X_OK):
    raise SystemExit(f"no program at {FOVEA}: build it, or set FOVEA to its path")

# Removed from the environment, so that colours and widths do not depend on where the tests run.
_SHAPING = ("COLUMNS", "NO_COLOR", "COLORTERM", "TERM")


def environment(**changes):
    kept = {name: value for name, value in os.environ.items() if name not in _SHAPING}
    kept["TERM"] = "xterm-256color"
    kept.update(changes)
    return kept


def await_handler(process, number):
    """Waits until the process has a handler for the signal, or has ended."""
    while process.poll() is None:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        if int(re.search(r"(?m)^SigCgt:\s*(\w+)$", status)[1], 16) >> (number - 1) & 1:
            return
        time.sleep(0.01)


def default_signals():
    """Restores the default signal actions.

    A test started in the background inherits an ignored SIGINT, which the program would keep ignoring.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run(*arguments, program=FOVEA, stdin=b"", env=None, **options):
    """Runs a program to completion; stdout and stderr of the result are bytes."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([program, *arguments], input=stdin, stderr=subprocess.PIPE,
                          env=env or environment(), timeout=TIMEOUT_S, check=False, **options)


def scene(**changes):
    """Returns the JSON text of a small scene with `changes` applied; None removes a member."""
    parts = {"title": "A scene", "tokens": ["Your", "journey", "starts"],
             "embeddings": [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]],
             "focus": "journey"}
    parts.update(changes)
    return json.dumps({name: part for name, part in parts.items() if part is not None})


class CliTest(unittest.TestCase):
    """Base class with an empty directory `self.dir` for each test, and checks of exit codes and messages."""

    longMessage = True
    program = FOVEA

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="fovea-cli-")
        self.addCleanup(directory.cleanup)
        self.dir = pathlib.Path(directory.name)

    def write(self, name, content):
        path = self.dir / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def succeed(self, *arguments, **options):
        """Runs the program, which must succeed silently; returns its standard output as text."""
        result = run(*arguments, **{"program": self.program, **options})
        self.assertEqual((result.returncode, result.stderr), (0, b""), arguments)
        return result.stdout.decode("utf-8") if result.stdout is not None else ""

    def fail_with(self, code, *arguments, **options):
        """Runs the program, which must fail with one clean line; returns that line."""
        result = run(*arguments, **{"program": self.program, **options})
        self.assertEqual(result.returncode, code, (arguments, result.stderr[:500]))
        return self.one_line(result.stderr)

    def one_line(self, stderr):
        text = stderr.decode("utf-8")
        self.assertTrue(text.startswith("fovea-bench: " if self.program == BENCH else "fovea: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.endswith("\n"), text)
        controls = [c for c in text[:-1] if ord(c) < 32 or 127 <= ord(c) < 160]
        self.assertEqual(controls, [], text)
        return text[:-1]

    def pipe_without_reader(self):
        """Returns a file descriptor on which every write fails with EPIPE."""
        read, write = os.pipe()
        os.close(read)
        self.addCleanup(os.close, write)
        return write

    def files(self):
        return sorted(path.name for path in self.dir.iterdir())

    def as_ordinary_user(self):
        """Returns options to run the program as a user other than root, who could ignore write protection."""
        if os.geteuid() != 0:
            return {}
        os.chown(self.dir, 65534, 65534)
        os.chmod(self.dir, 0o755)
        try:
            run("--version", user=65534)
        except PermissionError:
            self.skipTest("an ordinary user cannot reach the program")
        return {"user": 65534}
