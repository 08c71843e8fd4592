# SPDX-License-Identifier: Apache-2.0
"""Runs a suite of tests in the system's Chromium, with the packages in build/pages/venv: shared by tests/pages/run and
tests/view/run."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "bench" / "peers"))

import environment  # noqa: E402  (bench/peers/environment.py)

VENV = ROOT / "build" / "pages" / "venv"


def browser():
    """Returns the name of the program that opens the pages: $CHROMIUM, or the headless shell, which opens an empty page
    in a third of Chromium's time."""
    shell = "chromium-headless-shell"
    return os.environ.get("CHROMIUM") or (shell if shutil.which(shell) else "chromium")


def python(name):
    """Returns the command of a Python that has the packages of requirements.txt, for the suite `name`. Makes it once,
    which needs the network or PIP_FIND_LINKS."""
    if shutil.which(browser()) is None:
        raise SystemExit(
            f"{name}: no {browser()}; expected Debian's package chromium-headless-shell or chromium, or CHROMIUM=..."
        )
    if not (environment.RELEASE / "fovea").exists():
        raise SystemExit(f"{name}: no {environment.RELEASE / 'fovea'}; make test-{name.rpartition('/')[2]} builds it")
    environment.make_venv(
        VENV,
        HERE / "requirements.txt",
        "180 MB, once",
        "this requires the network (or PIP_FIND_LINKS) once",
        lambda line: print(line, flush=True),
    )
    return [str(VENV / "bin" / "python"), "-B"]


def run(name, arguments, scripts, failures, environ=None):
    """Runs one of the `scripts` in the folder of the suite `name` ("tests/pages") if the first argument names it,
    otherwise pytest. Returns the exit code.

    failures  the folder of screenshots, emptied before
    environ   more environment variables
    """
    if arguments[:1] and arguments[0] in scripts:
        command = [*python(name), str(ROOT / name / f"{arguments[0]}.py"), *arguments[1:]]
    else:
        shutil.rmtree(failures, ignore_errors=True)
        named = any(argument.startswith(f"{name}/") for argument in arguments)
        # Runs a selection in one process, because browsers start slowly. Runs the whole suite in one process more than
        # there are processors, because a process waits while its browser draws.
        processes = str((os.cpu_count() or 1) + 1)
        defaults = [name, "-n", processes] if not arguments else [] if named else [name]
        # Ends a test whose browser no longer answers: Playwright has no time limit for scripts.
        limit = ["-o", "faulthandler_timeout=120", "-o", "faulthandler_exit_on_timeout=true"]
        command = [*python(name), "-m", "pytest", *limit, *defaults, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **(environ or {})}).returncode
