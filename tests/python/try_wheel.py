# SPDX-License-Identifier: Apache-2.0
"""Checks the wheel in build/wheel that tools/wheel.py has built for the Python that runs this file. Checks its list of
files. The binaries may need only libraries that every Linux has, and a glibc no newer than the wheel's tag says.
try_installed.py checks that the wheel works in a new environment. `make wheel` runs this file.
"""

import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

from elftools.elf.elffile import ELFFile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHEELS = ROOT / "build" / "wheel"
# Libraries that every Linux with a manylinux tag has (PEP 600).
SYSTEM = r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z)\.so\.\d|ld-linux[-_a-z0-9]*\.so\.\d"


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, encoding="utf-8", **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def find_wheel(tag):
    """Returns the wheel for Pythons of `tag` ("cp311"), or None."""
    return next(iter(WHEELS.rglob(f"fovea-*-{tag}-*.whl")), None)


def check_files(wheel):
    names = [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]
    wanted = ["__init__.py", "__main__.py", "nn.py", "py.typed", "_fovea.pyi", "_nn.pyi", "bin/fovea"]
    missing = [name for name in wanted if f"fovea/{name}" not in names]
    libraries = [name for name in names if re.match(r"fovea/lib/libfovea(_files|_scene|_nn|_train)?\.so", name)]
    modules = [name for name in names if re.fullmatch(r"fovea/_(fovea|nn)\..*so", name)]
    places = r"fovea/|fovea\.libs/lib|fovea-[^/]*\.dist-info/|fovea-[^/]*\.data/scripts/fovea$"
    strangers = [name for name in names if not re.match(places, name)]
    # The wheel must not have the benchmarks.
    strangers += [name for name in names if name.startswith("fovea/bin/") and name != "fovea/bin/fovea"]
    if missing or len(libraries) != 5 or len(modules) != 2 or strangers:
        sys.exit(f"{wheel.name}: missing {missing}, libraries {libraries}, modules {modules}, strangers {strangers}")


def check_binaries(wheel):
    """Checks the libraries and the glibc version that each ELF file needs, and that the file is stripped."""
    tag = re.search(r"-manylinux_(\d+)_(\d+)_", wheel.name)
    if not tag:
        sys.exit(f"{wheel.name}: expected a manylinux tag")
    content = zipfile.ZipFile(wheel)
    inside = {pathlib.PurePath(name).name for name in content.namelist()}
    problems = []
    for name in content.namelist():
        data = content.read(name)
        if not data.startswith(b"\x7fELF"):
            continue
        elf = ELFFile(io.BytesIO(data))
        if elf.get_section_by_name(".symtab"):
            problems.append(f"{name} is not stripped")
        for entry in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED"):
            if entry.needed not in inside and not re.fullmatch(SYSTEM, entry.needed):
                problems.append(f"{name} needs {entry.needed}")
        for _, versions in elf.get_section_by_name(".gnu.version_r").iter_versions():
            for version in versions:
                glibc = re.fullmatch(r"GLIBC_(\d+)\.(\d+).*", version.name)
                if glibc and tuple(map(int, glibc.groups())) > tuple(map(int, tag.groups())):
                    problems.append(f"{name} needs {version.name}")
    if problems:
        sys.exit("\n".join([f"{wheel.name}:", *problems]))


def import_time(python, folder, environment):
    """Returns the minimum of the milliseconds that `import fovea` takes beyond `import numpy`; other load adds time."""
    times = []
    for _ in range(5):
        command = [python, "-X", "importtime", "-c", "import fovea"]
        log = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=folder, env=environment).stderr
        # The time in a module's line includes that of its imports, so fovea's includes numpy's.
        took = {name: int(time) for time, name in re.findall(r"\| +(\d+) \| +(fovea|numpy)$", log, re.MULTILINE)}
        times.append((took["fovea"] - took["numpy"]) / 1000)
    return min(times)


def try_out(wheel, folder):
    # This environment's pip installs into the new one, because setting up a new pip would take seconds.
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", wheel)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    scene = ROOT / "examples" / "scenes" / "learn_journey.json"
    script = ROOT / "tests" / "python" / "try_installed.py"
    # -P: no modules are imported from the script's folder, which is in the repository.
    said = run(python, "-P", script, ROOT / "README.md", scene, cwd=folder, env=environment).strip()
    took = import_time(python, folder, environment)
    return f"{said}; imported in {took:.1f} ms beyond NumPy"


def main():
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheel = find_wheel(tag)
    if wheel is None:
        sys.exit(f"no wheel for {tag} in build/wheel; tools/wheel.py builds it")
    check_files(wheel)
    check_binaries(wheel)
    with tempfile.TemporaryDirectory(prefix="fovea-wheel-") as folder:
        said = try_out(wheel, pathlib.Path(folder))
    print(f"in a new environment: {said}")


if __name__ == "__main__":
    main()
