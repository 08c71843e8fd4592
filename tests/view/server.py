# SPDX-License-Identifier: Apache-2.0
"""`fovea view` as a child process, with requests to it."""

import http.client
import json
import os
import pathlib
import select
import signal
import subprocess
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOVEA = pathlib.Path(os.environ.get("FOVEA") or ROOT / "build" / "release" / "fovea")
START_S = 60  # large inputs, other load
END_S = 10


class RequestError(AssertionError):
    """A request was answered with an error."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body[:500]!r}")
        self.status = status
        self.error = json.loads(body)["error"] if body[:1] == b"{" else {}


class Viewer:
    """A running server.

    url      the address that it printed
    origin   "http://127.0.0.1:PORT"
    port, token, process
    """

    def __init__(self, *arguments, port=0, **options):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the object)
        command = [str(FOVEA), "view", "--no-open", "--port", str(port), *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Not ignored, even if the tests run in the background.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            **options,
        )
        line = self._first_line()
        if not line.startswith("http://"):
            self.kill()
            raise AssertionError(f"{' '.join(command)}: expected an address, got {line!r}; {self.errors()}")
        self.url = line
        address = urllib.parse.urlsplit(line)
        self.port = address.port
        self.origin = f"http://{address.netloc}"
        self.token = urllib.parse.parse_qs(address.fragment)["token"][0]

    def _first_line(self):
        found, end = b"", time.monotonic() + START_S
        while not found.endswith(b"\n") and time.monotonic() < end:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                more = os.read(self.process.stdout.fileno(), 4096)
                if not more:
                    break
                found += more
        return found.decode().rstrip("\n")

    def errors(self):
        """Returns what the server wrote to standard error."""
        if not self._errors.closed:
            self._errors.seek(0)
            self._told = self._errors.read().decode()
        return self._told

    # ---- requests --------------------------------------------------------------------------------------------

    def request(self, path, *, method="GET", body=None, token=True, headers=None, timeout=60):
        """Returns (status, headers, body) of a request of its own connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            own = {"X-Fovea-Token": self.token} if token else {}
            if body is not None:
                body = json.dumps(body).encode()
                own["Content-Type"] = "application/json"
            connection.request(method, path, body=body, headers=own | (headers or {}))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def api(self, path, **options):
        """Returns the JSON of a path below /api/v1. Raises RequestError for other statuses than 200 and 202."""
        status, _, body = self.request(f"/api/v1{path}", **options)
        if status not in (200, 202):
            raise RequestError(status, body)
        return json.loads(body)

    def bytes(self, path, **options):
        """Returns the body of a path below /api/v1."""
        status, _, body = self.request(f"/api/v1{path}", **options)
        if status != 200:
            raise RequestError(status, body)
        return body

    def input(self, number=0):
        """Returns the entry of an input."""
        return self.api("/inputs")["inputs"][number]

    def id(self, number=0):
        return self.input(number)["id"]

    def pass_of(self, head="0.0", number=0):
        return self.api(f"/inputs/{self.id(number)}/{head}")["pass"]

    def wait_for_pass(self, head="0.0", number=0, seconds=120):
        """Waits until all rows of a head are computed."""
        end = time.monotonic() + seconds
        while (found := self.pass_of(head, number))["state"] != "done":
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def counters(self):
        return self.api("/counters")

    def resident(self):
        """Returns the memory of the process that is in use and not mapped from files, in bytes."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(text.partition("RssAnon:")[2].split()[0])

    # ---- addresses of pages ----------------------------------------------------------------------------------

    def address(self, path="/", fragment=""):
        """Returns the address of a page, which holds the token and the fields of `fragment` ("scale=4&query=7")."""
        return f"{self.origin}{path}#token={self.token}{'&' if fragment else ''}{fragment}"

    # ---- the end ---------------------------------------------------------------------------------------------

    def stop(self):
        """Ends the server as Ctrl-C does; returns (exit code, standard error, seconds)."""
        start = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"fovea view did not end within {END_S} s of Ctrl-C") from None
        self._close()
        return code, self.errors(), time.monotonic() - start

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self):
        self.process.stdout.close()
        self.errors()
        self._errors.close()
