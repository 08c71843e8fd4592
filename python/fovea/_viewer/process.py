# SPDX-License-Identifier: Apache-2.0
"""The server as a child process. It ends when its standard input closes: by close(), with this process, and also if
this process is killed. Modules that take long to import are imported when a server starts."""

from __future__ import annotations

import atexit
import contextlib
import os
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

PROGRAM = pathlib.Path(__file__).parents[1] / "bin" / "fovea"
_PREFIX = "fovea-view-"
_END_S = 0.75  # after which the process is killed
_ANSWER_S = 10.0
_ADDRESS = re.compile(r"http://[^/]+:(\d+)/#token=([0-9A-Za-z_-]+)\n")


def make_folder() -> str:
    """Creates a folder for the input files of a server. Folders of processes that were killed are removed first."""
    import shutil
    import tempfile

    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            owner = re.match(rf"{_PREFIX}(\d+)-", entry.name)
            if owner and entry.is_dir(follow_symlinks=False) and not _exists(int(owner[1])):
                shutil.rmtree(entry.path, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        pass
    return True


class Server:
    """`fovea view` with these arguments.

    folder  removed at the end; None: none

    Raises ValueError with the program's message if it refuses the arguments, and OSError if it cannot run.
    """

    def __init__(self, arguments: Sequence[str], folder: str | None) -> None:
        import subprocess
        import tempfile

        self._owner = os.getpid()
        self._folder = folder
        command = [str(PROGRAM), "view", "--no-open", "--until-closed", *arguments]
        with tempfile.TemporaryFile() as errors:
            # In a session of its own: interrupting a cell interrupts the process group of the kernel.
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
            _running.append(self)
            try:
                assert self._process.stdout is not None
                line = self._process.stdout.readline().decode(errors="replace")
            except BaseException:  # Ctrl-C while a large file is opened
                self.close()
                raise
            found = _ADDRESS.fullmatch(line)
            if found is None:
                self.close()
                errors.seek(0)
                told = errors.read().decode(errors="replace").strip().removeprefix("fovea: ")
                code = self._process.returncode
                problem = f"view: expected a server, got {told or f'exit status {code} of {PROGRAM}'}"
                raise ValueError(told) if code == 2 and told else OSError(problem)
        self.port, self.token = int(found[1]), found[2]
        self.origin = f"http://127.0.0.1:{self.port}"

    @property
    def closed(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def request(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Returns the JSON object of a response. Raises OSError if the server has ended, ValueError with its message if
        it refuses the request."""
        import http.client
        import json

        if self.closed:
            raise OSError("view: expected an open viewer, got one whose server has ended")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"X-Fovea-Token": self.token, "Content-Type": "application/json"})
            response = connection.getresponse()
            found: dict[str, Any] = json.loads(response.read())
        except http.client.HTTPException as error:
            raise OSError(f"view: expected a response of the server, got {error!r}") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise ValueError(found["error"]["message"])
        return found

    def close(self) -> None:
        """Ends the process and removes its files. May be called again."""
        import shutil
        import subprocess

        if self in _running:
            _running.remove(self)
        if os.getpid() != self._owner:  # a copy in a forked process
            return
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """Closes the pipe to the process, in a forked process: otherwise it would not end with its parent."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            os.close(self._process.stdin.fileno())


_running: list[Server] = []


@atexit.register
def _close_all() -> None:
    for server in list(_running):
        server.close()


def _forget_all() -> None:
    for server in _running:
        server.forget()
    _running.clear()


os.register_at_fork(after_in_child=_forget_all)
