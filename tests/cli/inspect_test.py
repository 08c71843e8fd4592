# SPDX-License-Identifier: Apache-2.0
"""`fovea inspect`: tables and JSON for tensor files, and errors for other files."""

import json
import os
import resource
import signal
import struct
import subprocess
import time
import unittest
import zipfile

from support import (FOVEA, TIMEOUT_S, CliTest, await_handler, default_signals, environment,
                     limits_memory, run)
from tensor_files import npy, npz, safetensors

MIXED = {
    "q.npy": npy(),
    "k.npy": npy("|i1", "(3,)", b"\xfd\x00\x07"),
    "mask.npy": npy("|b1", "(4,)", b"\x01\x00\x01\x01"),
    "bf.npy": npy("<V2", "(2,)", b"\x80?\x00\xc0"),
    "text.npy": npy("<U1", "()", b"a\0\0\0"),
    "none.npy": npy("<f8", "(0, 3)", b""),
    "nan.npy": npy("<f4", "(1,)", struct.pack("<f", float("nan"))),
    "notes.txt": b"notes",
}


class InspectTest(CliTest):
    def lines(self, *arguments, **options):
        return self.succeed("inspect", *arguments, **options).splitlines()

    def test_npy(self):
        path = self.write("a.npy", npy())
        self.assertEqual(self.lines(path), [
            f"{path}: npy, 1 tensor, 16 bytes",
            "",
            "type     stored  shape   min  max  mean  NaN  Inf",
            "float32  <f4     [2, 2]    1  2.5  1.75    1    1",
        ])

    def test_npz(self):
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            path = self.write("a.npz", npz(MIXED, method))
            self.assertEqual(self.lines(path), [
                f"{path}: npz, 8 tensors, 31 bytes",
                "",
                "name       type     stored  shape   min  max     mean  NaN  Inf",
                "q          float32  <f4     [2, 2]    1  2.5     1.75    1    1",
                "k          int64    |i1     [3]      -3    7  1.33333    -    -",
                "mask       bool     |b1     [4]       0    1     0.75    -    -",
                "bf         -        <V2     [2]       -    -        -    -    -",
                "text       -        <U1     -         -    -        -    -    -",
                "none       float64  <f8     [0, 3]    -    -        -    0    0",
                "nan        float32  <f4     [1]       -    -        -    1    0",
                "notes.txt  -        -       -         -    -        -    -    -",
                "",
                "bf: cannot be read: elements are two bytes without a type (<V2), which is how NumPy "
                "writes bfloat16; if that is what they are, say so by :bf16 after the name",
                "text: cannot be read: elements are strings (\"<U1\")",
                "notes.txt: cannot be read: not an .npy file, by its name",
            ])

    def test_one_tensor(self):
        path = self.write("a.npz", npz(MIXED))
        self.assertEqual(self.lines(f"{path}:bf:bf16")[2:], [
            "name  type      stored  shape  min  max  mean  NaN  Inf",
            "bf    bfloat16  <V2     [2]     -2    1  -0.5    0    0",
        ])
        path = self.write("bf.npy", MIXED["bf.npy"])
        self.assertIn("bfloat16", self.lines(f"{path}:bf16")[3])
        self.assertIn("bfloat16", self.lines("--", "-:bf16", stdin=MIXED["bf.npy"])[3])

    def test_safetensors(self):
        path = self.write("a.safetensors", safetensors({
            "__metadata__": {"format": "np"},
            "b": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
            "a": {"dtype": "U64", "shape": [2], "data_offsets": [8, 24]},
            "f8": {"dtype": "F8_E5M2", "shape": [1], "data_offsets": [24, 25]},
        }, struct.pack("<dQQB", -0.5, 0, 2**63 - 1, 0)))
        self.assertEqual(self.lines(path)[2:], [
            "name  type     stored   shape   min                  max         mean  NaN  Inf",
            "b     float64  F64      [1]    -0.5                 -0.5         -0.5    0    0",
            "a     int64    U64      [2]       0  9223372036854775807  4.61169e+18    -    -",
            "f8    -        F8_E5M2  [1]       -                    -            -    -    -",
            "",
            "f8: cannot be read: elements are of the type \"F8_E5M2\", which Fovea does not have",
        ])

    def test_names(self):
        path = self.write("a.npz", npz({"a.npy": npy(), "b.npy": npy("|u1", "(1,)", b"\x01")}))
        self.assertEqual(self.lines(path, "--names")[2:], [
            "name  type     stored  shape",
            "a     float32  <f4     [2, 2]",
            "b     int64    |u1     [1]",
        ])

    def test_no_tensors(self):
        path = self.write("a.safetensors", safetensors({}, b""))
        self.assertEqual(self.lines(path), [f"{path}: safetensors, 0 tensors, 0 bytes"])
        self.assertEqual(json.loads(self.succeed("inspect", path, "--json"))["tensors"], [])

    def test_json(self):
        path = self.write("a.npz", npz(MIXED))
        report = json.loads(self.succeed("inspect", path, "--json"))
        self.assertEqual((report["file"], report["format"]), (path, "npz"))
        tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
        self.assertEqual(list(tensors), ["q", "k", "mask", "bf", "text", "none", "nan", "notes.txt"])
        self.assertEqual(tensors["q"], {
            "name": "q", "dtype": "float32", "stored_type": "<f4", "shape": [2, 2], "bytes": 16,
            "count": 4, "min": 1, "max": 2.5, "mean": 1.75, "nan": 1, "inf": 1})
        self.assertEqual((tensors["k"]["min"], tensors["k"]["max"]), (-3, 7))
        self.assertIsNone(tensors["none"]["min"])
        self.assertIsNone(tensors["nan"]["mean"])
        self.assertIsNone(tensors["bf"]["dtype"])
        self.assertEqual(tensors["bf"]["shape"], [2])
        self.assertIn("bfloat16", tensors["bf"]["unreadable"])
        self.assertIsNone(tensors["text"]["shape"])
        names = json.loads(self.succeed("inspect", path, "--json", "--names"))["tensors"]
        self.assertEqual(names[0], {"name": "q", "dtype": "float32", "stored_type": "<f4",
                                    "shape": [2, 2], "bytes": 16})

    def test_escape_sequences_in_names_are_escaped(self):
        name = "red\x1b[31m\u202e\n"
        path = self.write("a.safetensors", safetensors(
            {name: {"dtype": "I8", "shape": [1], "data_offsets": [0, 1]}}, b"\x01"))
        text = self.succeed("inspect", path)
        self.assertIn(r"red\x1b[31m\u202e\n", text)
        self.assertNotIn("\x1b", text)
        printed = self.succeed("inspect", path, "--json")
        self.assertNotIn("\x1b", printed)
        self.assertEqual(json.loads(printed)["tensors"][0]["name"], name)

    def test_large(self):
        count = 3_000_000
        path = self.write("large.npy", npy("<f4", f"({count},)", struct.pack("<f", 0.5) * count))
        self.assertEqual(self.lines(path)[3].split(), ["float32", "<f4", f"[{count}]", "0.5", "0.5",
                                                       "0.5", "0", "0"])

    @limits_memory
    def test_file_larger_than_the_memory_limit(self):
        path = self.dir / "sparse.npy"
        count = 1 << 26
        with open(path, "wb") as file:
            file.write(npy("<f4", f"({count},)", b""))
            file.truncate(file.tell() + 4 * count)

        def little_data():
            # Limits private memory only; file mappings are not counted.
            resource.setrlimit(resource.RLIMIT_DATA, (1 << 26, 1 << 26))
        self.assertIn("float32", self.succeed("inspect", str(path), preexec_fn=little_data))


class StandardInputTest(CliTest):
    def test_pipe_and_file(self):
        expected = ["standard input: npy, 1 tensor, 16 bytes", "",
                    "type     stored  shape   min  max  mean  NaN  Inf",
                    "float32  <f4     [2, 2]    1  2.5  1.75    1    1"]
        self.assertEqual(self.succeed("inspect", "-", stdin=npy()).splitlines(), expected)
        path = self.write("a.npy", npy())
        with open(path, "rb") as file:
            result = subprocess.run([FOVEA, "inspect", "-"], stdin=file, capture_output=True,
                                    timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.stdout.decode().splitlines(), expected)

    def test_large(self):
        count = 5_000_000
        data = npy("<f4", f"({count},)", struct.pack("<f", 2) * count)
        self.assertIn("[5000000]    2    2     2", self.succeed("inspect", "-", stdin=data))

    def test_malformed(self):
        def message(data):
            return self.fail_with(2, "inspect", "-", stdin=data)
        self.assertIn("standard input: expected an .npy file", message(b""))
        self.assertIn("standard input: expected an .npy file", message(npz({})))
        whole = npy()
        self.assertIn("expected 16 bytes after the header, for shape [2, 2] of <f4, got 15",
                      message(whole[:-1]))
        self.assertIn("a file of several arrays is not read", message(whole + whole))
        for size in range(0, len(whole), 3):
            message(whole[:size])

    @limits_memory
    def test_false_header_allocates_nothing(self):
        def little_memory():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        data = npy("<f8", "(1000000000000,)", b"1234")
        for command in (["inspect", "-"], ["inspect", self.write("lie.npy", data)]):
            message = self.fail_with(2, *command, stdin=data, preexec_fn=little_memory)
            self.assertIn("expected 8000000000000 bytes", message)

    def test_endless_input(self):
        with open("/dev/zero", "rb") as zeros:
            result = subprocess.run([FOVEA, "inspect", "-"], stdin=zeros, capture_output=True,
                                    timeout=TIMEOUT_S, check=False)
        self.assertEqual(result.returncode, 2)
        self.one_line(result.stderr)


class ErrorsTest(CliTest):
    def test_usage(self):
        for arguments in ([], [""], ["a", "b"], ["a.npy", "--jsn"]):
            message = self.fail_with(2, "inspect", *arguments)
            self.assertTrue(message.endswith("; see fovea inspect --help"), message)

    def test_paths_that_are_not_regular_files(self):
        fifo = self.dir / "fifo.npy"
        os.mkfifo(fifo)
        for path, said in ((self.dir / "missing.npy", "No such file or directory"),
                           (self.dir, "got a directory"), ("/dev/zero", "got a device"),
                           (fifo, "got a FIFO")):
            message = self.fail_with(2, "inspect", str(path))
            self.assertTrue(message.startswith(f"fovea: {path}: "), message)
            self.assertIn(said, message)
        self.assertIn("an empty file", self.fail_with(2, "inspect", self.write("empty", b"")))

    def test_missing_names(self):
        path = self.write("a.npz", npz({"query.npy": npy(), "key.npy": npy()}))
        self.assertEqual(self.fail_with(2, "inspect", f"{path}:qurey"),
                         f'fovea: {path}: no tensor is called "qurey" (did you mean "query"?); '
                         "there are: query, key")
        self.assertIn("No such file", self.fail_with(2, "inspect", f"{self.dir}/b.npz:query"))

    def test_intact_tensors_are_shown(self):
        damaged = bytearray(npz({"a.npy": npy(), "b.npy": npy()}))
        damaged[damaged.index(b"PK\x03\x04", 4) - 1] ^= 1
        path = self.write("a.npz", bytes(damaged))
        result = run("inspect", path)
        self.assertEqual(result.returncode, 2)
        self.assertIn("a: ", self.one_line(result.stderr))
        lines = result.stdout.decode().splitlines()
        self.assertRegex(lines[3], r"^a +float32 +<f4 +\[2, 2\] +- ")
        self.assertRegex(lines[4], r"^b +float32 +<f4 +\[2, 2\] +1 ")
        self.assertRegex(lines[6], r"^a: cannot be read: ")

    def test_unsupported_encryption_and_compression(self):
        path = self.write("a.npz", npz({"a.npy": npy()}, zipfile.ZIP_BZIP2))
        self.assertIn("got compression method 12", self.fail_with(2, "inspect", path))
        plain = npz({"a.npy": npy()})
        at = plain.index(b"PK\x01\x02") + 8
        path = self.write("a.npz", plain[:at] + b"\x01" + plain[at + 1:])
        self.assertIn("not encrypted", self.fail_with(2, "inspect", path))

    def test_zip_bomb(self):
        # 64 MB of zeros after a header that declares 8 bytes
        path = self.write("a.npz", npz({"a.npy": npy("<f8", "(1,)", bytes(1 << 26))},
                                       zipfile.ZIP_DEFLATED))
        self.assertIn("expected 8 bytes after the header", self.fail_with(2, "inspect", path))

    def test_interrupted(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with subprocess.Popen([FOVEA, "inspect", "-"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=environment(), preexec_fn=default_signals) as process:
                process.stdin.write(npy()[:-1])
                process.stdin.flush()
                await_handler(process, number)
                time.sleep(0.2)
                process.send_signal(number)
                out, err = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual((process.returncode, out, err), (code, b"", b""))

    def test_file_truncated_during_a_run(self):
        path = self.dir / "shrinks.npy"
        count = 1 << 27
        with open(path, "wb") as file:
            file.write(npy("<f4", f"({count},)", b""))
            file.truncate(file.tell() + 4 * count)
        with subprocess.Popen([FOVEA, "inspect", str(path)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(0.02)
            os.truncate(path, 4096)
            _, err = process.communicate(timeout=TIMEOUT_S)
        # On a fast machine, the file may have been read completely before it was truncated.
        self.assertIn(process.returncode, (0, 2))
        if process.returncode == 2:
            self.one_line(err)


if __name__ == "__main__":
    unittest.main()
