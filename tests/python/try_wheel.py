# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel as pip does, installs it into a new environment, and runs there what the README shows of
Python, and the command line. `make wheel` runs it; the wheel stays in build/wheel.

pip builds everything anew, in a tree of its own, with the packages of build/python/venv: the version of each that
pyproject.toml asks for is checked, none is downloaded again. Where ccache is there, what build/release has
compiled comes from its cache, as long as both are compiled alike.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHEELS = ROOT / "build" / "wheel"


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def as_in_release():
    """What build/release is compiled with: options of pip, and variables of the environment."""
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


def build():
    for old in WHEELS.glob("fovea-*.whl"):
        old.unlink()
    print("building the wheel", flush=True)
    options, variables = as_in_release()
    environment = {**os.environ, **variables, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}
    run(
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--check-build-dependencies",
        "--wheel-dir",
        WHEELS,
        *options,
        ROOT,
        env=environment,
    )
    (wheel,) = WHEELS.glob("fovea-*.whl")
    return wheel


def check_files(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    wanted = ["__init__.py", "__main__.py", "nn.py", "py.typed", "_fovea.pyi", "_nn.pyi", "bin/fovea"]
    missing = [name for name in wanted if f"fovea/{name}" not in names]
    libraries = [name for name in names if re.match(r"fovea/lib/libfovea(_files|_scene|_nn|_train)?\.so", name)]
    modules = [name for name in names if re.fullmatch(r"fovea/_(fovea|nn)\..*so", name)]
    strangers = [name for name in names if not re.match(r"fovea/|fovea-[^/]*\.dist-info/", name)]
    # The benchmarks are not in it.
    strangers += [name for name in names if name.startswith("fovea/bin/") and name != "fovea/bin/fovea"]
    if missing or len(libraries) != 5 or len(modules) != 2 or strangers:
        sys.exit(f"{wheel.name}: missing {missing}, libraries {libraries}, modules {modules}, strangers {strangers}")


def readme_blocks(name="README.md"):
    """Each ```python block of a document, and the output that the ```text right below it shows."""
    text = (ROOT / name).read_text(encoding="utf-8")
    pattern = r"^```python\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?"
    return re.findall(pattern, text, re.MULTILINE | re.DOTALL)


def try_out(wheel, folder):
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "--disable-pip-version-check", "install", wheel)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    blocks = readme_blocks()
    if not blocks:
        sys.exit("README.md has no ```python block")
    for program, expected in blocks:
        found = run(python, "-c", program, cwd=folder, env=environment)
        if expected and found != expected:
            sys.exit(f"README.md says\n{expected}and not\n{found}")
    run(python, "-c", "from fovea import nn; nn.save(nn.Linear(3, 2), 'layer.npz')", cwd=folder, env=environment)
    run(python, "-m", "fovea", "explain", "--text", "one two three", cwd=folder, env=environment)
    scene = ROOT / "examples" / "scenes" / "learn_journey.json"
    run(python, "-m", "fovea", "train", "scene", scene, cwd=folder, env=environment)
    return run(python, "-c", "import fovea; print(fovea.info())", cwd=folder, env=environment).strip()


def main():
    wheel = build()
    check_files(wheel)
    with tempfile.TemporaryDirectory(prefix="fovea-wheel-") as folder:
        said = try_out(wheel, pathlib.Path(folder))
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB; in a new environment: {said}")


if __name__ == "__main__":
    main()
