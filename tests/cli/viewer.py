# SPDX-License-Identifier: Apache-2.0
"""A running `fovea view` for tests."""

import http.client
import json
import re
import signal
import socket
import subprocess
import threading

from support import FOVEA, TIMEOUT_S, CliTest, default_signals, environment
from tensor_files import Array, npz_of

QUERIES, KEYS, HEADS, DIM = 300, 260, 2, 8


class Server:
    """A running `fovea view`."""

    def __init__(self, *arguments, **options):
        self.process = subprocess.Popen([FOVEA, "view", "--no-open", *arguments], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env=environment(), preexec_fn=default_signals, **options)
        timer = threading.Timer(TIMEOUT_S, self.process.kill)
        timer.start()
        self.line = self.process.stdout.readline().decode()
        timer.cancel()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#token=([0-9a-f]{32})\n", self.line)
        if not found:
            self.process.kill()
            raise AssertionError((self.line, self.process.communicate()[1]))
        self.port, self.token = int(found[1]), found[2]

    def end(self, number=signal.SIGINT):
        """Ends the server; returns its exit code and what it printed after the address."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, out, err

    def ask(self, path, method="GET", token=True, body=None, **headers):
        """Returns status, header fields and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            fields["X-Fovea-Token"] = self.token if token is True else token
        try:
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def get(self, path, **options):
        """Returns the JSON of a successful response."""
        status, _, body = self.ask(path, **options)
        if status != 200:
            raise AssertionError((path, status, body))
        return json.loads(body)

    def raw(self, data, wait=TIMEOUT_S):
        """Sends bytes; returns what arrives until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as client:
            client.sendall(data)
            parts = []
            try:
                while part := client.recv(65536):
                    parts.append(part)
            except ConnectionResetError:
                pass
            return b"".join(parts)

    def resident(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s*(\d+) kB", status.read())[1]) << 10


class ViewTest(CliTest):
    """Starts servers, and ends them after the test."""

    def start(self, *arguments, **options):
        server = Server(*arguments, **options)
        self.addCleanup(server.process.stdout.close)
        self.addCleanup(server.process.stderr.close)
        self.addCleanup(server.end, signal.SIGKILL)
        return server

    def refused(self, answer, status, code, argument=None):
        self.assertEqual(answer[0], status, answer[2][:200])
        error = json.loads(answer[2])["error"]
        self.assertEqual(error["code"], code, error)
        self.assertEqual(error.get("argument"), argument, error)
        self.assertNotIn("\n", error["message"])
        return error["message"]

    def tensors(self, name="layer.npz", queries=QUERIES, keys=KEYS, seed=1):
        """Writes query and key; returns the path."""
        return self.write(name, npz_of({"query": Array.normal((1, HEADS, queries, DIM), seed),
                                        "key": Array.normal((1, HEADS, keys, DIM), seed + 1)}))

    def input_of(self, server):
        """Returns the only input and the start of its paths."""
        (entry,) = server.get("/api/v1/inputs")["inputs"]
        return entry, f"/api/v1/inputs/{entry['id']}"
