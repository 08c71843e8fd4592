# SPDX-License-Identifier: Apache-2.0
"""`fovea attend`: interrupted runs, unwritable outputs, and memory use."""

import fcntl
import json
import os
import pathlib
import pty
import random
import resource
import signal
import stat
import struct
import subprocess
import termios
import time
import unittest

from attend_problem import AttendTest, problem
from support import FOVEA, SANITIZED, TIMEOUT_S, await_handler, default_signals, environment, limits_memory
from tensor_files import npy


class EarlyEndTest(AttendTest):
    """Signals and file changes during a slow run of the reference."""

    def test_interrupted(self):
        arguments = self.slow_problem()
        path = self.write("c.npy", "old")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129),
                             (signal.SIGKILL, -signal.SIGKILL)):
            with subprocess.Popen([FOVEA, *arguments, "--output", path], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                  env=environment(), preexec_fn=default_signals) as process:
                if number != signal.SIGKILL:
                    await_handler(process, number)
                time.sleep(0.3)
                process.send_signal(number)
                out, err = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual((process.returncode, out, err), (code, b"", b""), number)
            self.assertEqual((self.dir / "c.npy").read_text(), "old")
            self.assertEqual(self.files(), ["c.npy", "slow.npy", "wide.npy"])

    def test_interrupted_at_any_moment(self):
        # At any moment, the output is the old file or the complete new one, and no temporary file is left.
        chance = random.Random(1)
        count = 1 << 17
        large = self.write("large.npy", npy("<f4", f"({count // 64}, 1, 64)", bytes(4 * count)))
        arguments = ["attend", "--query", large, "--key", large, "--value", large, "--output"]
        self.succeed(*arguments, str(self.dir / "whole.npy"))
        whole = (self.dir / "whole.npy").read_bytes()
        path = self.dir / "c.npy"
        codes = set()
        for _ in range(60):
            path.write_bytes(b"old")
            with subprocess.Popen([FOVEA, *arguments, str(path)], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  preexec_fn=default_signals) as process:
                time.sleep(chance.uniform(0, 0.02))
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=TIMEOUT_S)
            codes.add(process.returncode)
            self.assertEqual(err, b"")
            self.assertIn(path.read_bytes(), (b"old", whole))
            self.assertEqual(self.files(), ["c.npy", "large.npy", "whole.npy"])
        # A signal that arrives before main starts has its default action.
        self.assertLessEqual(codes, {0, 130, -signal.SIGINT})

    def wait_until_mapped(self, process, name):
        """Waits until the process has mapped the file, then another 0.3 s."""
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and maps.exists() and name not in maps.read_text():
            time.sleep(0.01)
        time.sleep(0.3)

    def test_input_truncated_during_a_run(self):
        arguments = self.slow_problem()
        path = self.write("c.npy", "old")
        with subprocess.Popen([FOVEA, *arguments, "--output", path], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            self.wait_until_mapped(process, "wide.npy")
            os.truncate(self.dir / "wide.npy", 4096)
            out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, out), (2, b""))
        self.assertIn("a file became shorter", self.one_line(err))
        self.assertEqual((self.dir / "c.npy").read_text(), "old")

    def test_verify_rejects_a_wrong_result(self):
        # Keys and values change during the computation; only --verify can detect this.
        arguments = self.slow_problem(rows=32 if SANITIZED else 128)  # few enough for the run to finish
        path = self.write("c.npy", "old")
        with subprocess.Popen([FOVEA, *arguments, "--output", path, "--verify"], stderr=subprocess.PIPE,
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            self.wait_until_mapped(process, "wide.npy")
            with open(self.dir / "wide.npy", "r+b") as file:
                file.seek(128)
                file.write(struct.pack("<d", 7.0) * 4 * 65536 * 4)
            out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual((process.returncode, out), (1, b""))
        self.assertRegex(self.one_line(err), "wrong result, so nothing was written: the context is off "
                                             r"by \S+, where the reference allows \S+$")
        self.assertEqual((self.dir / "c.npy").read_text(), "old")

    def test_progress_on_a_terminal_only(self):
        arguments = [*self.slow_problem(), "--output", str(self.dir / "c.npy")]
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        with subprocess.Popen([FOVEA, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=follower, env=environment(), preexec_fn=default_signals) as process:
            os.close(follower)
            seen = b""
            begin = time.monotonic()
            while b"left" not in seen and time.monotonic() - begin < 20:
                seen += os.read(leader, 4096)
            process.terminate()
            process.wait(timeout=TIMEOUT_S)
            os.close(leader)
        self.assertRegex(seen, rb"\d+ %, \d+\.\d GFLOP/s, [\d a-z]+ left")
        quick = self.input_file(problem())
        self.succeed("attend", "--input", quick, "--output", str(self.dir / "c.npy"))


class MemoryTest(AttendTest):
    @limits_memory
    def test_inputs_are_mapped_not_copied(self):
        # 96 MB of input, 32 MB of output.
        count = 1 << 23
        path = self.dir / "large.safetensors"
        head = {name: {"dtype": "F32", "shape": [64, count // 64 // 64, 64],
                       "data_offsets": [4 * count * i, 4 * count * (i + 1)]}
                for i, name in enumerate(("query", "key", "value"))}
        text = json.dumps(head).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + bytes(12 * count))
        for options in ([], ["--layout", "blhd", "--window", "10,0"], ["--window", "10,0", "--causal"]):
            with subprocess.Popen([FOVEA, "attend", "--input", str(path), "--output",
                                   str(self.dir / "c.npy"), *options], stdout=subprocess.DEVNULL) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            self.assertLess(usage.ru_maxrss * 1024, 16 * count + 100_000_000)


class OutputErrorTest(AttendTest):
    def failing(self, output, **options):
        return self.fail_with(1, "attend", "--input", self.input_file(problem()), "--output", output,
                              **options)

    def test_full_disk(self):
        os.symlink("/dev/full", self.dir / "full.npy")
        message = self.failing(str(self.dir / "full.npy"))
        self.assertIn("full.npy: cannot be written: No space left on device", message)
        with open("/dev/full", "wb") as full:
            self.assertIn("standard output: cannot be written", self.failing("-", stdout=full))

    def test_failed_write_leaves_nothing_behind(self):
        def small_files_only():
            # Leaves room for a small file that OpenMP writes.
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
        source = self.input_file(problem(q_len=600))
        for ending in (".npy", ".npz", ".safetensors"):
            old = self.write(f"old{ending}", "old")
            for path in (old, str(self.dir / f"new{ending}")):
                message = self.fail_with(1, "attend", "--input", source, "--output", path,
                                         preexec_fn=small_files_only)
                self.assertIn(f"{path}: cannot be written: File too large", message)
            self.assertEqual((self.dir / f"old{ending}").read_text(), "old")
        self.assertEqual(self.files(), ["in.safetensors", "old.npy", "old.npz", "old.safetensors"])

    def test_write_protected(self):
        options = self.as_ordinary_user()
        path = self.write("c.npy", "old")
        if options:
            os.chown(path, 65534, 65534)
        os.chmod(path, 0o444)
        self.assertIn(f"{path}: cannot be written: Permission denied", self.failing(path, **options))
        source = self.input_file(problem())
        os.chmod(self.dir, stat.S_IRUSR | stat.S_IXUSR)
        message = self.fail_with(1, "attend", "--input", source, "--output", str(self.dir / "new.npy"),
                                 **options)
        self.assertIn("Permission denied", message)
        os.chmod(self.dir, 0o755)
        self.assertEqual((self.dir / "c.npy").read_text(), "old")
        self.assertEqual(self.files(), ["c.npy", "in.safetensors"])

    def test_missing_directory_is_reported_before_the_computation(self):
        path = str(self.dir / "missing" / "c.npy")
        begin = time.monotonic()
        arguments = self.slow_problem()
        message = self.fail_with(1, *arguments, "--output", path)
        self.assertIn(f"{path}: cannot be written: No such file or directory", message)
        self.assertLess(time.monotonic() - begin, 2)
        (self.dir / "c.npy").mkdir()
        self.assertIn("Is a directory", self.failing(str(self.dir / "c.npy")))


if __name__ == "__main__":
    unittest.main()
