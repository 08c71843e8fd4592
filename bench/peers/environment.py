# SPDX-License-Identifier: Apache-2.0
"""Environment of a measurement: the virtual environment, Fovea's built library and the machine."""

import ctypes
import datetime
import hashlib
import os
import pathlib
import subprocess
import sys

PEERS = pathlib.Path(__file__).resolve().parent
ROOT = PEERS.parent.parent
BUILD = ROOT / "build" / "peers"
VENV_PYTHON = BUILD / "venv" / "bin" / "python"
RELEASE = ROOT / "build" / "release"

sys.path.insert(0, str(PEERS.parent))
import report  # noqa: E402: bench/report.py, for the facts that all records share


def make_venv(folder, requirements, note, hint, log):
    """Creates a virtual environment from a requirements file, again if the file or the version of Python has
    changed."""
    wanted = hashlib.sha256(sys.version.encode() + requirements.read_bytes()).hexdigest()
    stamp = folder / "made-from"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    log(f"setting up {folder.relative_to(ROOT)} ({note})")
    folder.parent.mkdir(parents=True, exist_ok=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    steps = (
        ([sys.executable, "-m", "venv", "--clear", str(folder)],
         "python3 -m venv failed; Debian has it in the package python3-venv"),
        ([*pip, "install", "--quiet", "-r", str(requirements)],
         f"pip could not install {requirements.relative_to(ROOT)}; {hint}"),
    )
    for command, problem in steps:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        if result.returncode != 0:
            sys.stderr.write(result.stdout)
            raise SystemExit(f"{requirements.parent.relative_to(ROOT)}: {problem}")
    stamp.write_text(wanted)


def set_up_venv(log):
    """Creates build/peers/venv."""
    make_venv(BUILD / "venv", PEERS / "requirements.txt", "about 1.6 GB, once",
              "its comments say where a CPU build of torch comes from", log)


def newest_below(folder):
    return max(path.stat().st_mtime for path in (ROOT / folder).rglob("*.*"))


def compile_against(library, source, target, others=()):
    """Compiles `source` into the shared library `target`, with the tree's headers, linked to `library` of a build and
    to the libraries `others` beside it."""
    linked = [library.stem[3:], *others, "fovea"]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra",
               f"-I{ROOT / 'include'}", str(source), f"-L{library.parent}", *(f"-l{name}" for name in linked),
               f"-Wl,-rpath,{library.parent}", "-Wl,--no-undefined", "-o", str(target)]
    target.parent.mkdir(parents=True, exist_ok=True)
    if subprocess.run(command).returncode != 0:
        raise SystemExit(f"{source.relative_to(ROOT)} did not compile against {library}")
    return target


def build_fovea_call(build, log):
    """Compiles fovea_call.cc, linked to the libfovea.so of a build tree, and returns the path of the result."""
    # Not searched for: tests leave other copies in the build tree.
    library = build.resolve() / "src" / "libfovea.so"
    if not library.exists():
        raise SystemExit(f"bench/peers: no {library}; run make first")
    built = library.stat().st_mtime
    if newest_below("include") > built:
        # The library may have been compiled with other structures than those in the headers.
        raise SystemExit(f"bench/peers: a public header is newer than {library}; run make first")
    if newest_below("src") > built:
        log(f"note: a source is newer than {library}; run make to measure what is in the tree")
    return compile_against(library, PEERS / "fovea_call.cc", BUILD / "libfovea_call.so")


def for_workers(threads, fovea_call):
    """Returns the environment variables of workers with this many threads. JAX instead counts the CPUs in its
    affinity mask."""
    count = str(threads)
    return {
        **{f"{library}_NUM_THREADS": count for library in ("OMP", "OPENBLAS", "MKL")},
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}",
        "JAX_PLATFORMS": "cpu",
        "TORCHINDUCTOR_CACHE_DIR": str(BUILD / "inductor"),
        # Compile in the worker itself: background processes would stay and compete for CPUs.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "FOVEA_CALL_LIBRARY": str(fovea_call),
        "FOVEA_PEERS_LOG": str(BUILD / "workers.log"),
    }


def provenance(arguments, fovea_call):
    """Returns the facts about a run: date, machine, compiler, SIMD target and commit. Versions of the contenders are added later."""
    library = ctypes.CDLL(str(fovea_call))
    for fact in (library.fovea_call_compiler, library.fovea_call_target):
        fact.restype = ctypes.c_char_p
    commit, dirty = report.commit()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cpu": report.machine(),
        "cores": os.cpu_count(),
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "compiler": library.fovea_call_compiler().decode(),
        "target": library.fovea_call_target().decode(),
        "commit": commit,
        "dirty": dirty,
        "load_before": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
        "arguments": arguments,
        "versions": {},
    }
