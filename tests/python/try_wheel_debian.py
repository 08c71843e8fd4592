# SPDX-License-Identifier: Apache-2.0
"""Tries the wheel on bare Debian systems, which have Python but no compiler: `make test-wheel`.

debootstrap creates root directories of Debian 12 and Debian 13 in build/roots, once. Each is entered by chroot in its
own mount namespace, so that nothing remains mounted; this needs the root user. If an interpreter of the system's
Python version is found, the wheel for it is built (tools/wheel.py); otherwise it is taken from build/wheel. NumPy is
downloaded outside, so that the systems need no network.
"""

import os
import shutil
import sys

import try_wheel

sys.path.insert(0, str(try_wheel.ROOT / "tools"))
import wheel as tools_wheel

ROOT = try_wheel.ROOT
ROOTS = ROOT / "build" / "roots"
SUITES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
PACKAGES = "python3,python3-venv"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def make_root(suite):
    """Returns the root directory of a bare system; creates it if it is missing."""
    root = ROOTS / suite
    finished = ROOTS / f"{suite}.made"
    if not finished.exists():
        print(f"making a bare {SUITES[suite]} in {root.relative_to(ROOT)} (250 MB, once)", flush=True)
        shutil.rmtree(root, ignore_errors=True)
        ROOTS.mkdir(parents=True, exist_ok=True)
        try_wheel.run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, root)
        finished.touch()
    return root


def inside(root, script):
    """Runs a shell script in `root` and returns its output."""
    # When the first process of the namespaces ends, its processes are killed and its mounts removed.
    enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-c"]
    mount = 'mount -t proc proc "$1/proc" && exec chroot "$1" sh -euc "$2"'
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
    return try_wheel.run(*enter, mount, "sh", root, script, env=environment)


def find_or_build(version, suite):
    """Returns the wheel for `version` of Python; if there is none, prints the reason and returns None.

    The wheel for the Python that runs this file is the one that `make wheel` has just built.
    """
    if version != tools_wheel.OWN_VERSION and tools_wheel.find_python(version) is not None:
        return tools_wheel.build(version)
    found = try_wheel.find_wheel("cp" + version.replace(".", ""))
    if found is None:
        print(f"{SUITES[suite]} is left out: no wheel for Python {version}, and no such Python to build it with")
    return found


def try_in(suite):
    root = make_root(suite)
    version = inside(root, "python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'").strip()
    wheel = find_or_build(version, suite)
    if wheel is None:
        return
    try_wheel.check_files(wheel)
    try_wheel.check_binaries(wheel)
    folder = root / "tmp" / "fovea"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wanted = ["--python-version", version, "--only-binary", ":all:", "--dest", folder]
    try_wheel.run(*PIP, "download", "--quiet", *wanted, "numpy")
    scene = ROOT / "examples" / "scenes" / "learn_journey.json"
    for file in (wheel, ROOT / "README.md", ROOT / "tests" / "python" / "try_installed.py", scene):
        shutil.copy(file, folder)
    said = inside(
        root,
        rf"""
        cd /tmp/fovea
        if dpkg-query -Wf '${{Package}} ${{db:Status-Status}}\n' | grep -E '(-dev|^gcc|^g\+\+|^clang) installed$'; then
          echo 'expected a Debian without these packages'
          exit 1
        fi
        python3 -m venv venv
        venv/bin/pip --disable-pip-version-check install --quiet --no-index --find-links . {wheel.name}
        venv/bin/python try_installed.py README.md {scene.name}
        """,
    )
    print(f"{SUITES[suite]}, {wheel.name}: {said.strip()}", flush=True)


def main():
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        print("The wheel is not tried on bare Debian systems: that needs root and debootstrap")
        return
    for suite in SUITES:
        try_in(suite)


if __name__ == "__main__":
    main()
