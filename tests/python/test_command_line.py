# SPDX-License-Identifier: Apache-2.0
"""Tests that `python -m fovea` is the command line, with its exit status, signals and standard input."""

import pathlib
import signal
import subprocess
import sys
import time

import fovea

SCENES = pathlib.Path(__file__).parents[2] / "examples" / "scenes"


def run(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "fovea", *arguments], capture_output=True, encoding="utf-8", **options)


def test_runs_the_command_line():
    assert run("--version").stdout.startswith(f"fovea {fovea.__version__} ({fovea.info().target}, ")
    assert "fovea explain" in run("--help").stdout
    assert fovea.info().target in run("info").stdout


def test_exit_status():
    assert run("info").returncode == 0
    result = run("explian")
    assert result.returncode == 2
    assert "explain" in result.stderr


def test_standard_input():
    scene = (SCENES / "001_your_journey.json").read_text(encoding="utf-8")
    result = run("explain", "-", "--format", "json", input=scene)
    assert result.stdout == fovea.explain(SCENES / "001_your_journey.json").to_json()


def test_signals():
    command = [sys.executable, "-m", "fovea", "explain", "-"]
    # SIGINT may be ignored if the tests run in the background.
    handled = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, handled)
    with child:
        try:
            while pathlib.Path(f"/proc/{child.pid}/comm").read_text() != "fovea\n":
                assert child.poll() is None
                time.sleep(0.01)
            time.sleep(1)  # until the program handles signals
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=10) == 130
        finally:
            child.kill()


def test_program_links_no_library_of_the_package():
    program = pathlib.Path(fovea.__file__).parent / "bin" / "fovea"
    told = subprocess.run(["ldd", str(program)], capture_output=True, encoding="utf-8", check=True).stdout
    assert "libfovea" not in told
    assert "not found" not in told
